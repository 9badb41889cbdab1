"""Other ways to run a program than `disc.compile` for this CPU: a library, `torch.compile`, an emulated GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

import disc


def ahead_of_time(module: nn.Module, args: Any, shapes: Any) -> Callable[..., Any]:
    """A library, loaded without the compiler."""
    structure = pytree.tree_structure(module(*args))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "libprograms.so"
        disc.aot_compile(module, args, dynamic_shapes=shapes, output=path)
        library = disc.load(path, threads=1)

    def call(*inputs: Any) -> Any:
        results = library(*pytree.tree_leaves(inputs))
        leaves = results if isinstance(results, list | tuple) else [results]
        return pytree.tree_unflatten([torch.as_tensor(r) for r in leaves], structure)

    return call


def torch_compile(module: nn.Module, args: Any, shapes: Any) -> Callable[..., Any]:
    """The back end of `torch.compile`, with dynamic shapes from the start."""
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="disc", dynamic=True)
    compiled(*pytree.tree_map(torch.clone, args))
    return compiled


def emulated(module: nn.Module, args: Any, shapes: Any) -> Callable[..., Any]:
    """A GPU's kernels, thread by thread."""
    return disc.compile(module, args, dynamic_shapes=shapes, target="cuda-emulated")


WAYS = {"aot": ahead_of_time, "torch.compile": torch_compile, "cuda-emulated": emulated}
