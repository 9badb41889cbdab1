"""Random programs of nested branches and loops, compiled and against a walk over the same program in NumPy.

Numbers are small integers in f32, so results are exact and every difference is a bug: in the extents, in what is
read and written where, or in the flow.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from compiled_text import compile_text

LIMIT = 8.0


@dataclass
class Value:
    """A vector (``length`` is its symbolic extent), or a scalar or truth (``length`` is None)."""

    name: str
    length: str | None
    type: str


@dataclass
class Block:
    lines: list[str] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)  # functions that change an environment of NumPy values


class TooLong(Exception):
    """The program makes more elements than a test should have."""


def vector(length: str) -> str:
    return "tensor<?xf32>"


class Program:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.symbols: list[str] = ["disc_shape.symbol @S min 1 max 512", "disc_shape.symbol @R min 0 max 4"]

    def fresh(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def symbol(self, prefix: str) -> str:
        name = self.fresh(prefix)
        self.symbols.append(f"disc_shape.symbol @{name} min 0")
        return name

    def index(self, block: Block, expr: str) -> str:
        name = self.fresh("n")
        block.lines.append(f"%{name} = disc_shape.dim <{expr}>")
        return f"%{name}"

    # -- computations ----------------------------------------------------------------------------

    def generic(self, block: Block, result: Value, inputs: list[Value], body: list[str], last: str) -> None:
        """An elementwise computation; scalars are broadcast."""
        rank = 0 if result.length is None else 1
        loops = "d0" if rank else ""
        maps = [f"affine_map<({loops}) -> ({loops if v.length is not None else ''})>" for v in (*inputs, result)]
        size = f"({self.index(block, result.length)})" if rank else "()"
        empty = self.fresh("e")
        kinds = '"parallel"' if rank else ""
        block.lines.append(f"%{empty} = tensor.empty{size} : {result.type}")
        args = ", ".join(f"%a{i}: f32" for i in range(len(inputs)))
        element = "i1" if "i1" in result.type else "f32"
        block.lines += [
            f"%{result.name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], "
            f"iterator_types = [{kinds}]}} "
            f"ins({', '.join('%' + v.name for v in inputs)} : {', '.join(v.type for v in inputs)}) "
            f"outs(%{empty} : {result.type}) {{",
            f"^bb0({args}, %out: {element}):",
            *body,
            f"  linalg.yield {last} : {element}",
            f"}} -> {result.type}",
        ]

    def affine(self, block: Block, x: Value) -> Value:
        scale, offset = self.random.choice([-1.0, 1.0]), float(self.random.randint(-2, 2))
        result = Value(self.fresh(), x.length, x.type)
        body = [
            f"  %s = arith.constant {scale} : f32",
            f"  %o = arith.constant {offset} : f32",
            "  %m = arith.mulf %a0, %s : f32",
            "  %r = arith.addf %m, %o : f32",
            *self.clamp("%r"),
        ]
        self.generic(block, result, [x], body, "%c")
        block.steps.append(lambda e: e.update({result.name: np.clip(e[x.name] * scale + offset, -LIMIT, LIMIT)}))
        return result

    def clamp(self, value: str) -> list[str]:
        return [
            f"  %lo = arith.constant {-LIMIT} : f32",
            f"  %hi = arith.constant {LIMIT} : f32",
            f"  %l = arith.maximumf {value}, %lo : f32",
            "  %c = arith.minimumf %l, %hi : f32",
        ]

    def plus(self, block: Block, x: Value, y: Value) -> Value:
        result = Value(self.fresh(), x.length, x.type)
        self.generic(block, result, [x, y], ["  %r = arith.addf %a0, %a1 : f32", *self.clamp("%r")], "%c")
        block.steps.append(lambda e: e.update({result.name: np.clip(e[x.name] + e[y.name], -LIMIT, LIMIT)}))
        return result

    def sum(self, block: Block, x: Value) -> Value:
        result, fill, zero, empty = Value(self.fresh(), None, "tensor<f32>"), *(self.fresh("f") for _ in range(3))
        block.lines += [
            f"%{zero} = arith.constant 0.0 : f32",
            f"%{empty} = tensor.empty() : tensor<f32>",
            f"%{fill} = linalg.fill ins(%{zero} : f32) outs(%{empty} : tensor<f32>) -> tensor<f32>",
            f"%{result.name} = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], "
            f'iterator_types = ["reduction"]}} ins(%{x.name} : {x.type}) outs(%{fill} : tensor<f32>) {{',
            "^bb0(%a: f32, %b: f32):",
            "  %r = arith.addf %a, %b : f32",
            "  linalg.yield %r : f32",
            "} -> tensor<f32>",
        ]
        block.steps.append(lambda e: e.update({result.name: e[x.name].sum(dtype=np.float32)}))
        return result

    def truth(self, block: Block, vectors: list[Value]) -> Value:
        total = self.sum(block, self.random.choice(vectors))
        bound = float(self.random.randint(-4, 4)) + 0.5
        result = Value(self.fresh("p"), None, "tensor<i1>")
        body = [f"  %b = arith.constant {bound} : f32", "  %r = arith.cmpf olt, %a0, %b : f32"]
        self.generic(block, result, [total], body, "%r")
        block.steps.append(lambda e: e.update({result.name: bool(e[total.name] < bound)}))
        return result

    def concat(self, block: Block, x: Value, y: Value) -> Value:
        result = Value(self.fresh(), f"{x.length} + {y.length}", x.type)
        block.lines.append(
            f"%{result.name} = disc_tensor.concat %{x.name}, %{y.name} dim 0 : {x.type}, {y.type} -> {result.type}"
        )

        def step(e: dict[str, Any]) -> None:
            e[result.name] = np.concatenate([e[x.name], e[y.name]])
            if e[result.name].size > 3000:
                raise TooLong

        block.steps.append(step)
        return result

    def half(self, block: Block, x: Value) -> Value:
        result = Value(self.fresh(), f"({x.length}) floordiv 2", x.type)
        offset, size = self.index(block, "0"), self.index(block, result.length)
        block.lines.append(
            f"%{result.name} = disc_tensor.slice %{x.name}[{offset}, {size}] dim 0 step 1 : {x.type} -> {result.type}"
        )
        block.steps.append(lambda e: e.update({result.name: e[x.name][: e[x.name].size // 2]}))
        return result

    # -- control flow ----------------------------------------------------------------------------

    def fill_block(self, block: Block, vectors: list[Value], depth: int) -> list[Value]:
        """Adds statements; gives the vectors that are known at the end, new ones last."""
        known = list(vectors)
        for _ in range(self.random.randint(1, 4)):
            x, y = self.random.choice(known), self.random.choice(known)
            kind = self.random.choice(
                ["affine", "plus", "scalar", "concat", "half", "branch", "loop", "branch", "loop"]
            )
            if kind in ("branch", "loop") and depth == 0:
                kind = "affine"
            if kind == "plus" and x.length == y.length:
                known.append(self.plus(block, x, y))
            elif kind == "scalar":
                known.append(self.plus(block, x, self.sum(block, y)))
            elif kind == "concat":
                known.append(self.concat(block, x, y))
            elif kind == "half":
                known.append(self.half(block, x))
            elif kind == "branch":
                known += self.branch(block, known, depth - 1)
            elif kind == "loop":
                known += self.loop(block, known, depth - 1)
            else:
                known.append(self.affine(block, x))
        return known

    def pick(self, vectors: list[Value], outer: int) -> Value:
        """Rather one of the block's own."""
        return self.random.choice(vectors[outer:] if outer < len(vectors) and self.random.random() < 0.8 else vectors)

    def branch(self, block: Block, vectors: list[Value], depth: int) -> list[Value]:
        condition = self.truth(block, vectors)
        sides, known = [Block(), Block()], []
        for side in sides:
            known.append(self.fill_block(side, vectors, depth) if self.random.random() < 0.8 else list(vectors))
        results, given, symbols, sizes = [], [[], []], [], [[], []]
        for _ in range(self.random.randint(1, 3)):
            pair = [self.pick(k, len(vectors)) for k in known]
            length = pair[0].length
            if pair[0].length != pair[1].length or not self.visible(length, vectors):
                length = self.symbol("m")
                symbols.append(length)
                for side in (0, 1):
                    sizes[side].append(self.index(sides[side], pair[side].length))
            results.append(Value(self.fresh("r"), length, vector(length)))
            for side in (0, 1):
                given[side].append(pair[side])
        for side in (0, 1):
            sides[side].lines.append(
                f"disc_tensor.yield {', '.join('%' + v.name for v in given[side])} : "
                f"{', '.join(v.type for v in given[side])}" + (f" sizes({', '.join(sizes[side])})" if symbols else "")
            )
        listed = f" symbols [{', '.join('@' + s for s in symbols)}]" if symbols else ""
        block.lines += [
            f"{', '.join('%' + r.name for r in results)} = disc_tensor.branch %{condition.name}{listed} "
            f"{{disc_shape.dims = [{', '.join(dims(r) for r in results)}]}} : tensor<i1> -> "
            f"({', '.join(r.type for r in results)}) {{",
            *sides[0].lines,
            "} else {",
            *sides[1].lines,
            "}",
        ]

        def step(e: dict[str, Any]) -> None:
            side = 0 if e[condition.name] else 1
            inner = dict(e)
            for s in sides[side].steps:
                s(inner)
            e.update({r.name: inner[v.name] for r, v in zip(results, given[side], strict=True)})

        block.steps.append(step)
        return results

    def visible(self, length: str, vectors: list[Value]) -> bool:
        return any(v.length == length for v in vectors)

    def loop(self, block: Block, vectors: list[Value], depth: int) -> list[Value]:
        count = self.random.choice(["R", "0", "1", "3", "2", None])
        # Without a count a step is always possible: the condition has to end it, after a few.
        condition = self.truth(block, vectors) if count is not None and self.random.random() < 0.5 else None
        count = count or "2"
        inits = [self.random.choice(vectors) for _ in range(self.random.randint(1, 3))]
        index, trips = self.symbol("i"), self.symbol("t")
        body = Block()
        # Whether a carried vector changes its size is known only when the body is: it may.
        varying = [self.random.random() < 0.5 for _ in inits]
        inside, lasts, firsts = [], [], []
        carried = []
        for init, varies in zip(inits, varying, strict=True):
            length = self.symbol("l") if varies else init.length
            if varies:
                inside.append(length)
                lasts.append(self.symbol("k"))
                firsts.append(self.index(block, init.length))
            carried.append(Value(self.fresh("c"), length, init.type))
        known = self.fill_block(body, [*vectors, *carried], depth)
        nexts = []
        for c, varies in zip(carried, varying, strict=True):
            fit = [v for v in known if varies or v.length == c.length]
            own = [v for v in fit if v not in vectors] or fit
            nexts.append(self.random.choice(own))
        outer = {v.length for v in vectors}
        rows = [v for v in known if v.length in outer and v not in vectors]
        stacked = [self.random.choice(rows)] if rows and self.random.random() < 0.5 else []
        again = self.truth(body, known) if condition is not None else None
        sizes = [self.index(body, n.length) for n, v in zip(nexts, varying, strict=True) if v]
        body.lines.append(
            f"disc_tensor.next {', '.join('%' + v.name for v in (*nexts, *stacked))} : "
            f"{', '.join(v.type for v in (*nexts, *stacked))}"
            + (f" while %{again.name} : tensor<i1>" if again else "")
            + (f" sizes({', '.join(sizes)})" if sizes else "")
        )
        after = iter(lasts)
        results = [
            Value(self.fresh("r"), next(after) if v else c.length, c.type)
            for c, v in zip(carried, varying, strict=True)
        ]
        stacks = [Value(self.fresh("y"), f"{v.length}", "tensor<?x?xf32>") for v in stacked]
        rows_count = trips if again else count
        attributes = [
            f"arg_dims = [{', '.join(dims(c) for c in carried)}]",
            "disc_shape.dims = ["
            + ", ".join([*map(dims, results), *(f"#disc_shape.dims<[{rows_count}, {v.length}]>" for v in stacked)])
            + "]",
        ]
        limit = self.index(block, count)
        types = [
            *(r.type for r in results),
            *(f"tensor<{'?' if not rows_count.isdigit() else rows_count}x?xf32>" for _ in stacks),
        ]
        for stack, type_ in zip(stacks, types[len(results) :], strict=True):
            stack.type = type_
        block.lines += [
            f"{', '.join('%' + r.name for r in (*results, *stacks))} = disc_tensor.loop @{index} below {limit}"
            + (f" while %{condition.name} : tensor<i1>" if condition else "")
            + f" carries({', '.join('%' + v.name for v in inits)})"
            + (f" sizes({', '.join(firsts)})" if firsts else "")
            + (
                f" symbols [{', '.join('@' + s for s in inside)}] last [{', '.join('@' + s for s in lasts)}]"
                if inside
                else ""
            )
            + (f" trips @{trips}" if again else "")
            + f" {{{', '.join(attributes)}}} : ({', '.join(v.type for v in inits)}) -> ({', '.join(types)}) {{",
            f"^bb0({', '.join(f'%{c.name}: {c.type}' for c in carried)}):",
            *body.lines,
            "}",
        ]

        def step(e: dict[str, Any]) -> None:
            now = [e[v.name] for v in inits]
            made: list[list[Any]] = [[] for _ in stacked]
            number, go = 0, bool(e[condition.name]) if condition else True
            while number < (e["R"] if count == "R" else int(count)) and go:
                inner = dict(e)
                inner.update({c.name: x for c, x in zip(carried, now, strict=True)})
                for s in body.steps:
                    s(inner)
                now = [inner[v.name] for v in nexts]
                for row, v in zip(made, stacked, strict=True):
                    row.append(inner[v.name])
                go = inner[again.name] if again else True
                number += 1
            e.update({r.name: x for r, x in zip(results, now, strict=True)})
            for stack, row in zip(stacks, made, strict=True):
                e[stack.name] = np.stack(row) if row else np.zeros((0, 0), np.float32)

        block.steps.append(step)
        if not stacks:
            return results
        # What was stacked is summed up into a vector that later statements may use.
        flat = []
        for stack, row in zip(stacks, stacked, strict=True):
            flat.append(self.total(block, stack, next(v for v in vectors if v.length == row.length)))
        return [*results, *flat]

    def total(self, block: Block, stack: Value, like: Value) -> Value:
        length = like.length
        result = Value(self.fresh(), length, vector(length))
        size, zero, empty, fill = self.index(block, length), *(self.fresh("f") for _ in range(3))
        block.lines += [
            f"%{zero} = arith.constant 0.0 : f32",
            f"%{empty} = tensor.empty({size}) : {result.type}",
            f"%{fill} = linalg.fill ins(%{zero} : f32) outs(%{empty} : {result.type}) -> {result.type}",
            f"%{result.name}t = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, "
            'affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} '
            f"ins(%{stack.name} : {stack.type}) outs(%{fill} : {result.type}) {{",
            "^bb0(%a: f32, %b: f32):",
            "  %r = arith.addf %a, %b : f32",
            "  linalg.yield %r : f32",
            f"}} -> {result.type}",
        ]
        whole = Value(result.name + "t", length, result.type)
        block.steps.append(
            lambda e: e.update(
                {whole.name: e[stack.name].sum(0) if len(e[stack.name]) else np.zeros_like(e[like.name])}
            )
        )
        return self.affine(block, whole)

    # -- the whole -------------------------------------------------------------------------------

    def build(self) -> tuple[str, Any, int]:
        block = Block()
        x, y = Value("x", "S", vector("S")), Value("y", "S", vector("S"))
        known = self.fill_block(block, [x, y], 3)
        while len(known) < 4:
            known = self.fill_block(block, known, 3)
        results = [*self.random.sample(known[2:], min(3, len(known) - 2)), known[-1]]
        lines = [
            *self.symbols,
            "func.func @main("
            '%x: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>, disc_shape.name = "x"}, '
            '%y: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[S]>, disc_shape.name = "y"}, '
            '%z: tensor<?xf32> {disc_shape.dims = #disc_shape.dims<[R]>, disc_shape.name = "z"}) -> '
            f"({', '.join(r.type for r in results)}) {{",
            *block.lines,
            f"return {', '.join('%' + r.name for r in results)} : {', '.join(r.type for r in results)}",
            "}",
        ]

        def run(x: np.ndarray, y: np.ndarray, rounds: int) -> list[np.ndarray]:
            env: dict[str, Any] = {"x": x, "y": y, "R": rounds, "S": x.size}
            for s in block.steps:
                s(env)
            return [env[r.name] for r in results]

        return "\n".join(lines), run, len(results)


def dims(value: Value) -> str:
    return f"#disc_shape.dims<[{value.length}]>"


@pytest.mark.parametrize("seed", range(16))
def test_random_control_flow(seed):
    text, run, count = Program(seed).build()
    executable = compile_text(text)
    numbers = np.random.default_rng(seed)
    for size in (1, 2, 7, 16, 33, 5, 1):
        for rounds in (0, 1, 4):
            x, y = (numbers.integers(-3, 4, size).astype(np.float32) for _ in range(2))
            try:
                expected = run(x, y, rounds)
            except TooLong:
                continue
            got = executable.run((torch.tensor(x), torch.tensor(y), torch.zeros(rounds)))
            got = [got] if isinstance(got, torch.Tensor) else list(got)
            assert len(got) == count
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_array_equal(
                    a.numpy(), b, err_msg=f"seed {seed}, size {size}, {rounds} rounds\n{text}"
                )
