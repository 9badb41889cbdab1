"""Code traced as a side of a branch or a step of a loop: what it changes in place are copies."""

from __future__ import annotations

import inspect
import opcode
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ... import errors
from ...torch_compat import pytree
from ...torch_compat.tensors import functorch
from ...torch_compat.tracing import DisableTorchFunction, nodes_of_symbols
from .. import markers
from ..locations import is_layer_file, is_user_file
from .sites import PACKAGE
from .tensor_data import assigns_data


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function of torch past all modes."""
    with DisableTorchFunction():
        return function(*args)


def storage_of(tensor: Tensor) -> int:
    """A number that is equal for tensors that share memory."""
    return quietly(lambda: _plain(tensor).untyped_storage()._cdata)  # type: ignore[no-any-return]


def version_of(tensor: Tensor) -> int:
    """How often a tensor has been changed in place."""
    return quietly(lambda: _plain(tensor)._version)  # type: ignore[no-any-return]


def _plain(tensor: Tensor) -> Tensor:
    """The tensor inside the wrappers of function transforms."""
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


_regions: list[Region] = []

# Results of branches, by storage: if the condition is true (or false), the result is that tensor in Python. After
# y = x if c else z, a change of y changes x or z. :mod:`disc.frontend.sharing` handles changes of x or z, and loops.
_shared: dict[int, list[tuple[Tensor, bool, Tensor, Tensor]]] = {}


def share(pred: Tensor, holds: bool, outer: Tensor, result: Tensor) -> None:
    """Notes that ``result`` is ``outer`` where ``pred`` is ``holds``."""
    _shared.setdefault(storage_of(result), []).append((pred, holds, outer, result))


def forget_shared() -> None:
    """Forgets what :func:`share` noted."""
    _shared.clear()


def carry_changes(mode: TorchFunctionMode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """In the innermost mode, after a call that may change tensors in place: what these are is changed, too."""
    if not _shared or (_regions and mode is not _regions[-1]):
        return
    for tensor in _written(func, args, kwargs):
        storage = storage_of(tensor)
        for region in reversed(_regions):
            storage = region.origins.get(storage, storage)
        for pred, holds, outer, result in _shared.get(storage, ()):
            values = (result, outer) if holds else (outer, result)
            TorchFunctionMode.__enter__(mode)
            try:
                orelse = markers.branch_else(markers.branch_begin(pred), [values[0]], [], [])
                end = markers.branch_end(orelse, [values[1]], [], [])
                outer.copy_(markers.branch_result(end, outer, list(outer.shape), 0))
            finally:
                TorchFunctionMode.__exit__(mode, None, None, None)


def depth() -> int:
    """How many regions are open."""
    return len(_regions)


_CHECKS = (torch._assert_async, torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg)


class NoValue(BaseException):
    """The result of a recursive function is not known yet."""

    def __init__(self, of: Any) -> None:
        """``of``: the procedure."""
        self.of = of
        super().__init__()


class Region(TorchFunctionMode):
    """While it is active, a tensor from outside is copied before it is changed in place, and the copy is used then.

    ``copies`` has what was changed: (the tensor outside, its copy inside).
    """

    def __init__(self, enter: Callable[[Tensor], Tensor], what: str, source: str | None) -> None:
        """``enter`` makes the copy; ``what`` and ``source`` are for messages."""
        super().__init__()
        markers.refuse_inside_transforms(what)
        self._enter, self._what, self._source = enter, what, source
        self._around: Region | None = None
        self._symbols: dict[Any, Any] = {}
        self.copies: list[tuple[Tensor, Tensor]] = []
        self._inside: dict[int, Tensor] = {}
        self._outside: dict[int, Tensor] = {}
        self._own: dict[int, Any] = {}
        """Storages that were made inside, and what keeps them."""
        self._written: set[int] = set()
        """Storages outside that have a copy inside."""
        self.origins: dict[int, int] = {}
        """Of storages that are copies: those of what they are copies of."""
        self._views: dict[int, tuple[Tensor, Callable[..., Any], Any, Any, int]] = {}
        """Views made inside of tensors outside: how they were made."""
        self.checks = False
        """Whether something inside may be an error at run time."""

    def __enter__(self) -> Region:
        """Begins the region."""
        self._around = _regions[-1] if _regions else None
        self._symbols = dict(nodes_of_symbols())
        _regions.append(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Ends the region."""
        _regions.pop()
        super().__exit__(*error)
        # Values outside must not be computed from values inside.
        nodes_of_symbols().update(self._symbols)

    def _real(self, tensor: Tensor) -> Tensor:
        """The copy of a tensor, here or in a region around this one; else the tensor."""
        tensor = self._inside.get(id(tensor), tensor)
        return tensor if self._around is None else self._around._real(tensor)

    def is_outside(self, tensor: Tensor) -> bool:
        """Whether a tensor existed before, and is not a view that was made inside."""
        tensor = self._outside.get(id(tensor), tensor)
        return self._storage(tensor) not in self._own and id(tensor) not in self._views

    def _storage(self, tensor: Tensor) -> int:
        return storage_of(self._real(tensor))

    def own(self, tensor: Tensor) -> None:
        """Notes a tensor that is the region's own: it needs no copy."""
        self._own.setdefault(storage_of(tensor), tensor)

    def change(self, tensor: Tensor) -> None:
        """Has a tensor from outside copied: it is going to be changed."""
        if id(tensor) in self._inside:
            return
        if self._storage(tensor) in self._written:
            raise self._aliased()
        inside = self._enter(tensor)
        self._written.add(self._storage(tensor))
        self._own[storage_of(inside)] = inside
        self.origins[storage_of(inside)] = storage_of(tensor)
        self._inside[id(tensor)], self._outside[id(inside)] = inside, tensor
        self.copies.append((tensor, inside))

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replaces what has a copy by it."""
        kwargs = kwargs or {}
        if func in _PLAIN:
            return func(*args, **kwargs)
        self.checks |= func in _CHECKS
        for tensor in _written(func, args, kwargs):
            self._write(tensor)
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        now_args, now_kwargs = pytree.tree_map_only(Tensor, self.now, (args, kwargs))
        outer = [
            (x, version_of(self._real(x)))
            for x in given
            if self._storage(x) not in self._own and id(x) not in self._inside
        ]
        result = func(*now_args, **now_kwargs)
        for x, version in outer:
            if version_of(self._real(x)) != version:
                name = getattr(func, "__name__", str(func))
                raise self._refuse(f"{name} changes a tensor in place that {self._what} shares with what is around it")
        carry_changes(self, func, args, kwargs)
        bases = {self._storage(x) for x, _ in outer}
        for place, leaf in enumerate(pytree.tree_leaves(result)):
            if isinstance(leaf, Tensor) and not any(leaf is x for x in given):
                storage = storage_of(leaf)
                if storage in bases:
                    self._views[id(leaf)] = leaf, func, args, kwargs, place
                else:
                    self._own.setdefault(storage, leaf)
        if self._outside:
            result = pytree.tree_map_only(Tensor, lambda x: self._outside.get(id(x), x), result)
        return result

    def _write(self, tensor: Tensor) -> None:
        if self._storage(tensor) in self._own or id(tensor) in self._inside:
            return
        made = self._views.get(id(tensor))
        if made is None:
            self.change(tensor)
            return
        for base in pytree.tree_leaves((made[2], made[3])):
            if isinstance(base, Tensor) and self._storage(base) == self._storage(tensor):
                self._write(base)
        self.now(tensor)

    def now(self, tensor: Tensor) -> Tensor:
        """The tensor to use inside: its copy, if it is changed there."""
        inside = self._inside.get(id(tensor))
        if inside is not None or not self._written or self._storage(tensor) not in self._written:
            return tensor if inside is None else inside
        made = self._views.get(id(tensor))
        if made is None:
            raise self._aliased()
        _, func, args, kwargs, place = made
        now_args, now_kwargs = pytree.tree_map_only(Tensor, self.now, (args, kwargs))
        inside = pytree.tree_leaves(func(*now_args, **now_kwargs))[place]
        assert isinstance(inside, Tensor)
        self._inside[id(tensor)], self._outside[id(inside)] = inside, tensor
        return inside

    def _aliased(self) -> errors.CompileError:
        return self._refuse(f"{self._what} changes a tensor in place that has other names (views of the same memory)")

    def _refuse(self, why: str) -> errors.CompileError:
        return errors.ControlFlowError(
            "import", f"{why}; make a new tensor instead, or clone() it before", self._source
        )


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that a call is going to change in place."""
    schema = getattr(func, "_schema", None)
    if schema is not None:
        changed = [
            kwargs[arg.name] if arg.name in kwargs else args[n] if n < len(args) else None
            for n, arg in enumerate(schema.arguments)
            if arg.alias_info is not None and arg.alias_info.is_write
        ]
        return [x for x in pytree.tree_leaves(changed) if isinstance(x, Tensor)]
    if assigns_data(func):
        return [args[0]]
    name = getattr(func, "__name__", "")
    found = [kwargs.get("out")]
    in_place = (name.endswith("_") and not name.endswith("__") and name not in _FLAGGING) or name in _ASSIGNING
    if (in_place or _asked_for(func, args, kwargs)) and args:
        found.append(args[0])
    return [x for x in pytree.tree_leaves(found) if isinstance(x, Tensor)]


