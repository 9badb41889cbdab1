"""The compiler's stages as data.

A :class:`Pipeline` is an ordered list of :class:`Stage`, each an MLIR textual pass pipeline that ``disc-opt`` can
run. Both are immutable: every change returns a new pipeline, to be passed to ``disc.Options(pipeline=...)``::

    pipeline = disc.pipeline.default("cpu")
    print(pipeline)
    pipeline["fusion"].passes
    pipeline.until("fusion")
    pipeline.replace("library", "disc-library-verify")
    pipeline.insert_after("fusion", disc.pipeline.Stage("mine", ("canonicalize", "cse")))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .errors import ArgumentTypeError, ArgumentValueError

IMPORT = "import"
"""The stage before the first of every pipeline: PyTorch to DISC input IR."""

PARTITION = "partition"
"""The stage that divides a model among back ends of others; only with these."""


@dataclass(frozen=True)
class Stage:
    """One stage: a name and passes, each as ``disc-opt`` spells it, options included."""

    name: str
    passes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ArgumentValueError(f"a stage's name is one word, not {self.name!r}")
        if isinstance(self.passes, str) or not all(isinstance(p, str) for p in self.passes):
            raise ArgumentTypeError(f"passes of stage {self.name!r}: expected a sequence of strings")
        object.__setattr__(self, "passes", tuple(self.passes))

    @property
    def text(self) -> str:
        """The stage as ``disc-opt --pass-pipeline=...`` takes it."""
        return f"builtin.module({','.join(self.passes)})"

    def without(self, *names: str) -> Stage:
        """The stage without the passes of these names."""
        missing = [n for n in names if not any(_pass_name(p) == n for p in self.passes)]
        if missing:
            raise ArgumentValueError(
                f"stage {self.name!r} has no pass {missing[0]!r}; it has: {', '.join(self.passes)}"
            )
        return replace(self, passes=tuple(p for p in self.passes if _pass_name(p) not in names))

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def _split(text: str) -> tuple[str, ...]:
    """The passes of ``a,b{x=1,y=2},func.func(c,d)``."""
    passes, depth, begin = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "({") - (char in ")}")
        if char == "," and depth == 0:
            passes.append(text[begin:i])
            begin = i + 1
    return tuple(p.strip() for p in [*passes, text[begin:]] if p.strip())


def _pass_name(text: str) -> str:
    """``canonicalize`` for ``canonicalize{max-iterations=1}``; ``func.func(cse)`` remains as it is."""
    return text.split("{", 1)[0]


@dataclass(frozen=True)
class Pipeline:
    """The ordered stages for one target."""

    target: str
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        names = [IMPORT, *(stage.name for stage in self.stages)]
        for name in names:
            if names.count(name) > 1:
                raise ArgumentValueError(f"two stages are called {name!r}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return tuple(stage.name for stage in self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def __getitem__(self, name: str) -> Stage:
        return self.stages[self._index(name)]

    def __str__(self) -> str:
        return "\n".join(map(str, self.stages))

    def _repr_html_(self) -> str:
        rows = [(n, stage.name, ", ".join(stage.passes)) for n, stage in enumerate(self.stages, 1)]
        from . import tables  # disc-opt's tests load this file alone

        return tables.html(f"Pipeline for {self.target}", ("#", "stage", "passes"), rows, right=(0,))

    def until(self, name: str) -> Pipeline:
        """The stages up to and including this one; none for ``"import"``."""
        return self._with(() if name == IMPORT else self.stages[: self._index(name) + 1])

    def replace(self, name: str, stage: Stage | str) -> Pipeline:
        """This stage replaced, by another or by one of the same name with these passes (comma-separated text)."""
        index = self._index(name)
        if isinstance(stage, str):
            stage = Stage(name, _split(stage))
        return self._with(self.stages[:index] + (stage,) + self.stages[index + 1 :])

    def insert_before(self, name: str, stage: Stage) -> Pipeline:
        """A new stage before this one."""
        index = self._index(name)
        return self._with(self.stages[:index] + (stage,) + self.stages[index:])

    def insert_after(self, name: str, stage: Stage) -> Pipeline:
        """A new stage after this one, or first of all after ``"import"``."""
        index = 0 if name == IMPORT else self._index(name) + 1
        return self._with(self.stages[:index] + (stage,) + self.stages[index:])

    def without(self, name: str) -> Pipeline:
        """The pipeline without the pass of this name."""
        self._check_pass(name)
        return self._with(
            tuple(replace(s, passes=tuple(p for p in s.passes if _pass_name(p) != name)) for s in self.stages)
        )

    def has(self, name: str) -> bool:
        """Whether a stage has a pass of this name."""
        return any(_pass_name(p) == name for stage in self.stages for p in stage.passes)

    def configure(self, name: str, options: str) -> Pipeline:
        """The pipeline with these options (``"a=1 b=2"``) for the pass of this name."""
        self._check_pass(name)

        def configured(stage: Stage) -> Stage:
            return replace(
                stage, passes=tuple(f"{name}{{{options}}}" if _pass_name(p) == name else p for p in stage.passes)
            )

        return self._with(tuple(map(configured, self.stages)))

    def insert_pass_before(self, name: str, new: str) -> Pipeline:
        """The pipeline with another pass before the pass of this name."""
        self._check_pass(name)

        def extended(stage: Stage) -> Stage:
            pairs = ((new, p) if _pass_name(p) == name else (p,) for p in stage.passes)
            return replace(stage, passes=tuple(p for pair in pairs for p in pair))

        return self._with(tuple(map(extended, self.stages)))

    def with_backends(self, names: Sequence[str], merging: Sequence[str]) -> Pipeline:
        """The pipeline with the stage that divides a model among back ends of others.

        ``names`` are in order of precedence; ``merging`` are those whose regions may contain several matches.
        """
        listed = f"{{backends={','.join(names)}}}"
        partition = (
            f"disc-library-annotate{listed}",
            f"disc-library-merge{{backends={','.join(merging)}}}" if merging else "disc-library-merge",
            "disc-library-partition",
        )
        pipeline = self.insert_before("library", Stage(PARTITION, partition))
        pipeline = pipeline.replace("library", Stage("library", ("disc-library-select", *pipeline["library"].passes)))
        fusion = Stage("fusion", ("disc-fusion-lower-extern-calls", *pipeline["fusion"].passes))
        return pipeline.replace("fusion", fusion)

    def append(self, stage: Stage) -> Pipeline:
        """A new stage at the end."""
        return self._with((*self.stages, stage))

    def remove(self, name: str) -> Pipeline:
        """The pipeline without this stage."""
        index = self._index(name)
        return self._with(self.stages[:index] + self.stages[index + 1 :])

    def _check_pass(self, name: str) -> None:
        if not self.has(name):
            raise ArgumentValueError(f"no stage has a pass {name!r}")

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise ArgumentValueError(f"no stage {name!r}; the stages are: {', '.join((IMPORT, *self.names))}")
        return self.names.index(name)

    def _with(self, stages: tuple[Stage, ...]) -> Pipeline:
        return Pipeline(self.target, stages)


_CPU = Pipeline(
    "cpu",
    (
        Stage("shape", ("disc-shape-propagate", "disc-shape-discharge", "disc-shape-verify")),
        Stage("library", ("disc-library-verify",)),
        Stage(
            "fusion",
            (
                "disc-fusion-recognize-attention",
                "disc-fusion-group-queries",
                "disc-fusion-channels-last",
                "disc-fusion-fold-scales",
                "disc-fusion-raise-reshapes",
                "disc-fusion-fold-views",
                "disc-fusion-integer-products",
                "disc-fusion-integer-convolutions",
                "disc-fusion-form-kernels",
                "disc-fusion-merge-products",
                "disc-fusion-verify",
            ),
        ),
        Stage(
            "schedule",
            (
                "disc-schedule-winograd",
                "disc-schedule-hoist-parameters",
                "disc-schedule-pack-weights",
                "disc-schedule-fuse-rounding",
                "disc-schedule-kernels",
                "disc-schedule-verify",
            ),
        ),
        Stage(
            "memory",
            (
                "disc-memory-outline-kernels",
                "disc-memory-hoist-updates",
                "disc-memory-assign-buffers",
                "disc-memory-plan-arena",
                "disc-memory-convert-to-rt",
                "disc-memory-check-sizes",
                "disc-memory-verify",
            ),
        ),
        Stage(
            "codegen",
            (
                "disc-cpu-emit-kernels",
                "disc-host-lower",
                # Repeated address arithmetic of one kernel body is one value from here on.
                "canonicalize",
                "cse",
                "disc-lower-math",
                "convert-vector-to-llvm",
                "convert-scf-to-cf",
                "expand-strided-metadata",
                "lower-affine",
                "convert-arith-to-llvm",
                "convert-index-to-llvm",
                "convert-math-to-llvm",
                "convert-func-to-llvm",
                "convert-cf-to-llvm",
                "reconcile-unrealized-casts",
                "canonicalize",
                "disc-codegen-verify",
            ),
        ),
    ),
)


def _device_code(lower: str, serialize: str, math: str = "") -> tuple[str, ...]:
    return (
        f"disc-lower-math{{native-bf16=true{math}}}",
        "gpu.module(convert-scf-to-cf,convert-vector-to-llvm)",
        lower,
        "gpu.module(reconcile-unrealized-casts,canonicalize,cse)",
        serialize,
    )


DEVICE_CODE = {
    "cuda": _device_code("disc-nvvm-lower", "disc-nvvm-serialize", " nvidia=true"),
    "rocm": _device_code("disc-rocdl-lower", "disc-rocdl-serialize"),
}
"""The passes that turn a ``gpu.module`` with kernels into a ``gpu.binary``, by device."""


def cpu() -> Pipeline:
    """The stages of models whose kernels run on the host's CPU."""
    return _CPU


