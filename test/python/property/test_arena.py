"""Plans of the arena: random programs, of which the emitted host flow is evaluated at many sizes.

What is checked is what runs: the index arithmetic of the host flow, not the planner's own account of it (which must
agree all the same).
"""

import random
import re
from dataclasses import dataclass

import pytest

from disc import _native

EXTENTS = ("S", "T", "S * T", "S + T", "S * 3", "T * 5", "S * 16", "T * 384", "1", "7", "64", "1000")
RANGES = {"S": (1, 512), "T": (1, 64)}


@dataclass
class Program:
    """Calls of kernels; each gives one value from some earlier ones."""

    extents: list[str]
    operands: list[list[int]]

    @property
    def lifetimes(self) -> list[tuple[int, int]]:
        """First and last call at which each value must be intact; the last value is the program's result."""
        last = list(range(len(self.extents)))
        for call, operands in enumerate(self.operands):
            for value in operands:
                last[value] = max(last[value], call)
        return list(enumerate(last))

    def text(self) -> str:
        """The program as it reaches the planner."""
        lines = [f"disc_shape.symbol @{name} min {low} max {high}" for name, (low, high) in RANGES.items()]
        body = []
        for call, (extent, operands) in enumerate(zip(self.extents, self.operands, strict=True)):
            inputs = [(self.extents[o], f"%v{o}") for o in operands] or [("S", "%x")]
            dims = [e for e, _ in inputs]
            types = [_type(e) for e in dims]
            arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
            layouts = ", ".join("#disc_plan.layout<<0>, <[1]>>" for _ in [*dims, extent])
            arg_dims = ", ".join(f"#disc_shape.dims<[{e}]>" for e in dims)
            # Of a kind that computes nothing in place.
            lines.append(
                f"disc_plan.kernel_func contraction @k{call} attributes {{symbols = [], layouts = [{layouts}],"
                f" arg_dims = [{arg_dims}]}} {{\n^bb0({arguments}):\n"
                + (
                    f"  %n = disc_shape.dim <{extent}>\n  %e = tensor.empty(%n) : {_type(extent)}\n"
                    if "?" in _type(extent)
                    else f"  %e = tensor.empty() : {_type(extent)}\n"
                )
                + f"  disc_plan.yield %e : {_type(extent)}\n}}"
            )
            body.append(
                f"  %v{call} = disc_plan.call @k{call}({', '.join(v for _, v in inputs)}) result_dims"
                f" [#disc_shape.dims<[{extent}]>] : ({', '.join(types)}) -> {_type(extent)}"
            )
        result = _type(self.extents[-1])
        return "\n".join(
            [
                *lines,
                "func.func @main(%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>},"
                f" %y: tensor<?xf32> {{disc_shape.dims = #disc_shape.dims<[T]>}}) -> {result} {{",
                *body,
                f"  return %v{len(self.extents) - 1} : {result}",
                "}",
            ]
        )


def _type(extent: str) -> str:
    return f"tensor<{extent if extent.isdigit() else '?'}xf32>"


def _random_program(rng: random.Random) -> Program:
    count = rng.randint(2, 24)
    reach = rng.choice((1, 3, 8, 24))
    operands = [
        sorted({rng.randrange(max(0, call - reach), call) for _ in range(rng.randint(0, 3))}) if call else []
        for call in range(count)
    ]
    return Program([rng.choice(EXTENTS) for _ in range(count)], operands)