# Attributes that a tensor and its copy have in common.
_PLAIN = {
    Tensor.shape.__get__,  # type: ignore[attr-defined]
    Tensor.dtype.__get__,  # type: ignore[attr-defined]
    Tensor.device.__get__,  # type: ignore[attr-defined]
    Tensor.ndim.__get__,  # type: ignore[attr-defined]
    Tensor.requires_grad.__get__,  # type: ignore[attr-defined]
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
}
_OPERATIONS = "add sub mul truediv floordiv mod pow div and or xor lshift rshift"
_FLAGGING = {"requires_grad_", "share_memory_"}
_ASSIGNING = {"__setitem__", *(f"__i{name}__" for name in _OPERATIONS.split())}


def _asked_for(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a function of torch.nn.functional is asked to work in place."""
    if "inplace" in kwargs:
        return bool(kwargs["inplace"])
    if not inspect.isfunction(func) or "inplace" not in func.__code__.co_varnames:
        return False
    try:
        return bool(inspect.signature(func).bind(*args, **kwargs).arguments.get("inplace", False))
    except (TypeError, ValueError):
        return False


def raised_by_user(error: BaseException) -> bool:
    """Whether a ``raise`` statement of the user's code, or of a layer in it, raised an error."""
    if isinstance(error, errors.CompileError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    file = "" if trace is None else trace.tb_frame.f_code.co_filename
    if trace is None or not (is_user_file(file) or is_layer_file(file)) or file.startswith(PACKAGE):
        return False
    code = trace.tb_frame.f_code.co_code

    return opcode.opname[code[trace.tb_lasti]] == "RAISE_VARARGS"
