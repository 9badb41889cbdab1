"""Compiling a model ahead of time, to a library that needs neither Python nor torch."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch.export import ExportedProgram

from . import __version__, _native, code_cache, targets
from .backends.code import Linkable
from .backends.negotiation import Decisions
from .backends.python_function import unbound_table
from .backends.registry import Choice
from .compilation import EMIT, Compilation
from .compiler import check_arguments, name_of, with_backends
from .errors import ArgumentValueError
from .frontend import ImportedProgram
from .header import c_identifier
from .header import header as header_text
from .interface import Interface, SymbolSpec, TensorSpec
from .options import Options
from .package import disc_header, install_library
from .timeline import Span
from .weights import StoredBytes, packed_name, write_weights

if TYPE_CHECKING:
    import onnx

Emit = Literal["shared", "static", "obj", "llvm", "asm"]

EMBED = "embed"
"""The value of ``weights`` that puts them into the library."""


@dataclass(frozen=True)
class Artifact:
    """The result of :func:`aot_compile`: the files, the interface and the timings."""

    name: str
    """The model's name in C: the library's data is ``disc_library_NAME``."""
    path: Path
    """The library, object or text."""
    size: int
    """Its bytes."""
    header: Path | None
    """The generated C header, if one was asked for."""
    weights: Path | None
    """The file of weights, if they are not in the library."""
    variants: tuple[str, ...]
    """The kinds of CPU that there is code for."""
    timings: Mapping[str, float]
    """Seconds of each step; steps that each variant goes through begin with its name and a slash."""
    timeline: tuple[Span, ...]
    """When each step and its parts ran."""
    interface: Interface
    """The model's inputs, outputs and symbols."""
    installed: tuple[Path, ...]
    """The files under ``prefix``."""
    decisions: Decisions = field(default_factory=Decisions)
    """For each operation that an external back end could compile: what compiles it, and why others do not."""


def aot_compile(
    model: torch.nn.Module | ExportedProgram | str | os.PathLike[str] | onnx.ModelProto,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    fixed: Mapping[str, Any] | None = None,
    output: str | os.PathLike[str],
    header: str | os.PathLike[str] | None = None,
    prefix: str | os.PathLike[str] | None = None,
    name: str | None = None,
    weights: str | os.PathLike[str] = EMBED,
    packed: bool = True,
    target: str | Sequence[str] = "host",
    cpu: str | Sequence[str] | None = None,
    emit: Emit = "shared",
    options: Options | None = None,
    backends: Sequence[Choice] | Choice | None = None,
) -> Artifact:
    """Compiles a model once, for every shape that ``dynamic_shapes`` allows, to a library to be linked or loaded.

    >>> disc.aot_compile(module, args, dynamic_shapes=shapes, output="libminilm.so", header="minilm.h")

    The library contains the runtime. It needs the C and C++ libraries, of the version found here or newer, and nothing
    else. ``disc.h`` and the generated header say how to call it; :func:`disc.load` runs it from Python.

    Args:
        model: as for :func:`disc.compile`, as are the next four.
        args: example arguments.
        kwargs: example keyword arguments.
        dynamic_shapes: which dims are dynamic.
        fixed: for ONNX, inputs that become constants of the compiled model.
        output: the file to write.
        header: the C header to write; ``disc.h``, which it includes, is written to the same folder.
        prefix: a folder to install the library to, with headers and with files for CMake and pkg-config.
        name: the model's name in C; None means that of ``output`` (``minilm`` for ``libminilm.so``).
        weights: ``"embed"`` puts the weights into the library; anything else names the safetensors file to write. It
            is searched beside the library, unless the caller of the library passes a path.
        packed: store weights as the kernels read them, so that loading is mapping a file. Weights for more than one
            kind of CPU are stored for each. Without it weights are stored as they are, and packed when the model is
            loaded.
        target: the machine to compile for: ``"host"``, or one of :func:`disc.targets.names`, such as
            ``"aarch64-linux-gnu"``. For machines like this one, it may also be a value of ``cpu``.
        cpu: the kind of CPU, as for clang's ``-mcpu``: ``"host"`` is this machine, ``"x86-64-v3"`` any with AVX2,
            ``"cortex-a76+dotprod"`` one with a feature besides; None means this machine, or any of another target. Of
            several, a machine uses the one with the most features that it can run.
        emit: ``"shared"``: a library; ``"static"``: an archive, the runtime included; ``"obj"``: one object, to be
            linked with the runtime; ``"llvm"``, ``"asm"``: text, of one target.
        options: see :class:`disc.Options`; ``target``, ``cpu`` and ``stop_after`` are not for libraries, and
            ``threads`` is an option of loading.
        backends: as for :func:`disc.compile`. Their code becomes a part of the library; the shared libraries that it
            needs, the library needs.

    Raises:
        CompileError: a stage failed; its message has the line of Python and a reproducer.
        UnsupportedOpError: the model uses operations that cannot be lowered; it lists all of them.
        ValueError: arguments that do not fit together.
        OSError: a file cannot be written.
    """
    model, args, kwargs, options = check_arguments(model, options, args, kwargs, fixed)
    options = with_backends(options, backends, model)
    return write_library(
        lambda compilation: compilation.import_model(model, args, kwargs, dynamic_shapes, fixed, library=True),
        name_of(model),
        Destination(output, header, prefix, name, weights, packed, target, cpu, emit),
        options,
    )


