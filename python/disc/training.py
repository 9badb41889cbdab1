"""Training steps as native code: forward, backward and the optimizer in one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .byte_sizes import parse_bytes
from .compilation import Compilation
from .compiler import check_options, model_of
from .errors import ArgumentValueError, CallError, NonFiniteError
from .frontend import ImportedProgram
from .frontend.optimizers import TracedOptimizer
from .frontend.training.custom_functions import WithGradients
from .frontend.training.step import HYPER_PARAMETERS, TrainingProgram
from .frontend.training.transforms import FINITE, NORM
from .memory import MemoryCurve, MemoryUse
from .model import Model
from .options import Options
from .training_plan import NonFinite, Sums, TrainingPlan, plan_training

if TYPE_CHECKING:
    from .reporting import Report


class TrainingStep:
    """The result of :func:`disc.compile_training`: call it with a batch, like the loss function without the module.

    A call computes the loss and its gradients and lets the optimizer update the parameters in place, and returns the
    loss (or what the loss function returns) without gradient history. Parameters, buffers and the optimizer's state
    are those of the module and the optimizer: code of PyTorch may read, change, save and load them between calls.
    Calls from several threads take turns.
    """

    def __init__(self, plan: TrainingPlan, options: Options) -> None:
        self.module = plan.module
        """The module that is trained."""
        self.optimizer = plan.optimizer
        """The optimizer that updates its parameters."""
        self.clip_norm: float | None = plan.numbers.get("clip_norm")
        """The largest norm of all gradients together; it may be changed between calls."""
        self.clip_value: float | None = plan.numbers.get("clip_value")
        """The largest absolute value of a gradient; it may be changed between calls."""
        self.loss_scale: float | None = plan.numbers.get("loss_scale")
        """The factor of the loss while gradients are computed; it may be changed between calls."""
        self.gradient_norm: Tensor | None = None
        """With ``clip_norm``, the norm of all gradients of the last call, before they were clipped."""
        self.skipped: int = 0
        """With ``non_finite="skip"``, the number of calls that did not change the parameters."""
        self._plan, self._options = plan, options
        self._transform, self._non_finite = plan.transform, plan.non_finite
        self._names = plan.names
        self._step = self._compile("step")
        self._registered = self._step.registrations
        self._changed = [x for x in self._step.state().values() if not x.is_inference()]
        self._sums: Model | None = None
        self._apply: Model | None = None
        self._summed: dict[str, torch.nn.Parameter] = {}
        self._buffers: dict[str, Tensor] = {}

    # -- calls -----------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Makes one step.

        Raises:
            ShapeError, CallError, InputTypeError: as for a compiled model; nothing has changed then.
            NonFiniteError: with ``non_finite="raise"``, a gradient is infinite or NaN; parameters and the optimizer's
                state are as they were.
        """
        traced = self._before()
        if traced.needs_first_step:
            return self._first_step(traced, args, kwargs)
        result = self._step(*args, **kwargs, **self._numbers(traced))
        return self._after(traced, result)

    def accumulate(self, *args: Any, **kwargs: Any) -> Any:
        """Adds the gradients of a micro-batch to the parameters' ``grad``, and returns the loss.

        Nothing is divided by the number of micro-batches: scale the loss as in PyTorch. :meth:`apply` makes the step.
        With ``loss_scale`` the gradients stay multiplied by it until then.
        """
        self._check()
        if self._sums is None:
            self._sums = self._compile("accumulate", self._gradients)
        self._keep_gradients()
        scaling = {}
        if self._transform.scaled:
            scaling[HYPER_PARAMETERS] = torch.tensor([self.loss_scale], dtype=torch.float64)
        result = self._sums(*args, **kwargs, **scaling)
        torch.autograd.graph.increment_version(list(self._buffers.values()))
        return result

    def apply(self) -> None:
        """Has the optimizer take the gradients that :meth:`accumulate` added up, and sets them to zero.

        Raises:
            CallError: there are no gradients.
            NonFiniteError: as a call.
        """
        if self._sums is None:
            raise CallError("apply: no gradients were accumulated; call step.accumulate(...) first")
        traced = self._before()
        if traced.needs_first_step:
            self._first_update(traced, list(self._summed.values()))
        else:
            if self._apply is None:
                self._apply = self._compile_apply()
            self._keep_gradients()
            self._after(traced, self._apply(**self._numbers(traced)))
        for parameter in self._summed.values():
            if parameter.grad is not None:
                parameter.grad.zero_()

    def _before(self) -> TracedOptimizer:
        traced = self._plan.traced
        assert traced is not None
        self._check()
        traced.structure.check(self.optimizer)
        if traced.needs_first_step:
            return traced
        if traced.changed(self.optimizer):
            # It has loaded others: the compiled code has the addresses of those that it had.
            traced.adopt(self.optimizer)
        traced.before_step(self.optimizer)
        return traced

    def _check(self) -> None:
        self._plan.check()
        registered = self._step.registrations
        if registered != self._registered:
            self._plan.check_module()
            self._registered = registered

    def _numbers(self, traced: TracedOptimizer) -> dict[str, Tensor]:
        values = [getattr(self, name) for name in self._transform.numbers]
        values += [number.read(self.optimizer) for number in traced.hyper_parameters]
        return {HYPER_PARAMETERS: torch.tensor(values, dtype=torch.float64)} if values else {}

    def _after(self, traced: TracedOptimizer, result: Any) -> Any:
        finite = True
        if self._transform.results:
            result, further = result
            named = dict(zip(self._transform.results, further, strict=True))
            self.gradient_norm = named.get(NORM)
            finite = FINITE not in named or bool(named[FINITE])
        torch.autograd.graph.increment_version(self._changed)
        if finite:
            traced.after_step(self.optimizer)
        elif self._non_finite == "skip":
            self.skipped += 1
        else:
            raise NonFiniteError(
                "a gradient is infinite or NaN: parameters and the optimizer's state are as before the step"
            )
        return result

    def _first_step(self, traced: TracedOptimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The step of an optimizer whose first one differs: PyTorch makes it, with gradients of compiled code."""
        before = {name: p.grad for name, p in self._names.items()}
        for parameter in self._names.values():
            parameter.grad = None
        try:
            result = self.accumulate(*args, **kwargs)
            self._first_update(traced, list(self._summed.values()))
        finally:
            for name, parameter in self._names.items():
                parameter.grad = before[name]
        return result

    def _first_update(self, traced: TracedOptimizer, parameters: Sequence[torch.nn.Parameter]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        numbers = torch.tensor([getattr(self, n) for n in self._transform.numbers], dtype=torch.float64)
        changed, further = self._transform(gradients, numbers)
        named = dict(zip(self._transform.results, further, strict=True))
        self.gradient_norm = named.get(NORM)
        if FINITE in named and not bool(named[FINITE]):
            if self._non_finite == "skip":
                self.skipped += 1
                return
            raise NonFiniteError(
                "a gradient is infinite or NaN: parameters and the optimizer's state are as before the step"
            )
        for parameter, gradient in zip(parameters, changed, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        traced.adopt(self.optimizer)

    # -- state -----------------------------------------------------------------------------------------------

    def _keep_gradients(self) -> None:
        """Sets a gradient with separate memory for each parameter; if possible, those that the compiled code uses."""
        other = {}
        for name, parameter in self._summed.items():
            known = self._buffers[name]
            if parameter.grad is None:
                known.zero_()
                parameter.grad = known
            elif parameter.grad is not known:
                if parameter.grad.shape != known.shape or parameter.grad.dtype != known.dtype:
                    raise CallError(
                        f"the gradient of {name!r}: expected {known.dtype} {list(known.shape)}, got"
                        f" {parameter.grad.dtype} {list(parameter.grad.shape)}"
                    )
                other[name] = parameter.grad
        for name, gradient in other.items():
            self._buffers[name].copy_(gradient)
            self._summed[name].grad = self._buffers[name]

    # -- compiling -------------------------------------------------------------------------------------------

    def _compile(self, name: str, sums: Sums | None = None) -> Model:
        plan = self._plan

        def compiled(training: TrainingProgram) -> Model:
            title = f"{plan.title} ({name})"
            return _compiled(plan.loss, plan.args, plan.kwargs, plan.dynamic_shapes, self._options, training, title)

        return plan.compiled(compiled, sums)

    def _gradients(self, names: list[str]) -> Mapping[str, Tensor]:
        self._summed = {name: self._names[name] for name in names}
        self._buffers = {}
        for name, parameter in self._summed.items():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            self._buffers[name] = parameter.grad.detach()
        return self._buffers

    def _compile_apply(self) -> Model:
        plan = self._plan
        training = TrainingProgram(self._buffers, plan.update, plan.transform, plan.skips, source="buffers")
        module = _Given(self._buffers)
        return _compiled(module, (), None, None, self._options, training, f"{plan.title} (apply)")

    # -- what it is ------------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The compiled step as a model: its IR, kernels, memory, guards and symbols."""
        return self._step

    @property
    def loss(self) -> torch.nn.Module:
        """The loss function as a module: called with a batch, it computes in PyTorch what a step returns."""
        loss = self._plan.loss
        return loss.loss if isinstance(loss, WithGradients) else loss

    @property
    def further_results(self) -> int:
        """How many results :attr:`model` has after those of the loss function, such as the norm of the gradients."""
        return len(self._transform.results)

    def numbers(self) -> dict[str, Tensor]:
        """The inputs of :attr:`model` besides a batch: the optimizer's options and the limits, as one tensor.

        Raises:
            CallError: the optimizer's first step differs from the later ones, and was not made yet.
        """
        traced = self._before()
        if traced.needs_first_step:
            raise CallError("the optimizer has no state yet, and its first step differs from the others: make one step")
        return self._numbers(traced)

    @property
    def compilations(self) -> int:
        """How many programs were compiled: the step, and :meth:`accumulate` and :meth:`apply` when they are used."""
        return sum(x is not None for x in (self._step, self._sums, self._apply))

    def profile(self) -> Any:
        """Measures the calls inside a ``with`` block, and their kernels: see :meth:`disc.Model.profile`."""
        return self._step.profile()

    def set_memory_budget(self, budget: int | str | None, *, wait: bool = True) -> None:
        """Limits what steps that begin after this hold at once; see :meth:`disc.Model.set_memory_budget`.

        Parameters, the gradients that ``accumulate`` keeps and the optimizer's state do not count.
        """
        count = None if budget is None else parse_bytes(budget)
        self._options = replace(self._options, memory_budget=count)
        for model in (self._step, self._sums, self._apply):
            if model is not None:
                model.set_memory_budget(count, wait=wait)

    def memory(self, *, budget: int | str | None = None, **extents: int) -> MemoryUse:
        """The memory of a step with these values of the symbols; see :meth:`disc.Model.memory`."""
        return self._step.memory(budget=budget, **extents)

    def memory_curve(self, **extents: int) -> MemoryCurve:
        """The memory and additional time of each plan of the step; see :meth:`disc.Model.memory_curve`."""
        return self._step.memory_curve(**extents)

    def report(self, path: str | os.PathLike[str], **options: Any) -> Report:
        """Measures steps and writes an HTML page about them: :func:`disc.report` with its options."""
        from .reporting import report

        return report(self, path, **options)

    def seed(self, seed: int) -> None:
        """Sets what dropout and other random numbers follow from; see :meth:`disc.Model.seed`."""
        for model in (self._step, self._sums):
            if model is not None:
                model.seed(seed)

    def __repr__(self) -> str:
        return f"disc.TrainingStep({type(self.module).__name__}, {type(self.optimizer).__name__}, {self._step!r})"


class _Given(torch.nn.Module):
    """A module whose buffers are gradients."""

    def __init__(self, gradients: Mapping[str, Tensor]) -> None:
        super().__init__()
        for number, gradient in enumerate(gradients.values()):
            self.register_buffer(f"gradient_{number}", gradient)

    def forward(self) -> None:
        """Computes nothing."""


def _compiled(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    options: Options,
    training: TrainingProgram,
    name: str,
) -> Model:
    compilation = Compilation(options, name)

    def imported() -> ImportedProgram:
        return compilation.import_model(module, args, kwargs, dynamic_shapes, training=training)

    return model_of(compilation, imported, module)


def compile_training(
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
    options: Options | None = None,
) -> TrainingStep:
    """Compiles a training step once, for every shape that ``dynamic_shapes`` allows.

    >>> step = disc.compile_training(module, optimizer, (x, y), loss=lambda module, x, y: cross_entropy(module(x), y),
    ...                              dynamic_shapes=({0: "batch"}, {0: "batch"}))
    >>> for x, y in data:
    ...     value = step(x, y)    # forward, backward and optimizer

    Args:
        module: the module to train; in training mode, unless training should behave as in evaluation.
        optimizer: an optimizer of its parameters, of PyTorch or of a class of your own whose ``step`` is tensor code.
            Its options are read at each call, so learning rate schedulers work; those that are 0, None, a bool or a
            string must stay as they are.
        args: an example batch: a tuple of arguments, or one tensor.
        kwargs: example keyword arguments.
        loss: ``loss(module, *args, **kwargs)`` returns the loss, a floating-point tensor without dims, or a tuple or
            other structure whose first tensor is the loss. None: the module itself returns it.
        dynamic_shapes: which dims of the arguments are dynamic, as for :func:`disc.compile`.
        clip_norm: the largest norm of all gradients together, as for ``torch.nn.utils.clip_grad_norm_``.
        clip_norm_type: the kind of norm.
        clip_value: the largest absolute value in gradients, as for ``torch.nn.utils.clip_grad_value_``.
        loss_scale: the loss is multiplied by it for the backward pass, and gradients are divided by it afterwards.
        non_finite: what a step does whose gradients have an infinity or NaN: ``"apply"`` them as PyTorch does,
            ``"skip"`` the update, or ``"raise"`` :class:`disc.errors.NonFiniteError` after skipping it.
        options: see :class:`disc.Options`.

    A parameter that a call does not use, since a branch of the model leaves it out, has a gradient of zeros, as after
    ``optimizer.zero_grad(set_to_none=False)`` in PyTorch.

    Raises:
        GradientError: the loss is not a floating-point number, or something in the model has no gradient.
        CompileError: as :func:`disc.compile`.
        ValueError: parameters are on a GPU; training steps are for CPUs.
    """
    options = _cpu(check_options(options))
    if isinstance(module, torch.nn.Module):
        for name, tensor in module.named_parameters():
            if tensor.device.type not in ("cpu", "meta"):
                raise ArgumentValueError(
                    f"module: training steps are compiled for CPUs, and parameter {name!r} is on {tensor.device}"
                )
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
    return TrainingStep(plan, options)


def _cpu(options: Options) -> Options:
    if options.target not in (None, "cpu"):
        raise ArgumentValueError(f"target: training steps are compiled for CPUs, got {options.target!r}")
    if options.stop_after is not None:
        raise ArgumentValueError("stop_after: a training step that can be called goes through all stages")
    import dataclasses

    return dataclasses.replace(options, target="cpu")
