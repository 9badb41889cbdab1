"""Draws random programs: every statement is tried on tensors of several sizes as it is added.

Two sizes are the same symbolic size if they agree at all of these; a size that does not change is static.
"""

from __future__ import annotations

import random
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from . import control_flow, grammar, layers, operators
from .grammar import Template
from .inputs import make
from .program import DTYPES, EXAMPLE, Input, Parameter, Program, Step, plain_cond

KINDS = ("plain", "mutation", "flow", "data")
# Whether these copy depends on strides and on extents of 1, of which torch.export records those of the example.
_MAYBE_VIEW = re.compile(r"reshape|flatten|contiguous|view_as_real|\bravel|\.view\(")
_LIMIT = 6000
"""Elements of a value at the sizes tried."""
_DTYPES = ["f32"] * 6 + ["f64", "f16", "bf16", "i64", "i64", "i32", "bool", "u8", "i8", "i16", "c64"]
_FLOATS = ["f32"] * 6 + ["f64", "f16", "bf16"]
_SCALARS = ("2", "0.5", "-1", "True", "3.0", "1e-3", "-2.5", "0", "100", "7")
_SCALAR_DTYPES = ("float64", "float64", "float32", "int64", "int32", "float16", "bfloat16", "bool", "complex64")
# Small numbers of layers: strides, paddings, sizes of kernels, dilations, groups, features.
_NUMBERS = {
    "i": (1, 1, 2, 3),
    "j": (0, 1, 2),
    "k": (1, 2, 3, 5),
    "h": (1, 1, 2, 3),
    "g": (1, 2, 3),
    "o": (1, 3, 4, 8, 16, 17, 33),
}


@dataclass
class _Value:
    name: str
    tensors: list[Any]
    """Its values at the sizes tried."""

    @property
    def dtype(self) -> torch.dtype:
        return self.tensors[0].dtype

    @property
    def rank(self) -> int:
        return int(self.tensors[0].dim())

    def size(self, dim: int) -> tuple[int, ...]:
        return tuple(t.shape[dim] for t in self.tensors)

    @property
    def shape(self) -> list[tuple[int, ...]]:
        return [self.size(d) for d in range(self.rank)]


def _broadcast(a: _Value, b: _Value) -> bool:
    pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
    return all(p == q or set(p) == {1} or set(q) == {1} for p, q in pairs)