@dataclass(frozen=True)
class Destination:
    """The path and the target of a library: arguments of :func:`aot_compile`."""

    output: str | os.PathLike[str]
    header: str | os.PathLike[str] | None = None
    prefix: str | os.PathLike[str] | None = None
    name: str | None = None
    weights: str | os.PathLike[str] = EMBED
    packed: bool = True
    target: str | Sequence[str] = "host"
    cpu: str | Sequence[str] | None = None
    emit: Emit = "shared"


def write_library(
    imported: Callable[[Compilation], ImportedProgram],
    model: str,
    to: Destination,
    options: Options,
    remarks: Callable[[str], str] | None = None,
) -> Artifact:
    """Compiles what ``imported`` imports to a library.

    ``model`` is what logs call it. ``remarks``, called after the import with the library's name in C, returns
    declarations of C for the header.
    """
    name_of_target, cpus = resolve(to.target, to.cpu)
    _check(options, cpus, to.emit, to.weights)
    options = replace(options, target=name_of_target)
    if to.prefix is not None and to.emit not in ("shared", "static"):
        raise ArgumentValueError(f"prefix: only libraries are installed, not emit={to.emit!r}")
    output = Path(to.output)
    name = c_identifier(_stem(output)) if to.name is None else to.name
    if name != c_identifier(name):
        raise ArgumentValueError(f"name: {name!r} cannot name a library in C; {c_identifier(name)!r} can")
    if to.prefix is not None and to.emit == "shared" and output.name != f"lib{name}.so":
        # The name by which programs find it at run time is in the library.
        raise ArgumentValueError(
            f"prefix: the library is installed as lib{name}.so: call the output so, not {output.name}"
        )
    job = _Job(name, model, options, to.emit, to.packed and to.emit not in ("llvm", "asm"))
    with job.compilation.progress(2 + len(cpus) * (len(job.compilation.pipeline) + 1)):
        program = imported(job.compilation)
        for kind in cpus:
            with job.compilation.variant(kind):
                job.add_variant(program, kind)
        with job.compilation.step("link"):
            file = job.write(program, output, None if os.fspath(to.weights) == EMBED else Path(to.weights))
    device = targets.find(name_of_target).target.tensors
    more = "" if remarks is None else remarks(name)
    text = header_text(name, job.interface, version=__version__, device=device, more=more)
    if to.header is not None:
        Path(to.header).write_text(text, encoding="utf-8")
        shutil.copyfile(disc_header(), Path(to.header).parent / "disc.h")
    installed: list[Path] = []
    if to.prefix is not None:
        installed = install_library(
            to.prefix, name=name, library=output, header=text, version=__version__, weights=file
        )
    return Artifact(
        name=name,
        path=output,
        size=output.stat().st_size,
        header=None if to.header is None else Path(to.header),
        weights=file,
        variants=tuple(job.variants),
        timings=job.compilation.timings,
        timeline=job.compilation.timeline.spans,
        interface=job.interface,
        installed=tuple(installed),
        decisions=job.decisions,
    )


