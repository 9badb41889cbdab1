"""Compiling a model for this process."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import torch
from torch.export import ExportedProgram

from . import _native, code_cache, records
from .backends.backend import Backend
from .backends.registry import Choice
from .byte_sizes import parse_bytes
from .compilation import EMIT, LOAD, Compilation, is_onnx
from .errors import ArgumentTypeError, ArgumentValueError, LoadError, boundary
from .frontend import ImportedProgram
from .frontend.argument_paths import signature_of
from .frontend.callables import as_module
from .frontend.examples import merged
from .frontend.program import signless
from .frontend.structure import plain
from .lazy import LazyModel, decorated
from .logs import log
from .model import Model
from .options import Options
from .pipeline import IMPORT
from .torch_compat import pytree
from .weight_watch import WeightWatch

if TYPE_CHECKING:
    import onnx


Compilable: TypeAlias = "Callable[..., Any] | ExportedProgram | str | os.PathLike[str] | onnx.ModelProto"
"""What can be compiled: a module or another callable, a program of ``torch.export``, an ONNX model."""


@overload
def compile(
    model: Compilable,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    examples: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
    fixed: Mapping[str, Any] | None = None,
    target: str | None = None,
    options: Options | None = None,
    fallback: bool = False,
    backends: Sequence[Choice] | Choice | None = None,
) -> Model: ...


@overload
def compile(  # type: ignore[overload-overlap]
    model: torch.nn.Module | ExportedProgram | str | os.PathLike[str] | onnx.ModelProto,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    examples: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
    fixed: Mapping[str, Any] | None = None,
    target: str | None = None,
    options: Options | None = None,
    fallback: bool = False,
    backends: Sequence[Choice] | Choice | None = None,
) -> Model: ...


@overload
def compile(
    model: Callable[..., Any],
    *,
    dynamic_shapes: Any = None,
    target: str | None = None,
    options: Options | None = None,
    fallback: bool = False,
    backends: Sequence[Choice] | Choice | None = None,
) -> LazyModel: ...


@overload
def compile(
    *,
    dynamic_shapes: Any = None,
    target: str | None = None,
    options: Options | None = None,
    fallback: bool = False,
    backends: Sequence[Choice] | Choice | None = None,
) -> Callable[[Callable[..., Any]], LazyModel]: ...


def compile(
    model: Any = None,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    examples: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
    fixed: Mapping[str, Any] | None = None,
    target: str | None = None,
    options: Options | None = None,
    fallback: bool = False,
    backends: Sequence[Choice] | Choice | None = None,
) -> Any:
    """Compiles a model once, for every shape that ``dynamic_shapes`` allows.

    >>> model = disc.compile(module, (ids, mask), dynamic_shapes="auto")
    >>> model = disc.compile(module, examples=[(ids, mask), (other_ids, other_mask)])
    >>> @disc.compile(dynamic_shapes="auto")
    ... def f(x): ...

    Without ``model``, and for a function without example arguments, it is a decorator: the function is compiled at its
    first call, with that call's arguments as the example (see :class:`disc.LazyModel`).

    Args:
        model: a module, a function, a method, a ``functools.partial`` or another callable; a program that
            ``torch.export.export`` returned; or an ONNX model, in a file or as a ModelProto.
        args: example arguments, as for ``torch.export.export``, or one tensor, which is ``(tensor,)``. An ONNX model
            needs no examples. Values that are not tensors, such as strings, bools, dtypes,
            slices, functions and None, are constants of the compiled model, and calls must pass the same values. Floats
            are inputs where the model's code allows it, ints if ``dynamic_shapes`` makes them dynamic.
        kwargs: example keyword arguments.
        examples: several examples instead of ``args`` and ``kwargs``: each is a tuple of arguments, a dict of keyword
            arguments, or a tensor. Dims and ints that differ between them are dynamic, the others static unless
            ``dynamic_shapes`` makes them dynamic; ``model.dynamic_report`` lists both. The model accepts all examples,
            or compiling fails.
        dynamic_shapes: which dims are dynamic: ``"auto"`` for every dim of every tensor that the model's code does not
            fix (a warning lists those that it fixes), or specs as for ``torch.export.export``, where a string names a
            dim, ``{0: "batch", 1: "length"}``. Dims of one name are equal. None: no dim is dynamic. If the model
            works only for some sizes of a named dim, it is compiled for those, and a warning names them. The dynamic
            dims of an ONNX model are its dim_params: ``{"batch": Dim("batch", max=64), "length": 128}`` sets the range
            of one and makes the other static.
        fixed: for ONNX, inputs that become constants of the compiled model, with their values.
        target: the kind of machine to compile for, ``"cpu"`` or ``"cuda"`` (see :mod:`disc.targets`). None means the
            target of the options; without one, the device of the model's parameters, or of the arguments if it has no
            parameters. With several GPUs, the model runs on the one that holds these tensors.
        options: see :class:`disc.Options`.
        fallback: whether PyTorch runs the operations that have no lowering rule, such as custom operators, in each
            call; ``model.fallbacks`` lists them. For PyTorch models on the CPU.
        backends: external back ends that may compile parts of the model, in order of precedence: names of installed
            ones (:func:`disc.backends.available`) or :class:`disc.backends.Backend`. ``model.backends`` lists which
            operations each of them compiled. For PyTorch models.

    Raises:
        CompileError: a stage failed; its message has the line of Python and a reproducer.
        UnsupportedOpError: the model uses operations that cannot be lowered; it lists all of them.
        DynamicDimError: the model does not work for all sizes of a dynamic dim, or for one of the examples.
        TypeError, ValueError: arguments of the wrong kind.
    """
    check_not_compiled(model)
    if _is_decorator(model, args, kwargs, examples):
        settings = {"dynamic_shapes": dynamic_shapes, "target": target, "options": options, "fallback": fallback}
        settings["backends"] = backends
        decorator = functools.partial(decorated, compile=functools.partial(compile, **settings))
        check_options(options)
        return decorator if model is None else decorator(model)
    model, args, kwargs, options = check_arguments(model, options, args, kwargs, fixed)
    several = None
    if examples is not None:
        if not isinstance(model, torch.nn.Module) or len(args) or kwargs:
            raise ArgumentTypeError(
                "examples: expected a module or another callable, and neither args nor kwargs beside them"
            )
        records.register(examples)
        several = merged(model, examples, dynamic_shapes)
        args, kwargs, dynamic_shapes = several.args, several.kwargs, several.shapes
    devices = _devices_of(model, args, kwargs)
    if options.stop_after is None:
        _check_has_data(model)
    if target is not None or options.target is None:
        options = dataclasses.replace(options, target=target or (target_of(devices[0]) if devices else "cpu"))
    if fallback and (is_onnx(model) or options.target != "cpu"):
        raise ArgumentValueError(
            f"fallback: expected a PyTorch model on the CPU, got an ONNX model or {options.target!r}"
        )
    options = with_backends(options, backends, model)
    compilation = Compilation(options, name_of(model))
    device = next((d.index for d in devices if d.type == "cuda"), 0)
    return model_of(
        compilation,
        lambda: compilation.import_model(
            model, args, kwargs, dynamic_shapes, fixed, fallback=fallback, examples=several
        ),
        model,
        device,
    )


def model_of(compilation: Compilation, imported: Callable[[], ImportedProgram], model: Any, device: int = 0) -> Model:
    """The compiled model: ``imported`` is the import stage of ``model``; the other stages and loading follow it."""
    watched = None
    with compilation.progress(steps(compilation)):
        program = imported()
        executable = build(compilation, program, device)
        if executable is not None:
            with compilation.step(LOAD):
                load(executable, program.parameters)
                watched = watch(executable, program, model)
            program.release()
    log.info("compiled %s in %.2f s: %r", compilation.name, sum(compilation.timings.values()), program.dynamic_report)
    return Model(
        program,
        compilation.pipeline,
        compilation.texts,
        executable,
        compilation.timings,
        program.signature,
        watched,
        model if isinstance(model, torch.nn.Module) else None,
        name=compilation.name,
        timeline=compilation.timeline.spans,
        decisions=() if compilation.negotiation is None else compilation.negotiation.decisions,
        keep_module=compilation.options.keep_module,
    )


def with_backends(options: Options, backends: Sequence[Choice] | Choice | None, model: Any) -> Options:
    """The options with the back ends that an argument ``backends`` names; ValueError for an ONNX model."""
    if backends is not None:
        listed = [backends] if isinstance(backends, (str, Backend, type)) else list(backends)
        options = dataclasses.replace(options, backends=tuple(listed))
    if options.backends and is_onnx(model):
        raise ArgumentValueError("backends: expected a PyTorch model, got an ONNX model")
    return options


def name_of(model: Any) -> str:
    """The name of a model in logs and viewers: its class or function, or the file or the graph of an ONNX model."""
    if isinstance(model, (str, os.PathLike)):
        return Path(model).stem
    if is_onnx(model):
        return model.graph.name or "onnx"
    return type(model).__qualname__


def _is_decorator(model: Any, args: Any, kwargs: Any, examples: Any) -> bool:
    """Whether ``compile`` is used as a decorator: for a function with parameters, without example arguments."""
    if examples is not None or kwargs or not (isinstance(args, (tuple, list)) and not args):
        return False
    if model is None:
        return True
    if isinstance(model, (classmethod, staticmethod)):
        return True
    if isinstance(model, (torch.nn.Module, ExportedProgram)) or not callable(model) or is_onnx(model):
        return False
    signature = signature_of(model)
    return signature is None or bool(signature.parameters)


def check_not_compiled(model: Any) -> None:
    """ArgumentTypeError for a compiled model."""
    if isinstance(model, Model):
        raise ArgumentTypeError(
            "the model is already compiled: call it, or compile its module with other settings:"
            " disc.compile(model.module, ...)"
        )


def check_options(options: Any) -> Options:
    """The options to use; TypeError if ``options`` is something else."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise ArgumentTypeError(f"options: expected disc.Options, got {type(options).__name__}")
    return options