class Generator:
    """Draws one program. ``kind``: one of :data:`KINDS`."""

    def __init__(self, seed: str, kind: str, length: int) -> None:
        self.rng = random.Random(seed)
        self.seed, self.kind, self.length = seed, kind, length
        self.steps: list[Step] = []
        self.parameters: list[Parameter] = []
        self.held: dict[str, Any] = {}
        """What the parameters' names stand for while statements are tried."""
        self.count = self.made = 0

    def program(self, name: str) -> Program:
        """A program called ``name``."""
        self._start(name)
        tries = 0
        while len(self.steps) < self.length and tries < 60 * self.length:
            tries += 1
            step = self._draw()
            if step is not None:
                self._try(step)
        used = {n for s in self.steps for n in s.reads}
        values = [v.name for v in self.pool if v.name.startswith("v")]
        last = [n for n in values if n not in used]
        # Values that others use too are results now and then: fusion has to keep them.
        outputs = [n for n in values if n in last or self.rng.random() < 0.15] or [self.pool[0].name]
        program = replace(self.empty, steps=tuple(self.steps), outputs=tuple(dict.fromkeys(outputs)))
        return replace(program, parameters=tuple(self.parameters)).pruned()

    def _start(self, name: str) -> None:
        rng = self.rng
        symbols = ["A", "B", "C"][: rng.choice((1, 2, 2, 3))]
        minimum = {s: rng.choice((0, 0, 1, 2)) for s in symbols}
        inputs = []
        ranks = (0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4)
        base = [rng.choice([*symbols, *symbols, *symbols, 1, 2, 3, 4, 8, 16]) for _ in range(rng.choice(ranks))]
        main = rng.choice(_DTYPES)
        # A batch with features, or channels and places.
        self.layers = self.kind == "plain" and rng.random() < 0.35
        if self.layers:
            main = rng.choice(_FLOATS)
            features = rng.choice((2, 3, 4, 6, 8, 16))
            places: list[str | int] = [
                rng.choice([*symbols, *symbols, 3, 8]) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 2, 3)))
            ]
            batch = rng.choice([*symbols, 1, 2])
            base = [batch, features, *places] if rng.random() < 0.6 else [batch, *places, features]
        for place in range(rng.choice((1, 2, 2, 3))):
            dims = list(base)
            if place:
                # Others broadcast with the first more often than not.
                change = rng.random()
                dims = [1 if rng.random() < 0.2 else d for d in dims[rng.choice((0, 0, 1)) :]]
                if change < 0.2:
                    rng.shuffle(dims)
                elif change < 0.3:
                    dims = [rng.choice(symbols) for _ in range(rng.randrange(3))]
            inputs.append(Input(f"x{place}", main if rng.random() < 0.6 else rng.choice(_DTYPES), tuple(dims)))
        if not any(isinstance(d, str) for i in inputs for d in i.dims):
            inputs[0] = replace(inputs[0], dims=(symbols[0], *inputs[0].dims[1:]))
        self.empty = Program(name, tuple(inputs), (), (), minimum)
        low = {s: minimum[s] for s in symbols}
        sizes = [
            EXAMPLE,
            {"A": 13, "B": 4, "C": 3},
            low,
            {"A": 9, "B": max(minimum.get("B", 0), 1), "C": minimum.get("C", 0) + 1},
        ]
        made = [make(self.empty, values, self.seed, plain=True) for values in sizes]
        self.pool = [_Value(i.name, [m[place] for m in made]) for place, i in enumerate(inputs)]
        if rng.random() < 0.2:
            # A weight that broadcasts with the inputs.
            static = base[len(base) - next((n for n, d in enumerate(base[::-1]) if isinstance(d, str)), len(base)) :]
            name = self._parameter(tuple(static[rng.randrange(len(static) + 1) :]), DTYPES[rng.choice(_DTYPES)])
            self.pool.insert(0, _Value(name, [self.held[name]] * len(sizes)))

    # -- drawing a statement -----------------------------------------------------------------------

    def _draw(self) -> Step | None:
        rng = self.rng
        if self.kind == "mutation" and rng.random() < 0.35:
            return self._filled(self._weighted(grammar.MUTATIONS), in_place=True)
        if self.layers and rng.random() < 0.55:
            template = self._weighted(layers.LAYERS)
            return self._filled(template, rank=template.rank)
        if self.kind == "flow" and rng.random() < 0.3:
            return self._flow()
        if self.kind == "data" and (rng.random() < 0.1 or not any(s.op == "compaction" for s in self.steps)):
            return self._filled(Template(rng.choice(control_flow.COMPACTING), kind="compaction"))
        if rng.random() < 0.2:
            chosen = operators.choose(rng)
            return None if chosen is None else self._filled(chosen[1], rank=chosen[0])
        return self._filled(self._weighted(grammar.EXPRESSIONS))

    def _weighted(self, templates: list[Template]) -> Template:
        return self.rng.choices(templates, [t.weight for t in templates])[0]

    def _first(self, rank: int | None = None) -> _Value | None:
        fitting = [v for v in self.pool if rank is None or v.rank == rank]
        if not fitting:
            return None
        # What was computed last, so that programs get deep.
        return fitting[-1 - min(int(self.rng.expovariate(0.6)), len(fitting) - 1)]

    def _filled(self, template: Template, rank: int | None = None, in_place: bool = False) -> Step | None:
        a = self._first(rank)
        if a is None:
            return None
        text = self._text(template.text, a, template)
        if text is None:
            return None
        if in_place:
            return Step(a.name, text, template.kind)
        self.count += 1
        result = f"v{self.count}"
        return Step(result, f"{result} = {text}", template.kind)

    def _text(self, text: str, a: _Value, template: Template, **more: str) -> str | None:
        rng = self.rng
        d, e = (rng.randrange(max(a.rank, 1)) for _ in range(2))
        names = {"a": a.name, "d": str(d), "e": str(e), "n": f"{a.name}.size({d})", **more}
        numbers = {name: rng.choice(choices) for name, choices in _NUMBERS.items()}
        names |= {name: str(number) for name, number in numbers.items()}
        names |= {"z": rng.choice(_SCALARS), "t": rng.choice(_SCALAR_DTYPES)}
        names |= {"L": f"{a.name}.size(-1)", "C": f"{a.name}.size(1)"}
        for operand in template.operands[1:]:
            fitting = [v for v in self.pool if self._fits(a, v, template.like, d)]
            if not fitting:
                return None
            names[operand] = rng.choice(fitting).name
        if template.weights:
            made = self._weights(template, a, numbers)
            if made is None:
                return None
            names |= made
        try:
            return text.format(**names)
        except (KeyError, IndexError, ValueError):
            return None

    def _weights(self, template: Template, a: _Value, numbers: dict[str, int]) -> dict[str, str] | None:
        """Parameters for a template's `{w}`, `{u}`, `{v}`; None where a size that they need is dynamic."""
        sizes: dict[str, Any] = {"s": [], **numbers, "torch": torch}
        static = [sizes_[0] if len(set(sizes_)) == 1 else None for sizes_ in a.shape]
        sizes |= {"s": static, "C": static[1] if a.rank > 1 else None, "L": static[-1] if static else None}
        dtype = a.dtype if a.dtype.is_floating_point or a.dtype.is_complex else torch.float32
        names = {}
        for placeholder, text in zip("wuv", template.weights, strict=False):
            try:
                if text.startswith("torch.nn."):
                    code = re.sub(r"\b[ijkhgoCL]\b(?!=)", lambda m: str(int(sizes[m[0]])), text)
                    names[placeholder] = self._held(code + f".to({dtype})")
                else:
                    names[placeholder] = self._parameter(eval(text, sizes), dtype)
            except (TypeError, IndexError, ValueError, AssertionError, SyntaxError, RuntimeError):
                return None
        return names

    def _parameter(self, shape: tuple[int, ...], dtype: torch.dtype) -> str:
        """A parameter, a buffer or a constant of this shape."""
        shape = tuple(map(int, shape))
        code = f"torch.randn{shape}" if shape else "torch.randn(())"
        if not dtype.is_floating_point:
            code = f"({code} * 3).to({dtype})" if dtype is not torch.uint8 else f"({code} * 3).abs().to({dtype})"
        elif dtype is not torch.float32:
            code += f".to({dtype})"
        if dtype.is_floating_point and (kind := self.rng.choice(("Parameter", "Parameter", "Buffer", ""))):
            code = f"torch.nn.{kind}({code})"
        return self._held(code)

    def _held(self, code: str) -> str:
        self.made += 1
        parameter = Parameter(f"p{self.made}", code)
        self.held[parameter.name] = parameter.make()
        self.parameters.append(parameter)
        return parameter.name

    @staticmethod
    def _fits(a: _Value, b: _Value, like: str, dim: int) -> bool:
        if like == "any":
            return True
        if like == "broadcast":
            return _broadcast(a, b)
        if a.rank != b.rank or a.dtype != b.dtype:
            return False
        return all(
            p == q for place, (p, q) in enumerate(zip(a.shape, b.shape, strict=True)) if like == "same" or place != dim
        )

    def _flow(self) -> Step | None:
        a, b = self._first(), self.rng.choice(self.pool)
        if a is None or a.tensors[0].dtype == torch.bool:
            return None  # Bools become ints on one side of a branch: a dtype that data chooses, which DISC refuses.
        condition = self._text(self.rng.choice(control_flow.CONDITIONS).replace("{b}", "{a}"), b, Template("{a}"))
        self.count += 1
        result = f"v{self.count}"
        text = self._text(self.rng.choice(control_flow.FLOW), a, Template("{a}"), r=result, p=condition or "")
        return None if text is None else Step(result, text, "flow")

    # -- trying it ---------------------------------------------------------------------------------

    def _of_parameter(self, value: _Value) -> bool:
        """Whether it shares memory with a parameter."""
        # Those in the pool are copied together with what shares their memory.
        own = {t.untyped_storage().data_ptr() for v in self.pool if v.name in self.held for t in v.tensors}
        return any(t.untyped_storage().data_ptr() in own for t in value.tensors)

    def _try(self, step: Step) -> None:
        names = {v.name: v for v in self.pool}
        if not step.defines and self._of_parameter(names[step.result]):
            return  # It would differ in the next call.
        if step.result.startswith("x") and re.search(r"\b(t_|unsqueeze_)\(", step.text):
            return  # torch.export has no inputs that change their rank.
        if self.kind == "mutation" and _MAYBE_VIEW.search(step.text):
            return
        results = []
        code = compile(step.text, "step", "exec")
        with warnings.catch_warnings(), torch.no_grad(), plain_cond():
            warnings.simplefilter("ignore")
            for place in range(len(self.pool[0].tensors)):
                space: dict[str, Any] = {"torch": torch, "F": F, **self.held}
                # A failing step must not change anything: views of one memory stay views of one copy.
                memory: dict[int, torch.Tensor] = {}
                for name, value in names.items():
                    space[name] = value.tensors[place] if step.defines else _copied(value.tensors[place], memory)
                try:
                    exec(code, space)
                except Exception:
                    return
                results.append(space)
        found = [space[step.result] for space in results]
        if not all(isinstance(t, torch.Tensor) for t in found) or not _reasonable(found):
            return
        if not step.defines:
            for value in self.pool:
                value.tensors = [space[value.name] for space in results]
        elif step.result in names:
            return
        else:
            self.pool.append(_Value(step.result, found))
        self.steps.append(step)


