"""DISC ahead of time: what a process pays that does not hold the compiler. Not a peer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from ..workloads import Shape
from ..workloads.base import flat
from .base import Context, Engine
from .disc import cpu


class Peer(Engine):
    """A library with its weights, through `disc.load`."""

    title = "DISC library"
    packages = ("disc-compiler",)
    imports = ("disc.library",)
    environment = ".venv"

    @classmethod
    def artifact(cls, context: Context) -> Path:
        """The library, whose name changes with the compiler: versions do not while it is worked on."""
        import disc

        folder = Path(disc.__file__).parent
        files = [*sorted(folder.rglob("*.py")), *sorted(folder.glob("_native*.so")), *sorted(folder.glob("lib/*"))]
        digest = hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()
        return context.cache / f"lib{context.stem}-{digest[:12]}.so"

    @classmethod
    def prepare(cls, context: Context) -> None:
        """Compiles it for this machine."""
        import disc

        workload = context.workload
        disc.aot_compile(
            workload.build(),
            workload.example(),
            dynamic_shapes=workload.dynamic_shapes(),
            output=cls.artifact(context),
            name=context.name,
            cpu=cpu(context),
        )

    def compile(self) -> None:
        """Loads the library; its file is compared with its checksum."""
        import disc

        self.library = disc.load(self.artifact(self.context), threads=self.context.threads)

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call."""
        return partial(self.library, *inputs)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """As they are."""
        return flat(result)
