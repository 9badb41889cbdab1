"""Whether updates that were traced for one parameter each are those of a whole step.

A class of a user's may combine parameters, or look at their number or order. Its own step and the program are run once
with copies of everything and the same gradients: PyTorch computes both, so that they are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import Interpreter
from torch.optim import Optimizer

from .markers import is_marker
from .optimizer_places import STATE, Place, Scope, step_of
from .optimizer_program import Buffer, Instance
from .optimizer_update import COUNTER, GRADIENT, NUMBER, PARAMETER


def agrees(optimizer: Optimizer, scope: Scope, parameters: Sequence[Buffer], instances: Sequence[Instance]) -> bool:
    """Whether the instances of updates leave what a step of the class leaves; False if that cannot be tried."""
    generator = torch.Generator().manual_seed(3)
    gradients = []
    for parameter in parameters:
        values = torch.empty(parameter.tensor.shape, dtype=parameter.tensor.dtype).normal_(generator=generator)
        gradients.append(torch.empty_like(parameter.tensor).copy_(values))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        copies, contents = _step(optimizer, scope, gradients)
        for instance in instances:
            if any(is_marker(node.target) for node in instance.update.program.graph.nodes):
                return False
            (number,) = instance.parameters
            own = Scope(instance.groups, (scope.parameters[number],), (scope.state_of(optimizer, number),))
            before = own.contents(optimizer)
            mine: dict[Place, Tensor] = {}
            parameter = scope.parameters[number].detach().clone()
            inputs = []
            for node in instance.update.program.graph.nodes:
                if node.op != "placeholder":
                    continue
                role = instance.update.roles.get(node.name)
                if role is None:
                    spec = next(s for s in instance.update.program.graph_signature.input_specs if s.arg.name == node.name)
                    inputs.append(instance.update.program.constants[str(spec.target)])
                elif role.kind == PARAMETER:
                    inputs.append(parameter)
                elif role.kind == GRADIENT:
                    inputs.append(gradients[number].clone())
                elif role.place is not None and role.kind in (NUMBER, COUNTER):
                    value = before[role.place]
                    dtype = torch.int64 if role.kind == COUNTER and isinstance(value, int) else torch.float64
                    mine[role.place] = torch.tensor(value, dtype=dtype)
                    inputs.append(mine[role.place])
                elif role.place is not None:
                    mine[role.place] = before[role.place].detach().clone()
                    inputs.append(mine[role.place])
            Interpreter(instance.update.program.graph_module).run(*inputs)
            if not torch.equal(parameter, copies[number]):
                return False
            for place, tensor in mine.items():
                if place.kind == STATE:
                    found = contents.get(Place(STATE, number, place.path))
                    if isinstance(found, Tensor) and not torch.equal(found, tensor):
                        return False
    return True


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