def check_arguments(
    model: Any, options: Any, args: Any = (), kwargs: Any = None, fixed: Mapping[str, Any] | None = None
) -> tuple[Any, Sequence[Any], Mapping[str, Any] | None, Options]:
    """The model, with a callable as a module, its arguments and the options; TypeError if one has another type."""
    check_not_compiled(model)
    module = as_module(model)
    if module is not None or isinstance(model, ExportedProgram):
        if isinstance(args, torch.Tensor):
            args = (args,)
        if not isinstance(args, (tuple, list)):
            raise ArgumentTypeError(
                f"args: expected a tuple of example arguments or one tensor, got {type(args).__name__}; pass keyword"
                " arguments as kwargs={...}"
            )
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise ArgumentTypeError(
                f"kwargs: expected a dict of example keyword arguments, got {type(kwargs).__name__}"
            )
        args, kwargs = plain(args), None if kwargs is None else plain(kwargs)
        records.register((args, kwargs))
        if fixed:
            raise ArgumentTypeError(
                "fixed: only inputs of ONNX models can be fixed; pass the values as arguments of the PyTorch model"
            )
    elif not is_onnx(model):
        found = repr(model) if isinstance(model, (str, os.PathLike)) else type(model).__name__
        raise ArgumentTypeError(
            f"expected a torch.nn.Module or another callable, an ExportedProgram or an ONNX model, got {found}"
        )
    elif len(args) or kwargs:
        raise ArgumentTypeError("an ONNX model declares its inputs: leave out the example arguments")
    return (model if module is None else module), args, kwargs, check_options(options)


