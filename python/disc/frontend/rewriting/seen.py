"""Which extents a model's Python code sees while it is traced: what it does with them is not all in the graph.

``if x.shape == y.shape`` leaves no trace in a graph, once ``x + y`` has made the shapes equal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...torch_compat import pytree
from ..locations import is_layer_file, is_user_line

_SEEN = "_disc_seen"
# What says nothing of extents.
_OTHER = {
    *(getattr(Tensor, name) for name in ("dim", "ndimension", "is_floating_point", "is_complex", "element_size")),
    *(getattr(Tensor, name).__get__ for name in ("ndim", "requires_grad", "is_leaf", "grad_fn", "grad", "dtype")),
    *(getattr(Tensor, name).__get__ for name in ("device", "layout", "is_cuda", "is_sparse", "is_nested")),
}
# Between a function that is called and the handler of a TorchFunctionMode.
_BETWEEN = tuple(
    str(Path(torch.__file__).parent / file)
    for file in ("_export/non_strict_utils.py", "fx/experimental/proxy_tensor.py", "overrides.py")
) + tuple(
    str(Path(__file__).parents[2] / file) for file in ("torch_compat/patching.py", "frontend/function_transforms.py")
)
# What rewritten code calls in the place of Python's functions.
_FOR_MODELS = tuple(
    str(Path(__file__).with_name(f"{name}.py")) for name in ("builtin", "dynamic", "operators", "values")
)
_PLAIN = (torch.dtype, torch.device, torch.layout, str, type(None))


def seen_symbols(env: Any) -> set[Any]:
    """The symbols of the extents that the code has seen."""
    found: set[Any] = getattr(env, _SEEN, set())
    return found


def note(values: Iterable[Any]) -> None:
    """Notes that the code sees numbers."""
    for value in values:
        node = getattr(value, "node", None)
        env = getattr(node, "shape_env", None)
        if node is not None and env is not None:
            found = seen_symbols(env)
            setattr(env, _SEEN, found | node._expr.free_symbols | node.expr.free_symbols)


def note_result(func: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Notes that the code sees the extents of a function's tensors, if it returns more than tensors."""
    if isinstance(result, Tensor) or func in _OTHER or isinstance(result, _PLAIN):
        return
    leaves = pytree.tree_leaves(result)
    if leaves and all(isinstance(leaf, (Tensor, *_PLAIN)) for leaf in leaves):
        return
    if not _is_models(sys._getframe(2)):
        return
    for x in pytree.tree_leaves((args, kwargs)):
        if isinstance(x, Tensor):
            note(x.shape)


def is_handler(file: str) -> bool:
    """Whether code of a file runs between a function that is called and the handler of a TorchFunctionMode."""
    return file.startswith(_BETWEEN)


def _is_models(frame: Any) -> bool:
    """Whether the model's code, or a layer of PyTorch's, calls a function that a mode handles."""
    while frame is not None and is_handler(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return False
    file = frame.f_code.co_filename
    return is_user_line(file) or is_layer_file(file) or file.startswith(_FOR_MODELS)
