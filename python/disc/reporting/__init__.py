"""``disc.report``: where the time and the memory of a compiled model go, on one page."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentTypeError, ArgumentValueError
from .calls import calls_for
from .facts import Report, gather, model_name
from .losses import Loss
from .page import check_packages, render

if TYPE_CHECKING:
    from ..model import Model
    from ..training import TrainingStep

__all__ = ["Report", "report"]


def report(
    model: Model | TrainingStep,
    path: str | os.PathLike[str],
    *,
    inputs: Any = None,
    shapes: Sequence[Mapping[str, int]] | None = None,
    reference: Callable[..., Any] | None = None,
    title: str | None = None,
    calls: int = 10,
    accuracy: bool = True,
    high: int = 2,
    seed: int = 0,
) -> Report:
    """Measures a compiled model and writes an HTML page about it: one file that loads nothing.

    >>> disc.report(model, "report.html", inputs=(ids, mask))
    >>> disc.report(model, "report.html", shapes=[{"batch": 8, "length": 64}, {"batch": 1, "length": 512}])

    The page shows the time of each line of the program, the kernels beside this machine's measured limits, the memory
    of temporaries, dynamic dims and guards, operations that PyTorch runs, and the errors against eager PyTorch. Lines,
    kernels and memory are those of the first shape.

    Of a training step, ``inputs`` are batches, the results that are compared are those of the loss function, and
    parameters and the optimizer's state have their old values afterwards.

    Args:
        model: what :func:`disc.compile` or :func:`disc.compile_training` returned, or :func:`disc.load` for a file of
            :meth:`disc.Model.save`.
        path: the page, ``"report.html"``.
        inputs: a tuple of arguments, a dict of keyword arguments, one tensor, or a list of these, one for each shape.
        shapes: the sizes of dynamic dims for random tensors, after those of ``inputs``. Dims without a size have that
            of the first inputs, or 16. Integers are within the range of the first inputs, or below ``high``.
        reference: what to compare results with; None means the module that the model was compiled from, or the loss
            function.
        title: the page's title; None means the module's class.
        calls: how many calls are measured at each shape, and profiled again.
        accuracy: whether to compare results, which takes a copy of the module in float64.
        high: without inputs, integers are from 0 to ``high - 1``.
        seed: of random tensors.

    Returns:
        What the page shows, as data.

    Raises:
        ArgumentTypeError, ArgumentValueError: the model is not a compiled model, or shapes are not within its ranges.
        ImportError: jinja2 or pygments is not installed.
        OSError: the page cannot be written.
    """
    from ..model import Model
    from ..training import TrainingStep

    fixed: Mapping[str, Any] = {}
    further = 0
    if isinstance(model, TrainingStep):
        step = model
        model, fixed, further = step.model, step.numbers(), step.further_results
        title, reference = title or f"{model_name(step)}, a training step", reference or Loss(step.loss)
    if not isinstance(model, Model):
        raise ArgumentTypeError(
            f"model: expected a disc.Model, got {type(model).__name__}; libraries and modules have no kernels to show:"
            " compile the model with disc.compile"
        )
    if model._executable is None:
        raise ArgumentValueError("model: expected a model that can run, got one whose compilation stopped before that")
    if calls < 1:
        raise ArgumentValueError(f"calls: expected 1 or more, got {calls}")
    check_packages()
    wanted = calls_for(model, inputs, shapes, fixed=fixed, high=high, seed=seed)
    reference = reference or model.module
    found = gather(
        model, wanted, title=title or "", reference=reference, accuracy=accuracy, further=further, repeats=calls
    )
    return write(found, path)


def write(found: Report, path: str | os.PathLike[str]) -> Report:
    """Writes the page of a report."""
    page = render(found)
    Path(path).write_text(page, encoding="utf-8")
    return dataclasses.replace(found, path=Path(path))