def _devices_of(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[torch.device]:
    """The device of a model's parameters and buffers, if it has any, then those of its arguments."""
    tensors: Iterable[Any] = ()
    if isinstance(model, torch.nn.Module):
        tensors = (*model.parameters(), *model.buffers())
    elif isinstance(model, ExportedProgram):
        tensors = model.state_dict.values()
    # All CPU devices are the same, whatever their number.
    devices = {x.device if x.device.type == "cuda" else torch.device(x.device.type) for x in tensors}
    if len(devices) > 1:
        raise ArgumentValueError(
            f"the model's parameters are on several devices: {', '.join(sorted(map(str, devices)))}; move them to one"
        )
    return [*devices, *(x.device for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor))]


def _check_has_data(model: Any) -> None:
    """ArgumentValueError for parameters on the meta device, which have shapes only."""
    if not isinstance(model, torch.nn.Module):
        return
    named = (*model.named_parameters(), *model.named_buffers())
    without = [name for name, tensor in named if tensor.is_meta]
    if without:
        more = f" and {len(without) - 3} more" if len(without) > 3 else ""
        raise ArgumentValueError(
            f"the model's parameters are on the meta device and have no values: {', '.join(without[:3])}{more}; load"
            " them first: model.to_empty(device='cpu') and model.load_state_dict(...)"
        )


