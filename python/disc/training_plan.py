"""What a training step is made of: shared by steps for this process and steps in libraries."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from . import trees
from .errors import ArgumentTypeError, ArgumentValueError, CallError, GradientError
from .frontend.callables import as_module
from .frontend.optimizers import TracedOptimizer, trace_optimizer
from .frontend.structure import plain
from .frontend.training.custom_functions import WithGradients, functions_noted
from .frontend.training.gradients import Source
from .frontend.training.step import TrainingProgram, Update, UsesFunctions
from .frontend.training.transforms import Transform
from .frontend.updates import decompose
from .logs import log

_T = TypeVar("_T")
Sums = Callable[[list[str]], Mapping[str, Tensor]]
NonFinite = Literal["apply", "skip", "raise"]
_NON_FINITE = ("apply", "skip", "raise")


@dataclass
class TrainingPlan:
    """Which parameters of a module are trained, by which optimizer, on which loss."""

    module: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss: torch.nn.Module
    """Computes the loss from a batch."""
    args: Any
    """An example batch..."""
    kwargs: Mapping[str, Any] | None
    dynamic_shapes: Any
    """...and which of its dims are dynamic."""
    transform: Transform
    """What happens to the gradients before the optimizer takes them."""
    numbers: dict[str, float]
    """The values of ``clip_norm``, ``clip_value`` and ``loss_scale``, of those that are given."""
    non_finite: NonFinite
    names: dict[str, torch.nn.Parameter]
    """The parameters to train, by their names."""
    frozen: dict[str, torch.nn.Parameter]
    """Those among the optimizer's that require no gradients."""
    traced: TracedOptimizer | None = None
    """The optimizer's step, once :meth:`update` was called."""
    source: Source = "autograd"
    """Where the gradients come from; see :func:`~disc.frontend.training.gradients.trace_gradients`."""

    @property
    def title(self) -> str:
        """What logs and viewers call it."""
        return type(self.module).__name__

    @property
    def skips(self) -> bool:
        """Whether nothing is updated by gradients that are not finite."""
        return self.non_finite != "apply"

    def check(self) -> None:
        """Raises CallError if other parameters require gradients than when the step was compiled, or have hooks."""
        if not all(map(_REQUIRES, self.names.values())):
            name = next(name for name, p in self.names.items() if not p.requires_grad)
            raise CallError(f"parameter {name!r} requires no gradient any more; compile the step again")
        if any(map(_REQUIRES, self.frozen.values())):
            name = next(name for name, p in self.frozen.items() if p.requires_grad)
            raise CallError(f"parameter {name!r} requires a gradient now, and did not before; compile the step again")
        if any(map(_HOOKS, self.names.values())):
            _check_hooks(self.names)

    def check_module(self) -> None:
        """Raises CallError if the module has other parameters than when the step was compiled."""
        now = dict(self.module.named_parameters(remove_duplicate=False))
        for name, parameter in self.names.items():
            if now.get(name) is not parameter:
                raise CallError(
                    f"parameter {name!r} of the module is another tensor than the one that the optimizer has, as after"
                    " load_state_dict(assign=True); make a new optimizer and compile the step again"
                )

    def update(self, names: list[str]) -> Update:
        """The optimizer's update of the parameters that have gradients."""
        if self.traced is None:
            unused = self.names.keys() - set(names)
            self.traced = trace_optimizer(self.optimizer, self.names.items(), unused)
        program, _ = decompose(self.traced.program)
        tensors = {**self.names, **self.traced.states}
        return Update(program, names, len(self.traced.hyper_parameters), tensors)

    def compiled(self, compile: Callable[[TrainingProgram], _T], sums: Sums | None = None) -> _T:
        """What ``compile`` makes of the program of a step: forward, backward and the update.

        With ``sums``, of forward and backward; the gradients are added to the tensors that ``sums`` returns.
        """
        functions: list[str] = []
        if sums is None:
            training = TrainingProgram(self.names, self.update, self.transform, self.skips)
        else:
            scaling = Transform(scaled=self.transform.scaled, unscaled=False)
            training = TrainingProgram(self.names, None, scaling, sums=sums)
        training.source, training.functions = self.source, functions
        with functions_noted(functions):
            try:
                return compile(training)
            except UsesFunctions:
                log.debug("%s uses %s: it is traced with its gradients", self.title, ", ".join(functions))
        if self.transform.scaled:
            raise GradientError(
                "import", f"loss_scale: a loss with gradients of its own cannot be scaled: {', '.join(functions)}"
            )
        self.loss, self.source = WithGradients(self.loss, self.names), "results"
        return self.compiled(compile, sums)


