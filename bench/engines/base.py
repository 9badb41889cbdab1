"""What an engine is."""

from __future__ import annotations

import importlib
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from .. import isa
from ..workloads import Shape, Workload

NATIVE = "native"
ISAS = (NATIVE, *isa.LEVELS)
"""What `--isa` takes: all of the machine's instructions, or none beyond these."""


class NotSupported(Exception):
    """The engine cannot run this workload, and why."""


@dataclass(frozen=True)
class Context:
    """What an engine is to compile."""

    workload: Workload
    name: str
    """The workload's, to name files with."""
    threads: int
    cache: Path
    """Where `prepare` leaves what it made, for this run and later ones."""
    fingerprint: str
    """Changes with the workload's code."""
    variant: str = ""
    """One of the engine's variants; empty if it has only one."""
    isa: str = NATIVE
    """The instructions that engines may use: one of `ISAS`."""

    @property
    def stem(self) -> str:
        """The start of the names of files that hold code: it is for one variant, instruction set and thread count."""
        parts = [self.name, self.variant, "" if self.isa == NATIVE else self.isa, f"t{self.threads}"]
        return ".".join(part for part in parts if part)

    @property
    def cpu(self) -> str:
        """The CPU to compile for, named as for clang's `-march`."""
        return "native" if self.isa == NATIVE else isa.LEVELS[self.isa]


class Engine(ABC):
    """Compiles a workload and calls it. One object lives in one process, which runs nothing else.

    `prepare` runs in a process of its own, and only when its file is not in the cache: what an ahead-of-time compiler
    or an exporter leaves in memory is no part of the engine that is measured.
    """

    title: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    """The packages whose versions are stated."""
    tools: ClassVar[tuple[str, ...]] = ("torch",)
    """The packages that `prepare` uses: its file is made again when one of them changes."""
    imports: ClassVar[tuple[str, ...]] = ()
    """The modules that belong to the engine rather than to a model: their memory is not counted."""
    quick: ClassVar[bool] = False
    """Whether it compiles fast enough for a quick run."""
    recompiles: ClassVar[bool] = False
    """Whether a first call at a shape may compile: then that is part of the compile time."""
    precisions: ClassVar[tuple[str, ...]] = ("f32",)
    """What the engine can do of `Workload.precision`."""
    any_allocator: ClassVar[bool] = True
    """Whether it runs with another allocator in the place of the C library's."""
    environment: ClassVar[str] = ".venv-bench"
    """The folder of the virtual environment it lives in."""

    def __init__(self, context: Context):
        self.context = context

    @classmethod
    def version(cls) -> str:
        """The versions of its packages."""
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in cls.packages)

    @classmethod
    def variants(cls, context: Context) -> tuple[str, ...]:
        """The ways to prepare or call the engine on this workload; the bench measures all and keeps the fastest."""
        return ("",)

    @classmethod
    def artifact(cls, context: Context) -> Path | None:
        """The file that `prepare` makes, if there is something to prepare."""
        return None

    @classmethod
    def prepare(cls, context: Context) -> float | None:
        """Makes the artifact; returns the seconds that files took to make which it found made already."""
        raise NotImplementedError

    def start(self) -> None:
        """Imports the engine, before memory is counted."""
        for package in self.imports:
            importlib.import_module(package)

    @abstractmethod
    def compile(self) -> None:
        """Makes the model ready to be called at every shape. Timed."""

    @abstractmethod
    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """The call that is timed: from inputs in memory to outputs in memory.

        Whatever the engine lets a caller do once for many calls, such as wrapping inputs or allocating outputs, belongs
        here and is not timed.
        """

    @abstractmethod
    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """What a call returned, as tensors."""