def _stem(output: Path) -> str:
    """``minilm`` of ``libminilm.so.1``."""
    return re.sub(r"^lib", "", output.name.split(".", 1)[0])


def resolve(target: str | Sequence[str], cpu: str | Sequence[str] | None) -> tuple[str, tuple[str, ...]]:
    """The name of the target, and the kinds of CPU, that ``target`` and ``cpu`` of :func:`aot_compile` mean."""
    given = (target,) if isinstance(target, str) else tuple(target)
    cpus = None if cpu is None else (cpu,) if isinstance(cpu, str) else tuple(cpu)
    if len(given) == 1 and given[0].partition(":")[0] in targets.names():
        choice = targets.find(given[0])
        return given[0], choice.target.cpus(choice.chips) if cpus is None else cpus
    if cpus is None:
        return "cpu", given
    if given != ("host",):
        raise ArgumentValueError(f"target: no target is called {target!r}; there are: {', '.join(targets.names())}")
    return "cpu", cpus


def _check(options: Options, cpus: Sequence[str], emit: str, weights: str | os.PathLike[str]) -> None:
    if emit not in get_args(Emit):
        raise ArgumentValueError(f"emit: expected one of {', '.join(get_args(Emit))}, got {emit!r}")
    if not cpus or len(set(cpus)) != len(cpus):
        raise ArgumentValueError(f"target, cpu: expected distinct kinds of CPU, got {cpus!r}")
    if emit in ("llvm", "asm") and len(cpus) != 1:
        raise ArgumentValueError(f"emit={emit!r} writes the code of one kind of CPU, got {len(cpus)}")
    for name in ("target", "cpu", "stop_after", "threads"):
        if getattr(options, name) is not None:
            raise ArgumentValueError(f"options: {name} does not apply to a library")
    if not os.fspath(weights):
        raise ArgumentValueError("weights: expected 'embed' or a file's name, got ''")


