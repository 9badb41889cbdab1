"""The options of a compilation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .byte_sizes import parse_bytes
from .errors import ArgumentTypeError, ArgumentValueError
from .pipeline import PARTITION, Pipeline, default

_PLANS, _MOST_PLANS = 8, 64


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of :func:`disc.compile`. An unknown one is a TypeError."""

    threads: int | None = None
    """Threads of one call, the caller's included; None means every core this process may use."""
    target: str | None = None
    """The target: one of :func:`disc.targets.names`, perhaps with chips (``"cuda:sm_90"``). None means the device of
    the model's parameters for :func:`disc.compile`, else ``"cpu"``."""
    cpu: str | None = None
    """Compile for this kind of CPU, named as for clang's ``-march`` (``"x86-64-v3"``); None means for this machine."""
    stop_after: str | None = None
    """Stop after this stage: the model then has IR and cannot be called."""
    keep_module: bool = True
    """Whether the compiled model keeps the module that was compiled. Its ``state_dict()``, ``load_state_dict()`` and
    changed weights need the module. False: a module that nothing else keeps is freed, so that weights which are stored
    in another layout for the code exist once."""
    dump_ir: str | os.PathLike[str] | None = None
    """A folder that gets the IR after each stage, and the LLVM IR and assembly. The IR is then verified after each
    pass, otherwise after each stage."""
    profile: bool | Literal["jitdump"] = False
    """Tell ``perf`` the names of kernels, through /tmp/perf-<pid>.map, and debuggers such as gdb their names and the
    lines of the model's code that they come from. ``"jitdump"`` also writes the code for ``perf inject --jit``, to a
    folder in ``$JITDUMPDIR/.debug/jit`` (by default in the home folder). Results and speed stay the same."""
    reproducer_dir: str | os.PathLike[str] | None = None
    """Where a failing stage leaves its reproducer; None means the folder for temporary files."""
    progress: bool | None = None
    """Show the stages on stderr; None means if that is a terminal."""
    opt_level: int = 3
    """LLVM's optimisation level, 0 to 3."""
    code_cache: str | os.PathLike[str] | Literal[False] | None = None
    """The folder that caches compiled models, of this process and others, without weights. An entry is found by the
    imported model, the CPU and the build of DISC. None means ``$DISC_CODE_CACHE`` if that is set (empty: no
    cache), else ``$XDG_CACHE_HOME/disc/code``, which is ``~/.cache/disc/code`` by default. False means no cache. A
    folder that other users may write to is not used."""
    code_cache_limit: int = 1 << 30
    """The most bytes that the folder may take; entries that were not used for longest are removed first."""
    precision: Literal["f32", "bf16"] = "f32"
    """``"bf16"`` keeps the f32 weights of products as bf16 (each rounded by at most 2**-8 of its value), in half the
    memory. Where the CPU multiplies bf16 (AMX, AVX512-BF16), activations of these products are rounded too; elsewhere
    weights are widened as they are read, and products stay f32. With AMX this holds for convolutions, too, except
    depthwise ones; without it they stay f32. Sums are f32 everywhere. Attention stays f32.
    Weights that are codes of 8 or 4 bits stay codes; with AMX, products of many rows round their values to bf16."""
    winograd: bool = True
    """Convolutions by 3 x 3 kernels in fewer multiplications (Winograd's), where that is faster. Rounding differs, by
    no more than that of other orders of summation, and an infinite or NaN input spreads to all results of the 2 x 2
    blocks that it meets."""
    sanitize: bool = False
    """Check memory accesses while the model runs, to find bugs in DISC: kernels check every access against the bounds
    of the buffer, temporaries and outputs are surrounded by red zones, and memory that has not been written is filled
    with NaNs. A violation raises :class:`disc.SanitizerError`. Code takes about twice as long. The compiler verifies
    the IR after each pass. For CPUs."""
    memory_budget: int | str | None = None
    """A limit for what calls of the model hold at once besides weights and the caller's tensors: bytes, or text such as
    ``"512MiB"``. :meth:`disc.Model.set_memory_budget` changes it. For a library it is the default, which ``disc.load``
    and ``disc_options`` can change. None: no limit."""
    memory_plans: int | None = None
    """The number of additional plans of the host code, which recompute values instead of keeping them; a memory budget
    selects one for each call. None means 8 with a ``memory_budget``, else 0. Plans share kernels, so each adds a little
    code."""
    backends: Sequence[Any] = ()
    """Back ends of others that may compile parts of a PyTorch model, in order of precedence: names of installed ones
    (:func:`disc.backends.available`), or objects or subclasses of :class:`disc.backends.Backend`."""
    pipeline: Pipeline | None = None
    """The stages; None means ``disc.pipeline.default(target)``."""

    def __post_init__(self) -> None:
        if self.threads is not None and (not isinstance(self.threads, int) or not 1 <= self.threads <= 4096):
            raise ArgumentValueError(f"threads: expected None or a number from 1 to 4096, got {self.threads!r}")
        if self.profile not in (False, True, "jitdump"):
            raise ArgumentValueError(f"profile: expected False, True or 'jitdump', got {self.profile!r}")
        if self.opt_level not in (0, 1, 2, 3):
            raise ArgumentValueError(f"opt_level: expected 0, 1, 2 or 3, got {self.opt_level!r}")
        if self.code_cache is True or not isinstance(self.code_cache, (str, os.PathLike, bool, type(None))):
            raise ArgumentTypeError(f"code_cache: expected a folder, False or None, got {self.code_cache!r}")
        if not isinstance(self.code_cache_limit, int) or not 0 <= self.code_cache_limit < 1 << 63:
            raise ArgumentValueError(f"code_cache_limit: expected a number of bytes, got {self.code_cache_limit!r}")
        if self.memory_budget is not None:
            object.__setattr__(self, "memory_budget", parse_bytes(self.memory_budget))
        if self.memory_plans is not None and not (
            type(self.memory_plans) is int and 0 <= self.memory_plans <= _MOST_PLANS
        ):
            raise ArgumentValueError(
                f"memory_plans: expected None or a number up to {_MOST_PLANS}, got {self.memory_plans!r}"
            )
        if self.precision not in ("f32", "bf16"):
            raise ArgumentValueError(f"precision: expected 'f32' or 'bf16', got {self.precision!r}")
        if self.pipeline is not None and not isinstance(self.pipeline, Pipeline):
            raise ArgumentTypeError(f"pipeline: expected a disc.pipeline.Pipeline, got {type(self.pipeline).__name__}")
        if self.stop_after is not None and self.stop_after != PARTITION:
            self.stages.until(self.stop_after)

    @property
    def stages(self) -> Pipeline:
        """The pipeline to run, before ``stop_after`` cuts it."""
        pipeline = self.pipeline if self.pipeline is not None else default(self.target or "cpu")
        if not self.winograd and pipeline.has("disc-schedule-winograd"):
            pipeline = pipeline.without("disc-schedule-winograd")
        plans = self.memory_plans
        if plans is None:
            plans = 0 if self.memory_budget is None else _PLANS
        if plans and pipeline.has("disc-memory-assign-buffers"):
            pipeline = pipeline.insert_pass_before(
                "disc-memory-assign-buffers", f"disc-memory-plan-budget{{plans={plans}}}"
            )
        if self.sanitize:
            pipeline = self._sanitized(pipeline)
        if self.profile and pipeline.has("disc-codegen-verify"):
            pipeline = pipeline.insert_pass_before("disc-codegen-verify", "disc-add-line-tables")
        if self.precision == "f32":
            return pipeline
        if not pipeline.has("disc-schedule-pack-weights"):
            raise ArgumentValueError(
                f"precision={self.precision!r} is for CPUs: no stage has a pass 'disc-schedule-pack-weights' "
                f"for target {pipeline.target!r}"
            )
        for name in ("disc-schedule-winograd", "disc-schedule-pack-weights"):
            if pipeline.has(name):
                pipeline = pipeline.configure(name, f"precision={self.precision}")
        return pipeline

    @staticmethod
    def _sanitized(pipeline: Pipeline) -> Pipeline:
        if pipeline.has("disc-gpu-emit-kernels"):
            raise ArgumentValueError(
                f"sanitize=True is for CPUs, not for target {pipeline.target!r}; "
                "the targets 'cuda-emulated' and 'rocm-emulated' check the kernels of GPUs"
            )
        for name in ("disc-memory-plan-arena", "disc-memory-convert-to-rt"):
            pipeline = pipeline.configure(name, "sanitize=true")
        return pipeline.insert_pass_before("disc-codegen-verify", "disc-cpu-check-accesses")
