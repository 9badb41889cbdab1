"""The native part of disc: MLIR modules, code generation, execution."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

class PipelineError(Exception):
    """A pipeline did not parse, or one of its passes failed."""

    diagnostics: list[tuple[str, str, str, int, int]]
    """Tuples (severity, message, file, line, column)."""
    failed_pass: str
    """Command-line name of the pass, or ''."""

class Module:
    """An MLIR module in a context of its own."""

    @staticmethod
    def parse(text: str) -> Module:
        """Parses MLIR text; raises PipelineError."""

    def run(self, pipeline: str) -> None:
        """Runs a textual pass pipeline in place; raises PipelineError."""

    def text(self, *, generic: bool = False, locations: bool = False) -> str:
        """Prints the module."""

    def arena(self, function: str, symbols: Mapping[str, int]) -> dict[str, Any]:
        """What an entry's arena holds at some values of the symbols.

        Bytes in all (`arena`), the largest set alive at one time (`live`), how many results were computed `in_place`,
        and (offset, bytes, first step, last step) of each of the `temporaries`. ValueError if a symbol is missing.
        """

    def set_host_target(self, cpu: str = "") -> None:
        """Sets `disc_plan.target` to the machine this process runs on, or to that machine as if it were only a `cpu`.

        Raises ValueError for a CPU that it is not.
        """

class Executable:
    """Compiled code, loaded."""

    def init(self, parameters: Sequence[Any]) -> None:
        """Binds the parameters and does the work that depends on them alone.

        They come in the order of info()['parameters']. Once.
        """

    def run(self, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Runs the model on a tuple or list of tensors; thread-safe."""

    def info(self) -> dict[str, Any]:
        """Inputs and outputs (name, dtype, dims), symbols (name, min, max), parameter names."""

    def times(self) -> dict[str, float]:
        """Seconds of code generation, by step."""

    def start_profile(self) -> None:
        """Records every launch from here on."""

    def stop_profile(self) -> list[tuple[str, str, str, int, int, int]]:
        """The launches since start_profile: kernel, kind, source, begin and end in ns, tasks."""

    @property
    def threads(self) -> int:
        """Threads that a call may use."""

def host_target() -> dict[str, Any]:
    """The machine this process runs on, as the driver describes it."""

def jit(
    module: Module,
    tensor_type: type,
    *,
    threads: int = 0,
    profile: bool = False,
    opt_level: int = 3,
    dump_prefix: str = "",
) -> Executable:
    """Compiles a module that is in the LLVM dialect and loads it. `threads` = 0 means every core."""
