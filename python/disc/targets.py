"""The kinds of machines that models are compiled for.

``"cpu"`` is this machine; others (``"aarch64-linux-gnu"``) are targets of libraries. A device's kernels are compiled
for kinds of chips, which may be named after a colon::

    disc.targets.names()  # ('aarch64-linux-gnu', ..., 'cpu', 'cuda', 'cuda-emulated', 'null', 'rocm', 'rocm-emulated')
    disc.compile(model, args, target="cuda:sm_90")

To add a target, write a :class:`Target` and declare it as an entry point of the group ``disc.targets``, or pass it to
:func:`register`; docs/howto/adding-a-target.md builds one.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache

from . import pipeline
from .errors import ArgumentTypeError, ArgumentValueError
from .pipeline import Pipeline
from .toolchain import find_ptxas


class Target(ABC):
    """A kind of machine. Whatever else differs between machines is in the passes of its pipeline."""

    name: str
    """Its name for users: a word that may contain hyphens."""

    chips: tuple[str, ...] = ()
    """Kinds of chips that code is made for where the user names none."""

    machine: str = ""
    """Whose CPU runs what does not run on a device: the name of another machine, or "" for one like this."""

    tensors: str = ""
    """The device of its models' tensors, named as in disc.h (``"kDLCUDA"``); "" for the CPU."""

    def cpus(self, chips: Sequence[str]) -> tuple[str, ...]:
        """The kinds of that CPU that libraries hold code for, where the user names none."""
        return ("host",)

    @abstractmethod
    def pipeline(self, chips: Sequence[str]) -> Pipeline:
        """The stages of a model. ValueError for a chip that the target does not know."""

    def missing(self) -> str:
        """What is missing to run its models in this process; "" if nothing is."""
        return ""


@dataclasses.dataclass(frozen=True)
class Choice:
    """A target, with the chips that it is to make code for."""

    target: Target
    chips: tuple[str, ...]

    @property
    def pipeline(self) -> Pipeline:
        """The stages of a model."""
        return self.target.pipeline(self.chips)


class Cpu(Target):
    """The host's own CPU."""

    name = "cpu"

    def pipeline(self, chips: Sequence[str]) -> Pipeline:
        """The pipeline of all CPUs."""
        if chips:
            raise ArgumentValueError(
                f"target 'cpu' takes no chips, got {', '.join(chips)}; options have 'cpu' for its kind"
            )
        return pipeline.cpu()


@dataclasses.dataclass(frozen=True)
class Machine(Target):
    """A machine with another kind of CPU, which libraries are made for. Its chips are CPUs, as LLVM calls them."""

    name: str
    chips: tuple[str, ...] = ("generic",)

    @property
    def machine(self) -> str:  # type: ignore[override]
        """Itself."""
        return self.name

    def cpus(self, chips: Sequence[str]) -> tuple[str, ...]:
        """Its chips."""
        return tuple(chips)

    def pipeline(self, chips: Sequence[str]) -> Pipeline:
        """The pipeline of all CPUs."""
        return pipeline.cpu()

    def missing(self) -> str:
        """The message if this machine is of another kind."""
        from . import _native

        own = _native.host_target()["machine"]
        return "" if own == self.name else f"this machine is {own}: disc.aot_compile makes libraries for {self.name}"


@dataclasses.dataclass(frozen=True)
class Gpu(Target):
    """A GPU whose driver loads images of kernels."""

    name: str
    device: str
    warp: int
    known: str
    """The prefix of the names of its chips."""
    tensors: str
    chips: tuple[str, ...]

    def pipeline(self, chips: Sequence[str]) -> Pipeline:
        """Grids of blocks, and images for the chips."""
        for chip in chips:
            if not chip.startswith(self.known):
                raise ArgumentValueError(
                    f"target {self.name!r}: no chip is called {chip!r}; names are like {self.chips[0]!r}"
                )
        code = pipeline.DEVICE_CODE[self.name]
        return pipeline.blocks(
            self.name, self.device, warp=self.warp, chips=chips, code=code, matrix_unit=self.has_matrix_unit(chips)
        )

    def has_matrix_unit(self, chips: Sequence[str]) -> bool:
        """Whether all of the chips have the instructions of lib/Target/GPU/MatrixUnit.h."""
        return False

    def missing(self) -> str:
        """The driver, or a device."""
        from . import _runtime

        return _runtime.device_missing(self.device)