def _evaluate(text: str, symbols: dict[str, int]) -> tuple[int, list[int], list[list[str]]]:
    """Arena size, the offsets by pointer, and the pointers of each launch, from the host flow."""
    values: dict[str, int] = {}
    arena, offsets, launches = 0, {}, []
    arith = {
        "addi": lambda a, b: a + b,
        "subi": lambda a, b: a - b,
        "maxsi": max,
        "cmpi slt,": lambda a, b: a < b,
    }
    for line in text.split("disc_rt.entry @main")[1].splitlines():
        if match := re.match(r"\s*(%\S+) = disc_shape.dim <(.*)>", line):
            values[match[1]] = eval(match[2].replace("floordiv", "//"), {"max": max}, symbols)
        elif match := re.match(r"\s*(%\S+) = arith\.(addi|subi|maxsi|cmpi slt,) (%\w+), (%\w+)", line):
            values[match[1]] = arith[match[2]](values[match[3]], values[match[4]])
        elif match := re.match(r"\s*(%\S+) = arith.select (%\w+), (%\w+), (%\w+)", line):
            values[match[1]] = values[match[3]] if values[match[2]] else values[match[4]]
        elif match := re.match(r"\s*%\S+ = disc_rt.arena %\w+, (%\w+)", line):
            arena = values[match[1]]
        elif match := re.match(r"\s*(%\S+) = disc_rt.offset %\w+, (%\w+)", line):
            offsets[match[1]] = values[match[2]]
        elif match := re.match(r"\s*disc_rt.launch %\w+ @\w+\((.*)\)", line):
            launches.append(match[1].split(", "))
    return arena, [offsets.get(pointers[-1], -1) for pointers in launches], launches


def _bytes(extent: str, symbols: dict[str, int]) -> int:
    return -(-eval(extent, {}, symbols) * 4 // 64) * 64


@pytest.mark.parametrize("seed", range(40))
def test_random_lifetimes(seed):
    rng = random.Random(seed)
    program = _random_program(rng)
    module = _native.Module.parse(program.text())
    module.run("builtin.module(disc-memory-assign-buffers,disc-memory-plan-arena,disc-memory-convert-to-rt)")
    text = module.text()
    lifetimes = program.lifetimes[:-1]  # the last value is the output
    for _ in range(12):
        symbols = {n: rng.choice((low, high, rng.randint(low, high))) for n, (low, high) in RANGES.items()}
        arena, offsets, launches = _evaluate(text, symbols)
        sizes = [_bytes(e, symbols) for e in program.extents[:-1]]
        placed = list(zip(offsets[:-1], sizes, lifetimes, strict=True))
        for i, (offset, size, (first, last)) in enumerate(placed):
            assert offset >= 0 and offset % 64 == 0 and offset + size <= arena
            for other, other_size, (other_first, other_last) in placed[:i]:
                if first <= other_last and other_first <= last:
                    assert offset + size <= other or other + other_size <= offset, (i, symbols)
        # Kernels read what the producers wrote.
        for call, operands in enumerate(program.operands):
            assert all(launches[call][n] == launches[o][-1] for n, o in enumerate(operands))
        live = max(
            (sum(s for _, s, (f, l) in placed if f <= step <= l) for step in range(len(placed))),
            default=0,
        )
        use = module.arena("main", symbols)
        assert (use["arena"], use["live"]) == (arena, live)
        assert live <= arena


def test_near_the_largest_live_set():
    """Over many programs and sizes; single ones of these tangled lifetimes may do worse."""
    ratios = []
    for seed in range(60):
        rng = random.Random(1000 + seed)
        module = _native.Module.parse(_random_program(rng).text())
        module.run("builtin.module(disc-memory-assign-buffers,disc-memory-plan-arena,disc-memory-convert-to-rt)")
        for _ in range(8):
            use = module.arena("main", {n: rng.randint(*bounds) for n, bounds in RANGES.items()})
            if use["live"]:
                ratios.append(use["arena"] / use["live"])
    assert sum(ratios) / len(ratios) <= 1.02
    assert sorted(ratios)[int(0.98 * len(ratios))] <= 1.1


def test_missing_symbol():
    module = _native.Module.parse(Program(["S", "S", "S"], [[], [0], [1]]).text())
    with pytest.raises(ValueError, match="memory stage"):
        module.arena("main", {})
    module.run("builtin.module(disc-memory-assign-buffers,disc-memory-plan-arena,disc-memory-convert-to-rt)")
    with pytest.raises(ValueError, match="every symbol"):
        module.arena("main", {"T": 3})
