"""A compiled model."""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import profiler

from . import _native, memory, saved, tables
from .backends.negotiation import Decision, Decisions
from .byte_sizes import parse_bytes
from .caches import given_back
from .errors import ArgumentValueError, CallError, NotCompiledError, raise_coded
from .frontend import ImportedProgram, Input
from .frontend.argument_paths import positional_names
from .frontend.callables import CallableModule
from .frontend.dynamic_report import DynamicReport
from .frontend.fallback import Fallback, bind_lifetime, raising
from .frontend.structure import misfit
from .frontend.symbols import Symbol
from .given_sizes import check_given_sizes
from .guards import Guard
from .kernels import KernelInfo
from .memory import MemoryCurve, MemoryUse
from .module_interface import ModuleInterface
from .pipeline import IMPORT, Pipeline
from .profile import Call, Launch, Profile
from .recorder import RawCall, Recorder
from .timeline import Span
from .torch_compat.tensors import IncompatibleKeys
from .viewers import torch_profiler
from .weight_watch import WeightWatch

if TYPE_CHECKING:
    from .reporting import Report


class Model(ModuleInterface):
    """The result of :func:`disc.compile`: call it as the original module, at any shape it was compiled for.

    Calls may come from several threads at once. Inputs are not copied; outputs are tensors of the caller's. Parameters
    are those of the original module: a call that finds them changed (in place, also through ``.data``, by
    ``load_state_dict``, by an optimizer, or replaced by another tensor, parameter or layer) packs them again first.
    They must not change while a call runs. Writes that bypass PyTorch, through ``weight.numpy()`` or DLPack, are
    not seen: call :meth:`refresh` after them.

    A call updates what the module updates in place: inputs that were passed, and buffers of the original module (see
    :meth:`state`). Calls of a model with state take turns; inputs that are updated must not be used by another thread.
    """

    compilations: int = 1
    """How often code was generated for this model: once, for all shapes."""

    def __init__(
        self,
        program: ImportedProgram,
        pipeline: Pipeline,
        texts: Mapping[str, str],
        executable: _native.Executable | None,
        timings: Mapping[str, float],
        signature: inspect.Signature | None = None,
        weights: WeightWatch | None = None,
        module: torch.nn.Module | None = None,
        *,
        name: str = "model",
        timeline: Sequence[Span] = (),
        decisions: Sequence[Decision] = (),
        keep_module: bool = True,
    ) -> None:
        self.backends: Decisions = Decisions(decisions)
        """For each operation that an external back end could compile: what compiles it, and why others do not."""
        self.name = name
        """The name of the model in profilers and viewers: that of its class, function or file."""
        self.timeline: tuple[Span, ...] = tuple(timeline)
        """When each part of the compilation ran; empty for a model that was loaded."""
        # A module that wraps a callable has no other owner.
        self._kept = module if keep_module or isinstance(module, CallableModule) else None
        self._module = None if module is None else weakref.ref(module)
        # For a model from a file: the tensors that it has instead of a module's, and their names there.
        self._loaded_parameters: dict[str, torch.Tensor] = {}
        self._state_dict_names: dict[str, str | None] = {}
        self._program = program
        self._pipeline = pipeline
        self._texts = dict(texts)
        self._executable = executable
        self._signature = signature
        self._weights = weights
        self.timings: dict[str, float] = dict(timings)
        """Seconds that each stage of the compilation took."""
        run = executable.run if executable else self._not_built
        self.fallbacks: tuple[Fallback, ...] = tuple(program.fallbacks.used)
        """The operations that PyTorch does in each call: their names, and the lines that use them."""
        if executable and program.fallbacks.functions:
            bind_lifetime(self, program.fallbacks)
            run = raising(executable.run)
        self._recorder = Recorder(executable, run)
        self._names = _simple_arguments(program, signature)
        self._taken = [(n, i) for n, i in enumerate(program.inputs) if not i.is_plain]
        self._planned: _native.Module | None = None
        self._single, self._sequence = _simple_results(program)
        self._given = [(n, o) for n, o in enumerate(program.outputs) if not o.is_plain]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model: the original module's arguments and results.

        Raises:
            ShapeError: the model was not compiled for the rank or sizes of an input.
            CallError: there are too few or too many arguments, or their structure differs.
            ConstantError: an argument that is a constant of the compiled model has another value.
            InputTypeError: an argument is not a tensor, or its dtype or device differs. All three are TypeErrors.
            IndexRangeError: an element of an input indexes beyond a dimension; an IndexError.
        """
        # The common structures come first: a generic pytree costs more than a small model.
        inputs: Sequence[Any]
        if self._names is None or len(args) + len(kwargs) != len(self._names):
            inputs = self._flatten(args, kwargs)
        elif not kwargs:
            inputs = self._take(args) if self._taken else args
        else:
            try:
                inputs = args + tuple([kwargs[name] for name in self._names[len(args) :]])
                inputs = self._take(inputs) if self._taken else inputs
            except KeyError:
                inputs = self._flatten(args, kwargs)
        try:
            results: Sequence[Any]
            if profiler._is_profiler_enabled:
                results = torch_profiler.run(self.name, self._recorder, inputs)
            else:
                results = self._recorder.run(inputs)
        except (TypeError, IndexError) as error:
            if torch.compiler.is_compiling():
                raise CallError(
                    "a compiled model was called while another model that contains it is traced: use the module that it"
                    " was made of there, model.module"
                ) from None
            raise_coded(error)
            raise
        if self._given and (self._single or self._sequence is not None):
            given = list(results)
            for n, output in self._given:
                given[n] = output.given(given[n])
            results = given
        if self._single:
            return results[0]
        if self._sequence is not None:
            return self._sequence(results)
        result = self._program.unflatten(results, inputs)
        same = self._program.same_caches
        return given_back(result, args, kwargs, same) if same else result

    def ir(self, stage: str | None = None, *, generic: bool = False, locations: bool = False) -> str:
        """The IR after a stage (``"import"``, ``"shape"``, ...), as text.

        Raises ArgumentValueError, which lists the stages, without a stage or for one that the model did not go through.
        ``locations`` adds the line of Python each operation came from; ``generic`` prints MLIR's generic form.
        """
        names = (IMPORT, *self._pipeline.names)
        if stage is None or stage not in names:
            problem = "ir: expected a stage" if stage is None else f"no stage {stage!r}"
            raise ArgumentValueError(f"{problem}; the stages are: {', '.join(names)}")
        if stage in self._texts:
            module = _native.Module.parse(self._texts[stage])
        else:
            # Long text that few ask for, such as the code itself, is made again rather than kept.
            before = names[names.index(stage) - 1]
            module = _native.Module.parse(self._texts[before])
            module.run(self._pipeline[stage].text)
        return module.text(generic=generic, locations=locations)

    @contextmanager
    def profile(self) -> Iterator[Profile]:
        """Measures the calls made inside the ``with`` block, and their kernels.

        >>> with model.profile() as profile:
        ...     model(ids, mask)
        >>> print(profile)                # a table of kernels
        >>> profile.save("trace.pftrace")  # a timeline for Perfetto

        Kernels that are always over within a microsecond are called directly and not recorded. Several profiles may be
        active at once, also in several threads: each has the calls of all threads that end while it is active.
        """
        if self._executable is None:
            self._not_built(())
        profile = Profile(model=self)
        recording = self._recorder.start()
        try:
            yield profile
        finally:
            self._recorder.stop(recording)
            profile.launches.extend(Launch(*launch) for launch in recording.launches)
            profile.calls.extend(self._call(call) for call in recording.calls)

    def memory(self, *, budget: int | str | None = None, **extents: int) -> MemoryUse:
        """The memory of a call with these values of the symbols, besides weights and inputs.

        With a ``budget``, as for :meth:`set_memory_budget`, of the plan that a call would take.

        Raises:
            ValueError: a symbol that a size depends on has no value, or a name is not that of a symbol.
            MemoryError: no plan fits the budget; the message says the least one.
        """
        plans = self._plans("memory", extents)
        return next(plans) if budget is None else memory.fitting(plans, parse_bytes(budget, "budget"))

    def memory_curve(self, **extents: int) -> MemoryCurve:
        """The memory and the additional time of each plan, at these values of the symbols.

        Only models compiled with ``Options(memory_budget=...)`` or ``Options(memory_plans=...)`` have several plans.

        >>> print(step.model.memory_curve(batch=8, length=128))

        Raises:
            ValueError: a symbol that a size depends on has no value, or a name is not that of a symbol.
        """
        return memory.curve(self._plans("memory_curve", extents), extents)

    def _plans(self, function: str, extents: Mapping[str, int]) -> Iterator[MemoryUse]:
        check_given_sizes(function, extents, self.symbols)
        return memory.uses(self._planned_module(), extents, self.threads)

    def set_memory_budget(self, budget: int | str | None, *, wait: bool = True) -> None:
        """Limits what calls that begin after this hold at once: bytes, or text such as ``"512MiB"``; None: no limit.

        The budget covers everything except weights and the caller's tensors: temporaries, scratch memory of threads,
        results until the call ends, and memory that is kept between calls. A call takes the first of the model's plans
        that fits. If no plan fits, it raises MemoryError with the least budget, before anything has run. Concurrent
        calls share the budget: a call waits until the others leave enough memory, or with ``wait=False`` raises
        MemoryError.
        """
        count = 0 if budget is None else parse_bytes(budget)
        self._built().set_memory_budget(count, fail=not wait)

    def memory_held(self) -> _native.MemoryUsage:
        """Bytes that calls hold now, and their peak since :meth:`reset_memory_peak`, while there is a budget."""
        return self._built().memory()

    def reset_memory_peak(self) -> None:
        """Sets the peak of :meth:`memory_held` to what is held now."""
        if self._executable is not None:
            self._executable.reset_memory_peak()

    def kernels(self, **extents: int) -> list[KernelInfo]:
        """The kernels, in program order, with their work at these values of the symbols.

        >>> for kernel in model.kernels(batch=8, length=64):
        ...     print(kernel.name, kernel.source, kernel.operations, kernel.reads + kernel.writes)

        Numbers that depend on a symbol without a value, such as a data-dependent size, are None.

        Raises:
            ValueError: a name is not that of a symbol.
        """
        check_given_sizes("kernels", extents, self.symbols)
        return [KernelInfo(*kernel) for kernel in self._planned_module().kernels(extents)]

    def guards(self) -> list[Guard]:
        """The conditions that each call checks besides the ranges of the dynamic dims, in program order."""
        module = _native.Module.parse(self.ir("shape", locations=True))
        return [Guard(*guard) for guard in module.guards()]

    def _planned_module(self) -> _native.Module:
        """The module after the memory stage."""
        if self._planned is None:
            self._planned = _native.Module.parse(self.ir("memory", locations=True))
        return self._planned

    def seed(self, seed: int) -> None:
        """Sets what the numbers of random operations (``torch.rand``, dropout, ...) follow from: a number of 64 bits.

        It is 0 at first. Beside the seed, the numbers depend on how many calls there were since it was set and on the
        operation's place in the model, not on threads or machines. They are not PyTorch's.
        """
        if self._executable is not None:
            self._executable.seed(seed % 2**64)

    def refresh(self) -> None:
        """Reads the module's weights again, after writes that PyTorch does not count, such as those of NumPy.

        No call may run meanwhile. Calls see all other changes by themselves.
        """
        if self._executable is not None and self._weights is not None:
            self._weights.pack(self._executable)

    @property
    def pipeline(self) -> Pipeline:
        """The stages that the model went through after the import."""
        return self._pipeline

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The tensor arguments: names, dtypes and symbolic dims."""
        return tuple(self._program.inputs)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The dynamic extents: names and ranges."""
        return tuple(self._program.symbols)

    def state(self) -> dict[str, torch.Tensor]:
        """The tensors of the original module that calls update, by name: themselves, not copies."""
        return dict(self._program.states)

    @property
    def dynamic_report(self) -> DynamicReport:
        """Which dims of the inputs are dynamic and which are static, and why; its ``repr`` is one line."""
        return self._program.dynamic_report

    @property
    def threads(self) -> int:
        """Threads that a call may use."""
        return self._executable.threads if self._executable else 0

    @property
    def device(self) -> str:
        """Where tensors must be: ``"cpu"``, ``"cuda:0"``, ..."""
        return self._executable.device if self._executable else "cpu"

    @property
    def module(self) -> torch.nn.Module | None:
        """The module that was compiled; None for an ONNX model, one that was loaded, and one that was compiled with
        ``Options(keep_module=False)`` and is gone."""
        return None if self._module is None else self._module()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled model with its weights to a file, which :func:`disc.load` reads without compiling.

        If calls update state of the model, none may run meanwhile.

        >>> model.save("model.disc")
        >>> model = disc.load("model.disc")

        The file is for the same versions of DISC and PyTorch, and for machines whose CPU has the features of the one
        that the model was compiled for. It is a safetensors file. A library (:func:`disc.aot_compile`) needs neither
        PyTorch nor Python, and serves later versions.

        Raises:
            ProgramError: a part of the model belongs to this process: operations of PyTorch (``fallback=True``), trees.
            OSError: the file cannot be written.
        """
        saved.save(self, path)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The parameters and buffers, by the names that the module's own ``state_dict`` has; not copies.

        Of a model that was loaded, those that it uses.

        Raises:
            ProgramError: there was no module (ONNX, an ExportedProgram), or with ``Options(keep_module=False)`` it is
                gone: only packed weights are left.
        """
        module = self.module
        return saved.state_dict(self) if module is None else dict(module.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor], strict: bool = True) -> Any:
        """Copies values to the parameters and buffers, as ``torch.nn.Module.load_state_dict`` does.

        The next call packs them. No call may run meanwhile.

        Returns:
            ``missing_keys`` and ``unexpected_keys``, as PyTorch does.

        Raises:
            WeightsError: for a loaded model: names (with ``strict``) or shapes differ from the model's.
            RuntimeError: for a module: the same.
            ProgramError: as :meth:`state_dict`.
        """
        module = self.module
        if module is not None:
            return module.load_state_dict(state_dict, strict=strict)
        return IncompatibleKeys(*saved.load_state_dict(self, state_dict, strict))

    def __reduce__(self) -> Any:
        # With its code and weights: another process need not compile it.
        return saved.from_bytes, (saved.to_bytes(self),)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{i.name}: {_dtype_name(i)}[{', '.join(map(str, i.dims))}]" for i in self.inputs)
        return f"disc.Model({inputs})"

    def __str__(self) -> str:
        columns = ("", "name", "type", "dims")
        parts = [tables.text(columns, self._tensor_rows())]
        if self.symbols:
            parts.append(tables.text(("dynamic size", "range"), self._size_rows()))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        sizes = "; ".join(f"{name}: {limits}" for name, limits in self._size_rows()) or "all sizes are static"
        title = f"disc.Model for {self._pipeline.target}, {self.threads} threads"
        return tables.html(title, ("", "name", "type", "dims"), self._tensor_rows(), note=sizes)

    def _tensor_rows(self) -> list[tuple[str, str, str, str]]:
        rows = [("input", i.name, _dtype_name(i), f"[{', '.join(map(str, i.dims))}]") for i in self.inputs]
        outputs = self._executable.info()["outputs"] if self._executable is not None else []
        return rows + [("output", name, dtype, f"[{', '.join(map(str, dims))}]") for name, dtype, dims in outputs]

    def _size_rows(self) -> list[tuple[str, str]]:
        rows = []
        for symbol in self.symbols:
            limits = f"{symbol.min} and more" if symbol.max is None else f"{symbol.min} to {symbol.max}"
            rows.append((symbol.name, limits + (", computed" if symbol.data_dependent else "")))
        return rows

    def report(self, path: str | os.PathLike[str], **options: Any) -> Report:
        """Measures the model and writes an HTML page about it: :func:`disc.report` with its options."""
        from .reporting import report

        return report(self, path, **options)

    def _run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Runs a call with the inputs of ``main``, as :meth:`__call__` does."""
        try:
            if profiler._is_profiler_enabled:
                return torch_profiler.run(self.name, self._recorder, inputs)
            return self._recorder.run(inputs)
        except IndexError as error:
            raise_coded(error)
            raise

    def _call(self, call: RawCall) -> Call:
        names = {symbol.name for symbol in self._program.symbols}
        extents: dict[str, int] = {}
        for entry, shape in zip(self._program.inputs, call.shapes, strict=False):
            # Of complex numbers the shape has one dim more.
            extents.update((dim, n) for dim, n in zip(entry.dims, shape, strict=False) if dim in names)  # type: ignore[misc]
        return Call(self.name, call.begin_ns, call.end_ns, call.thread, extents, call.failed)

    def _take(self, args: Sequence[Any]) -> Sequence[Any]:
        inputs = list(args)
        for n, entry in self._taken:
            inputs[n] = entry.taken(inputs[n])
        return inputs

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        try:
            return self._program.flatten(args, kwargs)
        except TypeError:
            # The same call, spelled otherwise: a positional argument by its name, or the reverse.
            respelled = self._respell(args, kwargs)
            if respelled is None:
                self._check_bound(args, kwargs)
                raise
            return self._program.flatten(*respelled)

    def _check_bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """CallError if the arguments do not even fit the module's signature."""
        if self._signature is None:
            return
        known = ", ".join(map(repr, self._argument_names())) or "no arguments"
        problem = misfit(self._signature, args, kwargs, f"the model was compiled for {known}")
        if problem is not None:
            raise CallError(problem)

    def _plain_arguments(self) -> set[str]:
        """The arguments that are one constant of the compiled model, or one number that it takes."""
        args, kwargs = self._program.in_spec.children()
        numbers = {given.leaf for given in self._program.inputs if given.is_number}
        names, leaf = set(), 0
        for name, spec in zip(self._argument_names(), [*args.children(), *kwargs.children()], strict=True):
            if spec.is_leaf() and (leaf in self._program.constants or leaf in numbers):
                names.add(name)
            leaf += spec.num_leaves
        return names

    def _argument_names(self) -> list[str]:
        args, kwargs = self._program.in_spec.children()
        return [*positional_names(self._signature, args.num_children), *(kwargs.context or ())]

    def _respell(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The call with each argument passed as it was when the model was exported, or None."""
        if self._signature is None:
            return None
        try:
            given = dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError:
            return None
        parameters = self._signature.parameters
        kinds = {parameter.kind: name for name, parameter in parameters.items()}
        given.update(given.pop(kinds.get(inspect.Parameter.VAR_KEYWORD, ""), {}))
        positional = list(parameters)[: self._program.in_spec.child(0).num_children]
        if kinds.get(inspect.Parameter.VAR_POSITIONAL) in positional:
            return None
        names = [*positional, *(self._program.in_spec.child(1).context or ())]
        defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
        plain = self._plain_arguments()
        for name in names:
            if name not in given:
                if name not in defaults or name not in plain:
                    return None
                given[name] = defaults[name]
        # An argument that the example did not pass has its default in the compiled model.
        for name, value in given.items():
            if name not in names and not (name in defaults and _is_default(value, defaults[name])):
                return None
        return tuple(given[name] for name in positional), {name: given[name] for name in names[len(positional) :]}

    @property
    def registrations(self) -> int:
        """How often something was registered in the model's modules since it was compiled."""
        return 0 if self._weights is None else self._weights.registrations.value

    def _built(self) -> _native.Executable:
        if self._executable is None:
            self._not_built(())
        assert self._executable is not None
        return self._executable

    def _not_built(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        last = self._pipeline.names[-1] if len(self._pipeline) else IMPORT
        raise NotCompiledError(
            f"the compilation stopped after {last!r}: there is nothing to run; compile without stop_after"
        )


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(value, torch.Tensor) or isinstance(default, torch.Tensor):
        return value is default
    return value is default or (type(value) is type(default) and bool(value == default))


def _dtype_name(tensor: Input) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _simple_arguments(program: ImportedProgram, signature: inspect.Signature | None) -> tuple[str, ...] | None:
    """The names of the arguments, if each is an input; None if there are structures or constants among them."""
    args, kwargs = program.in_spec.children()
    leaves = [*args.children(), *kwargs.children()]
    if program.constants or not all(leaf.is_leaf() for leaf in leaves):
        return None
    if [i.leaf for i in program.inputs] != list(range(len(leaves))):
        return None
    # Without a signature the names of positional arguments are unknown: none that a caller could use.
    known = list(signature.parameters)[: args.num_children] if signature else []
    positional = known if len(known) == args.num_children else [f"<{i}>" for i in range(args.num_children)]
    return (*positional, *(kwargs.context or ()))


def _simple_results(program: ImportedProgram) -> tuple[bool, type | None]:
    """Whether there is one result, which ``main`` has, and the sequence type if it is a sequence of such."""
    simple = [(o.kind, o.index) for o in program.outputs] == [("tensor", i) for i in range(len(program.outputs))]
    spec = program.out_spec
    if not simple:
        return False, None
    if spec.is_leaf():
        return True, None
    if spec.type in (tuple, list) and all(child.is_leaf() for child in spec.children()):
        return False, spec.type
    return False, None