def blocks(
    target: str, device: str, *, warp: int, chips: Sequence[str], code: Sequence[str], matrix_unit: bool = False
) -> Pipeline:
    """The stages of models whose kernels are grids of blocks of threads on a device.

    Args:
        target: what the pipeline is for.
        device: the runtime's name for the device.
        warp: threads that step together.
        chips: the kinds of chips that images are made for.
        code: passes that make of a ``gpu.module`` what the device runs.
        matrix_unit: whether warps multiply fragments of matrices as NVIDIA's do (lib/Target/GPU/MatrixUnit.h).
    """
    describe = f"device={device} warp={warp}" + " matrix-unit=true" * matrix_unit
    describe += f" arch={','.join(chips)}" if chips else ""
    # Only on the CPU: products with several dimensions of rows, panels of weights, products of bytes, Winograd's
    # convolutions, kernels over vectors. Products of one operand are one kernel where no library of the device is
    # faster.
    own = {
        "disc-fusion-raise-reshapes",
        "disc-fusion-integer-products",
        "disc-fusion-integer-convolutions",
        "disc-lower-math",
    }
    own |= set() if matrix_unit else {"disc-fusion-merge-products"}
    fusion = tuple(p for p in _CPU["fusion"].passes if p not in own)
    lower = tuple(p for p in _CPU["codegen"].passes if p not in own)
    pipeline = Pipeline(
        target,
        (
            Stage("shape", (f"disc-describe-device{{{describe}}}", *_CPU["shape"].passes)),
            Stage("library", ("disc-library-claim-functions", *_CPU["library"].passes)),
            Stage("fusion", fusion),
            Stage(
                "schedule",
                (
                    "disc-schedule-hoist-parameters",
                    "disc-schedule-pack-fragments",
                    "disc-schedule-blocks",
                    "disc-schedule-verify",
                ),
            ),
            _CPU["memory"],
            Stage("codegen", ("disc-gpu-emit-kernels", "canonicalize", "cse", *code, *lower)),
        ),
    )
    if matrix_unit:
        pipeline = pipeline.configure("disc-fusion-merge-products", "only-f32=true")
    return pipeline.configure("disc-fusion-form-kernels", "many-products=false fuse-concats=true")


def default(target: str = "cpu") -> Pipeline:
    """The stages a model goes through for a target, as :func:`disc.targets.find` takes it."""
    from .targets import find

    return find(target).pipeline
