"""A random program as data: inputs, statements and results, printed as a module that runs by itself."""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.export import Dim

from disc.frontend.rewriting.hooks import needs_rewriting

DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
}
EXAMPLE = {"A": 5, "B": 7, "C": 11}
"""Sizes of the inputs that a program is compiled with."""
_NAME = re.compile(r"\b[pxvw]\d+\b")


@dataclass(frozen=True)
class Input:
    """A tensor that a program receives."""

    name: str
    dtype: str
    dims: tuple[str | int, ...]
    """Symbols or static sizes."""

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class Parameter:
    """What a program's module holds: a parameter, a buffer, a constant tensor, or a module of `torch.nn`."""

    name: str
    code: str
    """The expression that makes it."""

    def make(self) -> Any:
        """It, always with the same values; a module is in eval mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.name[1:]))
            made = eval(self.code, {"torch": torch})
        return made.eval() if isinstance(made, nn.Module) else made


@dataclass(frozen=True)
class Step:
    """Statements that compute ``result``, or change a value in place (then ``result`` is that value)."""

    result: str
    text: str
    op: str
    """What coverage counts it as."""

    @property
    def reads(self) -> set[str]:
        """The names that it uses."""
        return set(_NAME.findall(self.text)) - {self.result} | (set() if self.defines else {self.result})

    @property
    def defines(self) -> bool:
        """Whether it binds a new name, rather than change a value in place."""
        return re.search(rf"^\s*{self.result}(, \w+)* = ", self.text, re.MULTILINE) is not None


@dataclass(frozen=True)
class Program:
    """Inputs, steps and the names of the results."""

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    minimum: Mapping[str, int]
    """The smallest size of each symbol."""
    parameters: tuple[Parameter, ...] = ()

    @property
    def source(self) -> str:
        """The module's class."""
        body = [line for step in self.steps for line in step.text.splitlines()]
        body.append(f"return [{', '.join(self.outputs)}]")
        body = [re.sub(r"\b(p\d+)\b", r"self.\1", line) for line in body]
        arguments = ", ".join(["self", *(i.name for i in self.inputs)])
        comment = f"# {'; '.join(map(str, self.inputs))}"
        lines = [f"class {self.name}(torch.nn.Module):", f"    {comment}"]
        if self.parameters:
            lines += ["    def __init__(self):", "        super().__init__()"]
            for p in self.parameters:
                lines += [f"        torch.manual_seed({p.name[1:]})", f"        self.{p.name} = {p.code}"]
            lines.append("")
        lines.append(f"    def forward({arguments}):")
        return "\n".join([*lines, *("        " + line for line in body), ""])

    @property
    def symbols(self) -> list[str]:
        """The dynamic sizes of its inputs."""
        return sorted({d for i in self.inputs for d in i.dims if isinstance(d, str)})

    def dynamic_shapes(self) -> tuple[Any, ...]:
        """For `disc.compile`: every symbol a named Dim of its own."""
        dims = {s: Dim(f"{self.name}_{s}", min=self.minimum[s], max=1 << 20) for s in self.symbols}
        return tuple({d: dims[s] for d, s in enumerate(i.dims) if isinstance(s, str)} for i in self.inputs)

    def pruned(self) -> Program:
        """Without the steps and inputs that no result depends on."""
        needed, kept = set(self.outputs), []
        for step in reversed(self.steps):
            # What is changed in place may share memory with a result.
            if step.result in needed or not step.defines:
                kept.append(step)
                needed |= step.reads
        inputs = tuple(i for i in self.inputs if i.name in needed) or self.inputs[:1]
        parameters = tuple(p for p in self.parameters if p.name in needed)
        return replace(self, inputs=inputs, steps=tuple(reversed(kept)), parameters=parameters)

    def sizes(self, values: Mapping[str, int]) -> list[list[int]]:
        """The inputs' shapes where the symbols have these values."""
        return [[values[d] if isinstance(d, str) else d for d in i.dims] for i in self.inputs]


IMPORTS = "import torch\nimport torch.nn.functional as F\n\n\n"


def load(programs: Sequence[Program], folder: str) -> list[nn.Module]:
    """The programs' modules, from one file in ``folder``: the compiler reads the code of control flow."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir=folder, prefix="group_", delete=False) as handle:
        handle.write(IMPORTS + "\n\n".join(p.source for p in programs))
    path = Path(handle.name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where Dynamo looks for it
    spec.loader.exec_module(module)
    with torch.random.fork_rng(devices=[]):
        return [getattr(module, p.name)().eval() for p in programs]


def plain_cond() -> Any:
    """A context in which `torch.cond` is an `if`: eager PyTorch compiles it, which is slow and fails at times."""
    return mock.patch("torch.cond", lambda chosen, yes, no, operands=(): (yes if chosen else no)(*operands))


_failed: list[set[int]] = []
"""Of each group, the programs that cannot be traced."""


class Group(nn.Module):
    """Several programs as one module: exporting and compiling one costs little less than several."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.programs = nn.ModuleList(modules)
        self.number = len(_failed)
        _failed.append(set())

    @property
    def failed(self) -> set[int]:
        """The numbers of programs without results; not an attribute, whose changes the compiler undoes or copies."""
        return _failed[self.number]

    def forward(self, *inputs: tuple[torch.Tensor, ...]) -> list[Any]:
        return [program(*own) for program, own in zip(self.programs, inputs, strict=True)]


class TolerantGroup(Group):
    """The same, but a program that cannot be traced is left out."""

    def forward(self, *inputs: tuple[torch.Tensor, ...]) -> list[Any]:
        results: list[Any] = []
        for place, (program, own) in enumerate(zip(self.programs, inputs, strict=True)):
            try:
                results.append([] if place in self.failed else program(*own))
            except Exception as error:
                # Control flow that depends on data must reach the compiler.
                if needs_rewriting(error):
                    raise
                self.failed.add(place)
                results.append([])
        return results
