"""The native part of disc: MLIR modules, code generation, execution."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
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

    def run(self, pipeline: str, *, verify_each: bool = False) -> None:
        """Runs a textual pass pipeline in place, verified after each pass or at the end; raises PipelineError."""

    def text(self, *, generic: bool = False, locations: bool = False) -> str:
        """Prints the module."""

    def arena(self, function: str, symbols: Mapping[str, int]) -> dict[str, Any]:
        """What an entry's arena holds at some values of the symbols.

        Bytes in all (`arena`), the largest set alive at one time (`live`), how many results were computed `in_place`,
        and (offset, bytes, first step, last step) of each of the `temporaries`. ValueError if a symbol is missing.
        """

    def plans(self, symbols: Mapping[str, int]) -> dict[str, Any]:
        """The plans of the entry `main` at some values of the symbols.

        (function, nanoseconds more than the first) of each (`plans`), the first one's nanoseconds (`cost`), bytes of
        results whose sizes are known before the call (`results`), of the scratch of one thread (`scratch`), and whether
        buffers are a device's (`on_device`).
        """

    def interface(self) -> dict[str, Any] | None:
        """What the model takes and gives, after the memory stage, else None.

        `inputs` and `outputs` (name, dtype, dims as texts), `symbols` (name, min, max or None, divisor), and the names
        of the parameters that `init` and `main` read.
        """

    def kernels(
        self, symbols: Mapping[str, int]
    ) -> list[tuple[str, str, str, tuple[str, ...], dict[str, int], int | None, int | None, int | None]]:
        """The kernels after the memory stage, in program order.

        Tuples (name, kind, reason, "file:line" of all operations, launches by entry, scalar operations, bytes read,
        bytes written), at some values of the symbols. Numbers that depend on a symbol without a value are None.
        """

    def guards(self) -> list[tuple[str, str, str, str, str]]:
        """The guards after the shape stage: tuples (left side, relation, right side, message, "file:line").

        Relations are "eq", "ne", "le", "lt", "ge", "gt" and "divisible".
        """

    def images(self) -> list[tuple[str, str, bytes, dict[str, dict[str, int]]]]:
        """The images for a device, once there are some.

        Tuples (chip, "binary" or "text", bytes, what each kernel needs of the chip by the kernel's name).
        """

    def set_target(self, cpu: str, machine: str = "") -> None:
        """Sets `disc_plan.target` to a machine ("aarch64-linux-gnu") of which only the kind of CPU is known.

        "" is one like this, of which "host" is this very CPU. Raises ValueError for an unknown name.
        """

    def composites(self) -> list[tuple[int, str, tuple[str, str] | None, list[tuple[str, str, str]]]]:
        """The composites of the input IR, in program order.

        Tuples (number, name, (back end, pattern) of the owner or None, refusals as (back end, pattern, reason)).
        """

    def regions(
        self,
    ) -> list[
        tuple[
            int,
            str,
            list[tuple[int, str, int]],
            list[tuple[int, int, str | None, list[str]]],
            list[tuple[int, int, list[str]]],
        ]
    ]:
        """The regions after the partition, in program order.

        Tuples (number, back end, composites as (number, pattern, match), operands as (composite, which of its inputs,
        name of the parameter or None, dims), results as (composite, which of its results, dims)).
        """

    def veto_region(self, region: int, reason: str) -> None:
        """Leaves a region to the host."""

    def compile_region(
        self,
        region: int,
        *,
        table: str,
        description: str,
        constants: Sequence[str],
        numbers: Sequence[str],
        when: Sequence[str],
    ) -> None:
        """Leaves a region to the code whose table of functions has this symbol.

        `constants` are names of parameters, `numbers` and `when` texts of expressions: values that the code gets, and
        that must be at least 0.
        """

    def needs(self) -> dict[str, str]:
        """What a machine needs to run the module's code: `machine`, `cpu`, and the `features` that it must have."""

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

    def restore(self, parameters: Sequence[Any], packed: Sequence[Any]) -> None:
        """Takes the kept() parameters and the globals() of an executable of the same objects(), in place of init().

        Parameters come in the order of info()['parameters'], None for those that are not kept.
        """

    def run(self, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Runs the model on a tuple or list of tensors; thread-safe."""

    def watch(
        self,
        versions: Sequence[tuple[int, int]],
        storages: Sequence[tuple[int, int]],
        places: Sequence[tuple[Callable[[], Any], tuple[Any, ...], Any]],
        changed: Callable[[Executable], None],
    ) -> None:
        """Pairs of an address and the word (of 32 bits, or a pointer) that is stored there now.

        ``places`` are a weak reference to an object, the keys that lead from its attributes to a value, and that value.
        Before a run that finds another word or value, `changed` is called with this object; it must keep the memory
        alive.
        """

    def info(self) -> dict[str, Any]:
        """Inputs and outputs (name, dtype, dims), symbols (name, min, max), parameter names."""

    def globals(self) -> list[np.ndarray]:
        """What init() computed: the bytes of each global, as arrays that keep this object alive."""

    def kept(self) -> list[tuple[str, str, tuple[int, ...], np.ndarray]]:
        """The parameters that runs read: name, dtype, shape, and bytes in an array that keeps this object alive."""

    def objects(self) -> list[bytes]:
        """The machine code, as ELF objects that link() takes."""

    def times(self) -> dict[str, float]:
        """Seconds of code generation, by step."""

    def seed(self, seed: int) -> None:
        """What random numbers follow from."""

    def set_memory_budget(self, bytes: int, fail: bool = False) -> None:
        """The most bytes that all calls may hold at once; 0: no limit. A call that there is no room for at the moment
        waits, or fails with `fail`."""

    def memory(self) -> MemoryUsage: ...
    def reset_memory_peak(self) -> None: ...
    def start_profile(self) -> None:
        """Records every launch from here on."""

    def stop_profile(self) -> list[tuple[str, str, str, int, int, int]]:
        """The launches since start_profile: kernel, kind, source, begin and end in ns, tasks."""

    def device_counters(self) -> dict[str, int]:
        """How often the device was asked to launch, copy, ..., by all models of the process; empty on the CPU."""

    @property
    def device(self) -> str:
        """Where tensors must be: "cpu", "cuda:0", ..."""

    @property
    def threads(self) -> int:
        """Threads that a call may use."""

class MemoryUsage:
    """How much memory a model holds, in bytes, as its budget counts it."""

    @property
    def budget(self) -> int:
        """0: none."""

    @property
    def held(self) -> int:
        """By calls, or kept for later ones."""

    @property
    def peak(self) -> int:
        """The most at once since reset_memory_peak()."""

    @property
    def allocations(self) -> int: ...
    @property
    def other_plans(self) -> int:
        """Calls that used another plan than the first."""

    @property
    def last_plan(self) -> int:
        """-1: no call has chosen one."""

class ArtifactBuilder:
    """Gathers the parts of an ahead-of-time library."""

    def __init__(self, name: str) -> None: ...
    def add_variant(
        self,
        module: Module,
        cpu: str,
        *,
        kind: str = "object",
        opt_level: int = 3,
        dump_prefix: str = "",
        cache_folder: str = "",
        cache_limit: int = 0,
    ) -> dict[str, float]:
        """Compiles a module that is in the LLVM dialect, as the code for `cpu`, to an "object", "asm" or "llvm".

        Gives the seconds by step. The variants added first are preferred.
        """

    def text(self, variant: int) -> str:
        """The assembly or LLVM IR of a variant."""

    def set_packed(self, variant: int) -> None:
        """Says that the weights hold what the variant's init would compute."""

    def write(
        self,
        output: str,
        *,
        kind: str,
        runtime: Sequence[str],
        weights: str = "",
        weights_file: str = "",
        objects: Sequence[str] = (),
        libraries: Sequence[str] = (),
    ) -> None:
        """Links a "shared" or "static" library or an "obj", with the archives of the runtime.

        `weights` is a safetensors file, which goes into the library unless `weights_file` names it as one beside it.
        `objects` and `libraries` are files of back ends.
        """

def noted_attribute(original: Any, getter: Callable[[Any], Any]) -> Any:
    """An attribute like `original`, of the same C type, that `getter` reads."""

def load_init(
    module: Module, tensor_type: type, *, addresses: Mapping[str, int] = ..., owner: Any = None
) -> Executable:
    """Loads what lays out the weights of a module, in the LLVM dialect, for whatever target; it can't run().

    For `addresses` and `owner` see jit().
    """

version: int
"""DISC_VERSION of disc.h."""

def opt(arguments: Sequence[str]) -> int:
    """Runs disc-opt with these arguments, the program's name first; returns its exit status. Once per process."""

def memory_taken(bytes: int, on_device: bool) -> int:
    """How much an allocation of the runtime's takes, in whole pages or cache lines."""

def host_target() -> dict[str, Any]:
    """The machine this process runs on, as the driver describes it."""

def link(
    objects: Sequence[bytes], tensor_type: type, *, threads: int = 0, symbols: int = 0, device: int = 0
) -> Executable:
    """Loads what Executable.objects() returns."""

def find_cached(folder: str, limit: int, key: str) -> list[bytes] | None:
    """What is stored under a key in a folder of cached code."""

def store_cached(folder: str, limit: int, key: str, contents: Sequence[bytes]) -> None:
    """Stores contents under a key in a folder of cached code, unless they are larger than its limit."""

def missing_features(features: str) -> str:
    """Those of a list of CPU features, "avx,avx2", that this machine lacks."""

def jit(
    module: Module,
    tensor_type: type,
    *,
    threads: int = 0,
    symbols: int = 0,
    opt_level: int = 3,
    dump_prefix: str = "",
    device: int = 0,
    cache_folder: str = "",
    cache_limit: int = 0,
    addresses: Mapping[str, int] = ...,
    owner: Any = None,
) -> Executable:
    """Compiles a module that is in the LLVM dialect and loads it. `threads` = 0 means every core.

    Objects are looked up in `cache_folder` first and stored there, unless it is empty. `addresses`: of symbols that the
    code refers to, which `owner` keeps alive.
    """
