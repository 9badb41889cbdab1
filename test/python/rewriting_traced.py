"""Functions and modules traced with dynamic first dims, and run by their markers."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.export import Dim

import flow_reference
from disc.frontend.export import export
from disc.frontend.updates import decompose

T = Dim("T", min=1, max=40)
LENGTHS = (5, 1, 8, 20, 2)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def traced(module, args):
    shapes = tuple({0: T} if isinstance(a, torch.Tensor) and a.dim() else None for a in args)
    if not isinstance(module, nn.Module):
        return export(Function(module), args, None, (shapes,))
    return export(copy.deepcopy(module), args, None, shapes)


def check(module, *inputs):
    """Traces with the first inputs and compares with eager for all; also after decomposition."""
    program = traced(module, inputs[0])
    programs = [program]
    if not isinstance(module, nn.Module) or not list(module.buffers()):
        programs.append(decompose(program)[0])
    eager = copy.deepcopy(module)
    for args in inputs:
        changed = copy.deepcopy(args)
        wanted = eager(*changed)
        for one in programs:
            given = copy.deepcopy(args)
            got = flow_reference.run(one, *given)
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
            if one is program:
                torch.testing.assert_close(given, changed, rtol=1e-4, atol=1e-5)
    return program


def vectors(*scales):
    torch.manual_seed(1)
    return [(torch.randn(n) * s,) for n in LENGTHS for s in (scales or (1,))]


def matrices(columns, *scales):
    torch.manual_seed(2)
    return [(torch.randn(n, columns) * s,) for n in LENGTHS for s in (scales or (1,))]


def count(program, marker):
    return sum(node.target is marker for node in program.graph.nodes)