def _copied(tensor: torch.Tensor, memory: dict[int, torch.Tensor]) -> torch.Tensor:
    """The same view of a copy of the memory."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in memory:
        memory[storage.data_ptr()] = torch.empty(0, dtype=torch.uint8).set_(storage.clone())
    copy = torch.empty(0, dtype=tensor.dtype)
    result = copy.set_(
        memory[storage.data_ptr()].untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )
    return result.conj() if tensor.is_conj() else result


def _reasonable(found: list[torch.Tensor]) -> bool:
    first = found[0]
    if first.dtype not in DTYPES.values() or first.is_sparse or first.layout != torch.strided or first.is_quantized:
        return False
    if any(t.dtype != first.dtype or t.dim() != first.dim() or t.dim() > 6 or t.numel() > _LIMIT for t in found):
        return False
    for t in found[:2]:
        if t.dtype.is_floating_point and t.numel() and float(t.isfinite().float().mean()) < 0.5:
            return False
        if (t.dtype.is_floating_point or t.dtype.is_complex) and t.numel():
            finite = t.abs()[t.isfinite()]
            # What grows further tells little, as tolerances grow with it.
            if finite.numel() and float(finite.max()) > 1e4:
                return False
    return True


def generate(seed: int, place: int) -> Program:
    """The program of this number: always the same."""
    rng = random.Random(f"{seed} {place}")
    kind = rng.choices(KINDS, (66, 20, 10, 4))[0]
    return Generator(f"{seed} {place}", kind, rng.choice((2, 3, 4, 5, 6, 8))).program(f"P{place}")


def kind_of(program: Program) -> str:
    """Which of :data:`KINDS` it is: those that trace Python, or make extents, are compiled with others like it."""
    ops = {s.op for s in program.steps}
    return "flow" if "flow" in ops else "data" if "compaction" in ops else "mutation" if "mutation" in ops else "plain"