def plan_training(
    module: Any,
    optimizer: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    *,
    loss: Callable[..., Any] | None,
    dynamic_shapes: Any,
    clip_norm: float | None,
    clip_norm_type: float,
    clip_value: float | None,
    loss_scale: float | None,
    non_finite: NonFinite,
) -> TrainingPlan:
    """The plan that arguments of :func:`disc.compile_training` describe; TypeError or ValueError if one is wrong."""
    if not isinstance(module, torch.nn.Module):
        raise ArgumentTypeError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentTypeError(f"optimizer: expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if loss is not None and not callable(loss):
        raise ArgumentTypeError(f"loss: expected a function of the module and a batch, got {type(loss).__name__}")
    if non_finite not in _NON_FINITE:
        raise ArgumentValueError(f"non_finite: expected one of {', '.join(_NON_FINITE)}, got {non_finite!r}")
    args = (args,) if isinstance(args, Tensor) else args
    if not isinstance(args, (tuple, list)):
        raise ArgumentTypeError(f"args: expected a tuple of example arguments or a tensor, got {type(args).__name__}")
    if trees.find(args, kwargs or {}):
        raise GradientError(
            "import",
            "training steps over trees are not supported yet",
            help="compile disc.with_gradients(module), set the parameters' gradients from its results, and call the"
            " optimizer in PyTorch",
        )
    function = as_module(module if loss is None else functools.partial(loss, module))
    assert function is not None
    return TrainingPlan(
        module=module,
        optimizer=optimizer,
        loss=function,
        args=plain(args),
        kwargs=None if kwargs is None else plain(kwargs),
        dynamic_shapes=dynamic_shapes,
        transform=Transform(
            scaled=loss_scale is not None,
            checked=non_finite != "apply",
            clips_norm=clip_norm is not None,
            norm_type=clip_norm_type,
            clips_value=clip_value is not None,
        ),
        numbers={
            name: float(value)
            for name, value in (("clip_norm", clip_norm), ("clip_value", clip_value), ("loss_scale", loss_scale))
            if value is not None
        },
        non_finite=non_finite,
        names=_names(module, optimizer),
        frozen={name: p for name, p in _given(module, optimizer).items() if not p.requires_grad},
    )


_REQUIRES = operator.attrgetter("requires_grad")
_HOOKS = operator.attrgetter("_backward_hooks")


def _check_hooks(parameters: Mapping[str, torch.nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise CallError(
                f"parameter {name!r} has hooks of its gradient, which a compiled step does not call: remove them, or"
                " register the hook on a tensor in the loss"
            )


def _given(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.nn.Parameter]:
    """The parameters of the module that the optimizer has."""
    known = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {name: p for name, p in module.named_parameters() if id(p) in known}


def _names(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.nn.Parameter]:
    """The parameters to train: those of the module that require gradients and that the optimizer has."""
    found = {name: p for name, p in _given(module, optimizer).items() if p.requires_grad}
    _check_hooks(found)
    if not found:
        raise ArgumentValueError(
            "optimizer: it has none of the module's parameters that require gradients; make it with"
            " module.parameters() of the module that is passed"
        )
    return found