_CHIPS = {8: "sm_80", 9: "sm_90"}
"""The chip whose code runs on all NVIDIA GPUs of a generation, by the first number of their compute capability."""


def target_of(device: torch.device) -> str:
    """The target for a device of torch; for NVIDIA's GPUs, only the chip of this one's generation."""
    if device.type != "cuda":
        return "cpu"
    if torch.version.hip:
        return "rocm"
    # Fake tensors may be on a GPU that does not exist.
    chip = _CHIPS.get(torch.cuda.get_device_capability(device)[0]) if torch.cuda.is_available() else None
    return "cuda" if chip is None else f"cuda:{chip}"


def steps(compilation: Compilation) -> int:
    """How many steps the progress bar has: the import, the stages, code generation and loading."""
    return 1 + len(compilation.pipeline) + (2 if compilation.options.stop_after is None else 0)


def build(compilation: Compilation, program: ImportedProgram, device: int = 0) -> _native.Executable | None:
    """The code of an imported program, before its parameters are loaded; None if the options stop before that.

    ``device`` is the number of the GPU, for a target that has one.
    """
    options = compilation.options
    module = compilation.parsed(program)
    negotiation = compilation.negotiation
    # External back ends cache their own code.
    cached = None if negotiation else code_cache.entry(options, compilation.pipeline, compilation.texts[IMPORT])
    found = None if cached is None else cached.find()
    if found is not None:
        texts, objects = found
        with compilation.step(EMIT), boundary(EMIT):
            compilation.take_cached(texts)
            executable = _native.link(
                objects, torch.Tensor, threads=options.threads or 0, symbols=_symbols(options), device=device
            )
            return _with_budget(executable, options)
    module = compilation.lowered(program, module)
    if options.stop_after is not None:
        return None
    with compilation.step(EMIT), boundary(EMIT):
        executable = _emit(compilation, module, device, "" if cached else code_cache.folder(options.code_cache))
        if cached is not None:
            cached.store(compilation.texts, executable.objects())
    compilation.timeline.divide(executable.times())
    return _with_budget(executable, options)


def _with_budget(executable: _native.Executable, options: Options) -> _native.Executable:
    if options.memory_budget is not None:
        executable.set_memory_budget(parse_bytes(options.memory_budget))
    return executable


def load(executable: _native.Executable, tensors: Mapping[str, torch.Tensor]) -> None:
    """Binds parameters by their names, and runs the computations that depend only on them."""
    parameters = [tensors[name].detach() for name in executable.info()["parameters"]]
    try:
        executable.init(parameters)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise LoadError(LOAD, str(error)) from error


def watch(executable: _native.Executable, program: ImportedProgram, model: Any) -> WeightWatch | None:
    """Has the executable pack the parameters again when they change; None for an ONNX model's."""
    names = executable.info()["parameters"]
    if not all(name in program.sources for name in names):
        return None  # Only the compiled model holds them.
    module = model if isinstance(model, torch.nn.Module) else None
    tensors = {name: program.sources[name] for name in names}
    weights = WeightWatch(module, tensors, program.states, signless)
    weights.start(executable)
    return weights


def _symbols(options: Options) -> int:
    """The ``CodeSymbols`` of lib/Target/Driver/Jit.h, as a number: while the native module is imported nothing may run
    that Ctrl-C can interrupt, such as the definition of an enum."""
    return 2 if options.profile == "jitdump" else int(options.profile)


def _emit(compilation: Compilation, module: _native.Module, device: int, cache: str = "") -> _native.Executable:
    options = compilation.options
    regions = [] if compilation.negotiation is None else compilation.negotiation.linked
    try:
        return _native.jit(
            module,
            torch.Tensor,
            threads=options.threads or 0,
            symbols=_symbols(options),
            opt_level=options.opt_level,
            dump_prefix=compilation.dump_prefix(),
            device=device,
            cache_folder=cache,
            cache_limit=options.code_cache_limit,
            addresses={linked.symbol: linked.address for linked in regions},
            owner=regions,
        )
    except ValueError as error:
        raise ArgumentValueError(str(error)) from None
    except RuntimeError as error:
        compilation.emit_failed(error)
