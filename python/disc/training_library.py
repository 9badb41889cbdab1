"""Training steps as libraries: training on machines without Python and torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from .aot import EMBED, Artifact, Destination, Emit, resolve, write_library
from .compilation import Compilation
from .compiler import check_options
from .errors import ArgumentValueError
from .frontend import ImportedProgram
from .frontend.optimizer_structure import HyperParameter
from .frontend.optimizers import TracedOptimizer
from .frontend.training.step import HYPER_PARAMETERS, TrainingProgram
from .header import numbers
from .options import Options
from .training_plan import NonFinite, TrainingPlan, plan_training


def aot_compile_training(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[..., Any] | None = None,
    dynamic_shapes: Any = None,
    clip_norm: float | None = None,
    clip_norm_type: float = 2.0,
    clip_value: float | None = None,
    loss_scale: float | None = None,
    non_finite: NonFinite = "apply",
    output: str | os.PathLike[str],
    header: str | os.PathLike[str] | None = None,
    prefix: str | os.PathLike[str] | None = None,
    name: str | None = None,
    weights: str | os.PathLike[str] = EMBED,
    target: str | Sequence[str] = "host",
    cpu: str | Sequence[str] | None = None,
    emit: Emit = "shared",
    options: Options | None = None,
) -> Artifact:
    """Compiles a training step to a library, which trains without Python and torch.

    >>> disc.aot_compile_training(module, optimizer, (x, y), loss=loss, dynamic_shapes=shapes,
    ...                           output="libnet.so", header="net.h")

    A run of the library is a step: it takes a batch and the numbers ``hyper_parameters``, a float64 tensor, and returns
    the loss. The trained parameters, the optimizer's state and the module's buffers are state of the model
    (``disc_reset``): each loaded model has its own, which begins with the values at the time of the compilation.
    ``disc_save_state`` and ``disc_load_state``, in Python :meth:`disc.Library.save_state` and ``load_state``, keep it
    in a file; a run that is resumed from one is the same as without the break. The state has the parameters' names, and
    ``optimizer.<parameter>.<name>`` for what the optimizer keeps.

    The header ``NAME.h`` has what ``hyper_parameters`` holds: the place of each number, such as
    ``NAME_HYPER_PARAMETERS_LR``, and their values when the library was compiled, ``NAME_hyper_parameters``. A program
    may pass others at each step. An optimizer without such numbers has no such input.

    Args:
        module: these are as for :func:`disc.compile_training`...
        optimizer: ...
        args: ...
        kwargs: ...
        loss: ...
        dynamic_shapes: ...
        clip_norm: ...
        clip_norm_type: ...
        clip_value: ...
        loss_scale: ...
        non_finite: ``"apply"``, or ``"skip"``: a step with gradients that are not finite changes nothing, and its
            second result, a bool, is false. A library raises nothing.
        output: these are as for :func:`disc.aot_compile`...
        header: ...
        prefix: ...
        name: ...
        weights: ``"embed"``, or the file for the parameters and the state that a model begins with.
        target: CPUs alone.
        cpu: ...
        emit: ...
        options: ...

    The norm of the gradients, with ``clip_norm``, is the last result.

    Raises:
        GradientError: the loss is not a floating-point number, or something in the model has no gradient.
        CompileError: as :func:`disc.aot_compile`.
        ValueError: arguments that do not fit together; or the first step of the optimizer is another one than those
            that follow, and it has not made it: let PyTorch make a step before.
        OSError: a file cannot be written.
    """
    plan = plan_training(
        module,
        optimizer,
        args,
        kwargs,
        loss=loss,
        dynamic_shapes=dynamic_shapes,
        clip_norm=clip_norm,
        clip_norm_type=clip_norm_type,
        clip_value=clip_value,
        loss_scale=loss_scale,
        non_finite=non_finite,
    )
    if non_finite == "raise":
        raise ArgumentValueError('non_finite: a library raises nothing; with "skip" a result reports what a step did')
    kind, _ = resolve(target, cpu)
    if kind.partition("-")[0].partition(":")[0] in ("cuda", "rocm"):
        raise ArgumentValueError(f"target: training steps are compiled for CPUs, got {target!r}")

    def imported(compilation: Compilation) -> ImportedProgram:
        def compiled(training: TrainingProgram) -> ImportedProgram:
            return compilation.import_model(
                plan.loss, plan.args, plan.kwargs, plan.dynamic_shapes, library=True, training=training
            )

        program = plan.compiled(compiled)
        _traced(plan).before_step(optimizer)
        return program

    return write_library(
        imported,
        f"{plan.title} (step)",
        Destination(output, header, prefix, name, weights, True, target, cpu, emit),
        check_options(options),
        lambda name: _remarks(name, plan),
    )


def _traced(plan: TrainingPlan) -> TracedOptimizer:
    assert plan.traced is not None
    if plan.traced.needs_first_step:
        raise ArgumentValueError(
            f"optimizer: the first step of {type(plan.optimizer).__name__} with these options differs from the others,"
            " and a library has the others: make one with PyTorch (optimizer.step() after a backward pass) before"
            " the library is compiled"
        )
    return plan.traced


def _remarks(name: str, plan: TrainingPlan) -> str:
    """What the header says about the numbers that a step takes."""
    values = [*plan.numbers.items(), *_options(plan)]
    if not values:
        return ""
    lines = ["The elements of the input hyper_parameters, and their values when the library was compiled."]
    for condition in _traced(plan).structure.conditions:
        text = condition.expression.subs({s: sympy.Symbol(n.name) for s, n in condition.numbers.items()})
        lines.append(f"The step is compiled for {str(condition.answer).lower()} as the answer to {text}.")
    return numbers(name, HYPER_PARAMETERS, values, list(dict.fromkeys(lines)))


def _options(plan: TrainingPlan) -> Iterator[tuple[str, float]]:
    several = len(plan.optimizer.param_groups) > 1
    for number in _traced(plan).hyper_parameters:
        yield _name(number, several), number.read(plan.optimizer)


def _name(number: HyperParameter, several: bool) -> str:
    text = number.name if number.index is None else f"{number.name}_{number.index}"
    return f"{text}_group_{number.group}" if several else text