class Cuda(Gpu):
    """NVIDIA's. Their assembler makes cubins where it is found."""

    def has_matrix_unit(self, chips: Sequence[str]) -> bool:
        """From compute capability 8.0 on."""
        numbers = [chip.removeprefix("sm_").rstrip("af") for chip in chips]
        # The serializer reports other names, with a list of the chips that exist.
        return all(number.isdecimal() and int(number) >= 80 for number in numbers)

    def pipeline(self, chips: Sequence[str]) -> Pipeline:
        """Those of a GPU, with the assembler."""
        stages, ptxas = super().pipeline(chips), find_ptxas()
        return stages.configure("disc-nvvm-serialize", f"ptxas={ptxas}") if ptxas else stages


@dataclasses.dataclass(frozen=True)
class Emulated(Target):
    """The kernels of a GPU, run on the CPU, thread by thread."""

    name: str
    warp: int
    chips: tuple[str, ...] = ("checked",)

    def pipeline(self, chips: Sequence[str]) -> Pipeline:
        """Grids of blocks, as functions of the host."""
        unknown = [chip for chip in chips if chip not in ("checked", "fast")]
        if unknown or len(chips) > 1:
            raise ArgumentValueError(f"target {self.name!r} is 'checked' or 'fast', not {', '.join(chips)}")
        check = "true" if chips == ("checked",) else "false"
        is_nvidia = self.name == "cuda-emulated"
        code = ("disc-lower-math" + "{nvidia=true}" * is_nvidia, f"disc-emulate-kernels{{check={check}}}")
        return pipeline.blocks(self.name, "emulated", warp=self.warp, chips=(), code=code, matrix_unit=is_nvidia)


class Null(Target):
    """A device that runs nothing: what a call costs without its kernels."""

    name = "null"

    def pipeline(self, chips: Sequence[str]) -> Pipeline:
        """Grids of blocks, without their code."""
        if chips:
            raise ArgumentValueError(f"target 'null' has no chips, got {', '.join(chips)}")
        return pipeline.blocks(self.name, "null", warp=32, chips=(), code=("disc-drop-kernels",))


_targets: dict[str, Target] = {}


def register(target: Target) -> None:
    """Makes a target known by its name. ValueError if the name is taken."""
    if not isinstance(target, Target):
        raise ArgumentTypeError(f"expected a disc.targets.Target, got {type(target).__name__}")
    if target.name in _targets:
        raise ArgumentValueError(f"a target {target.name!r} is known already")
    _targets[target.name] = target


for _target in (
    Cpu(),
    Machine("aarch64-linux-gnu"),
    Machine("arm-linux-gnueabihf"),
    Machine("x86_64-linux-gnu", ("x86-64",)),
    Cuda("cuda", "cuda", 32, "sm_", "kDLCUDA", ("sm_80", "sm_90")),
    Gpu("rocm", "rocm", 64, "gfx9", "kDLROCM", ("gfx90a", "gfx942")),
    Emulated("cuda-emulated", 32),
    Emulated("rocm-emulated", 64),
    Null(),
):
    register(_target)


@cache
def _load_entry_points() -> None:
    for entry in importlib.metadata.entry_points(group="disc.targets"):
        register(entry.load()())


def names() -> tuple[str, ...]:
    """The targets that there are."""
    _load_entry_points()
    return tuple(sorted(_targets))


def find(text: str) -> Choice:
    """The target for ``"name"`` or ``"name:chip,chip"``. ValueError if it does not exist."""
    name, colon, chips = text.partition(":")
    if name not in names():
        raise ArgumentValueError(f"no target {name!r}; the targets are: {', '.join(names())}")
    target = _targets[name]
    chosen = tuple(c.strip() for c in chips.split(",")) if colon else target.chips
    if not all(chosen):
        raise ArgumentValueError(f"target {text!r} names an empty chip")
    return Choice(target, chosen)


def resources(ir: str, target: str) -> dict[str, dict[str, dict[str, int]]]:
    """The resources that each kernel needs on each chip: registers, stack, spills, shared memory.

    Args:
        ir: a model after the memory stage, ``model.ir("memory")``.
        target: a GPU that the model was compiled for. Without ptxas nothing is known of NVIDIA's chips.
    """
    from . import _native

    passes = find(target).pipeline["codegen"].passes
    ends = [i for i, name in enumerate(passes) if name.split("{")[0].endswith("-serialize")]
    if not ends:
        raise ArgumentValueError(f"target {target!r} makes no images of kernels")
    module = _native.Module.parse(ir)
    module.run(f"builtin.module({','.join(passes[: ends[0] + 1])})")
    return {chip: kernels for chip, kind, _, kernels in module.images() if kind == "binary"}