class _Job:
    """One library in the making."""

    def __init__(self, name: str, model: str, options: Options, emit: str, packed: bool) -> None:
        self.compilation = Compilation(options, model, library=True)
        if options.memory_budget is not None and self.compilation.pipeline.has("disc-host-lower"):
            budget = f"memory-budget={options.memory_budget}"
            self.compilation.pipeline = self.compilation.pipeline.configure("disc-host-lower", budget)
        self._linked: dict[str, Linkable] = {}
        self._builder = _native.ArtifactBuilder(name)
        self._emit = emit
        # A device packs its weights when the model is loaded: this machine may not have one.
        self._packed = packed and self.compilation.pipeline.has("disc-schedule-pack-weights")
        self.variants: list[str] = []
        self._globals: dict[str, StoredBytes] = {}
        """Packed weights by name, in memory of the code that packed them."""
        self._parameters: set[str] = set()

    @property
    def decisions(self) -> Decisions:
        """The decisions of back ends for the last variant."""
        negotiation = self.compilation.negotiation
        return Decisions(() if negotiation is None else negotiation.decisions)

    @property
    def interface(self) -> Interface:
        """The model's, known when the first variant is compiled."""
        found = self.compilation.interface
        assert found is not None
        inputs = [TensorSpec(*tensor) for tensor in found["inputs"]]
        given = {symbol for spec in inputs for dim in spec.expressions() for symbol in dim.symbols()}
        return Interface(
            inputs=inputs,
            outputs=[TensorSpec(*tensor) for tensor in found["outputs"]],
            symbols=[replace(SymbolSpec(*symbol), computed=symbol[0] not in given) for symbol in found["symbols"]],
        )

    def add_variant(self, program: ImportedProgram, cpu: str) -> None:
        """Compiles the model for one kind of CPU, and packs its weights."""
        module = self.compilation.lower(program, cpu)
        if self.compilation.negotiation is not None:
            self._linked.update({linked.symbol: linked for linked in self.compilation.negotiation.linked})
        kind = self._emit if self._emit in ("llvm", "asm") else "object"
        # Elsewhere "host" would say nothing.
        name = _native.host_target()["cpu"] if cpu == "host" else cpu
        self.variants.append(name)
        with self.compilation.step(EMIT):
            try:
                self._builder.add_variant(
                    module,
                    name,
                    kind=kind,
                    opt_level=self.compilation.options.opt_level,
                    dump_prefix=self.compilation.dump_prefix(),
                    cache_folder=code_cache.folder(self.compilation.options.code_cache),
                    cache_limit=self.compilation.options.code_cache_limit,
                )
            except RuntimeError as error:
                self.compilation.emit_failed(error)
            found = self.compilation.interface
            assert found is not None
            self._parameters.update(found["main"])
            if self._packed:
                self._pack(program, module)
            else:
                self._parameters.update(found["init"])

    def _pack(self, program: ImportedProgram, module: _native.Module) -> None:
        try:
            unbound = unbound_table(self._linked)
            executable = _native.load_init(module, torch.Tensor, addresses=unbound.addresses, owner=unbound)
        except RuntimeError as error:
            raise ArgumentValueError(
                f"packed: weights are packed by the code itself, and {error}; use packed=False"
            ) from None
        executable.init([program.parameters[name].detach() for name in executable.info()["parameters"]])
        number = len(self.variants) - 1
        for i, data in enumerate(executable.globals()):
            self._globals[packed_name(self.variants[number], i)] = StoredBytes(data)
        self._builder.set_packed(number)

    def write(self, program: ImportedProgram, output: Path, weights: Path | None) -> Path | None:
        """Writes the library, and the file of weights if one is wanted and the model has any; returns that file."""
        if self._emit in ("llvm", "asm"):
            output.write_text(self._builder.text(0), encoding="utf-8")
            return None
        tensors: dict[str, torch.Tensor | StoredBytes] = {n: program.parameters[n] for n in sorted(self._parameters)}
        tensors.update(self._globals)
        stored = bool(tensors)
        if not stored:
            weights = None
        with tempfile.TemporaryDirectory(dir=output.parent) as folder:
            image = Path(folder) / "weights"
            if stored:
                write_weights(image, tensors)
            # Linking needs memory for the image, too.
            tensors.clear()
            self._globals.clear()
            self._builder.write(
                str(output),
                kind=self._emit,
                runtime=_runtime(self._emit, self.compilation.machine),
                weights=str(image) if stored else "",
                weights_file=weights.name if weights else "",
                objects=list(dict.fromkeys(file for linked in self._linked.values() for file in linked.objects)),
                libraries=list(dict.fromkeys(file for linked in self._linked.values() for file in linked.libraries)),
            )
            if weights:
                # Not a rename: it may be on another disk.
                shutil.move(image, weights)
        return weights


def _runtime(emit: str, machine: str) -> list[str]:
    folder = Path(__file__).parent / "lib"
    foreign = machine not in ("", _native.host_target()["machine"])
    names = {"shared": ["libdisc_runtime.a", "libdisc_crt.a"], "static": ["libdisc_runtime.a"], "obj": []}[emit]
    paths = [folder / machine / name if foreign else folder / name for name in names]
    for path in paths:
        if not path.is_file():
            how = f"install the package g++-{machine.replace('_', '-')}, and " if foreign else ""
            raise FileNotFoundError(f"the runtime for {machine}, {path}, is missing: {how}run make to build disc")
    return [str(path) for path in paths]
