"""Whether updates that were traced for one parameter each are those of a whole step.

A class of a user's may combine parameters, or look at their number or order. Its own step and the program are run once
with copies of everything and the same gradients: PyTorch computes both, so that they are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Interpreter
from torch.optim import Optimizer

from .markers import is_marker
from .optimizer_places import STATE, Place, Scope, step_of
from .optimizer_program import Instance
from .optimizer_update import COUNTER, GRADIENT, PARAMETER


def agrees(optimizer: Optimizer, scope: Scope, instances: Sequence[Instance]) -> bool:
    """Whether the instances of updates leave what a step of the class leaves; False if that cannot be tried."""
    if any(is_marker(node.target) for instance in instances for node in instance.update.program.graph.nodes):
        return False
    generator = torch.Generator().manual_seed(3)
    gradients = []
    for parameter in scope.parameters:
        values = torch.empty(parameter.shape, dtype=parameter.dtype).normal_(generator=generator)
        gradients.append(torch.empty_like(parameter, requires_grad=False).copy_(values))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        copies, contents = _step(optimizer, scope, gradients)
        for instance in instances:
            (number,) = instance.parameters
            updated = scope.parameters[number].detach().clone()
            tensors = _run(optimizer, scope, instance, updated, gradients[number])
            if not torch.equal(updated, copies[number]):
                return False
            for place, tensor in tensors.items():
                found = contents.get(Place(STATE, number, place.path)) if place.kind == STATE else None
                if isinstance(found, Tensor) and not torch.equal(found, tensor):
                    return False
    return True


def _run(
    optimizer: Optimizer, scope: Scope, instance: Instance, parameter: Tensor, gradient: Tensor
) -> dict[Place, Tensor]:
    """Runs an update, which changes ``parameter``, with copies of all else; the copies, by their places."""
    (number,) = instance.parameters
    own = Scope(instance.groups, (scope.parameters[number],), (scope.state_of(optimizer, number),))
    contents = own.contents(optimizer)
    program, roles = instance.update.program, instance.update.roles
    constants = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    tensors: dict[Place, Tensor] = {}
    inputs: list[Any] = []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        role = roles.get(node.name)
        if role is None:
            inputs.append(program.constants[str(constants[node.name])])
        elif role.kind == PARAMETER:
            inputs.append(parameter)
        elif role.kind == GRADIENT:
            inputs.append(gradient.clone())
        elif role.place is not None:
            value = contents[role.place]
            if not isinstance(value, Tensor):
                whole = role.kind == COUNTER and isinstance(value, int)
                value = torch.tensor(value, dtype=torch.int64 if whole else torch.float64)
            tensors[role.place] = value.detach().clone()
            inputs.append(tensors[role.place])
    Interpreter(program.graph_module).run(*inputs)
    return tensors


def _step(optimizer: Optimizer, scope: Scope, gradients: Sequence[Tensor]) -> tuple[list[Tensor], dict[Place, Tensor]]:
    """The parameters and all that the optimizer keeps, after a step of the class with copies."""
    copies = [p.detach().clone().requires_grad_(p.requires_grad) for p in scope.parameters]
    own = {id(parameter): copy for parameter, copy in zip(scope.parameters, copies, strict=True)}

    def leaf(_: Place, value: object) -> object:
        return own.get(id(value), value.detach().clone() if isinstance(value, Tensor) else value)

    copy = scope.stand_in(optimizer, copies, leaf)
    for parameter, gradient in zip(copies, gradients, strict=True):
        parameter.grad = gradient.clone()
    step_of(type(optimizer))(copy)
    return [p.detach() for p in copies], scope.contents_of_stand_in(copy, copies)
