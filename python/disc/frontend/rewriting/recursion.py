"""Functions that call themselves: which of them cannot be unrolled while tracing.

A function that is called again inside of itself, with a branch or a loop on data open in between, goes on for as long
as data says. Unless what it is given gets less while tracing (a list of layers, a number that is known), it is traced
once, as a procedure (:mod:`.procedures`): the trace begins again with that function marked.
"""

from __future__ import annotations

import inspect
import traceback
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ... import errors
from .arguments import Mismatch
from .conditions import SYMBOLIC
from .procedures import Procedure
from .raised import reasons
from .region import depth
from .sites import called_from, is_users_file
from .state import is_scalar, parts

_NEVER_ENDS = (
    "a function calls itself without end while it is traced; what ends recursion must be a condition on its tensors,"
    " their extents or its numbers, and what differs between the calls tensors and numbers, in containers of one"
    " structure"
)

# So often a function is traced in itself where numbers that are known differ, before it is tried as a procedure.
_LEVELS = 4


class Recursive(BaseException):
    """A function has to be traced as a procedure."""

    def __init__(self, code: types.CodeType, *, may_end: bool) -> None:
        """``code``: the function's; ``may_end``: its numbers may end the recursion while it is traced."""
        self.code, self.may_end = code, may_end
        super().__init__(code.co_name)


@dataclass(frozen=True)
class _Activation:
    function: types.FunctionType
    arguments: dict[str, Any]
    depth: int
    """How many sides and steps were open when it began."""


class Recursion:
    """Looks after the calls of the user's functions, while they are traced."""

    def __init__(self) -> None:
        self._marked: dict[types.CodeType, bool] = {}
        """The functions that are procedures, and whether they could be unrolled as well, perhaps."""
        self._unrolled: set[types.CodeType] = set()
        self._activations: list[_Activation] = []
        self._open: list[Procedure] = []

    def mark(self, found: Recursive) -> None:
        """Has a function traced as a procedure from now on."""
        self._marked[found.code] = found.may_end

    def unroll(self) -> bool:
        """Has functions that cannot be procedures unrolled, as far as that may end; whether there are any."""
        unrolled = {code for code, may_end in self._marked.items() if may_end}
        self._unrolled |= unrolled
        self._marked = {code: False for code in self._marked if code not in unrolled}
        return bool(unrolled)

    def run(self, function: types.FunctionType, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Calls a function."""
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)
        bound.apply_defaults()
        if function.__code__ in self._marked:
            return self._invoke(function, bound)
        self._look_for(function, bound.arguments)
        self._activations.append(_Activation(function, dict(bound.arguments), depth()))
        try:
            return function(*args, **kwargs)
        finally:
            self._activations.pop()

    def _invoke(self, function: types.FunctionType, bound: inspect.BoundArguments) -> Any:
        for procedure in reversed(self._open):
            if _same_function(procedure.function, function):
                try:
                    return procedure.call(bound.arguments)
                except Mismatch:
                    continue
        return Procedure(function, bound, called_from(function.__name__, function.__code__)).run(self._opened)

    @contextmanager
    def _opened(self, procedure: Procedure) -> Iterator[None]:
        self._open.append(procedure)
        try:
            yield
        finally:
            self._open.pop()

    def _look_for(self, function: types.FunctionType, arguments: dict[str, Any]) -> None:
        here, levels = depth(), 0
        for before in reversed(self._activations):
            if before.depth == here or not _same_function(before.function, function):
                continue
            less = _progress(before.arguments, arguments)
            levels += 1
            if less == 0 or (less == 1 and levels >= _LEVELS and function.__code__ not in self._unrolled):
                raise Recursive(function.__code__, may_end=less == 1)


def _same_function(a: types.FunctionType, b: types.FunctionType) -> bool:
    """Whether two functions do the same: a nested one is another object each time that the function around it runs."""
    if a is b:
        return True
    cells = a.__closure__ or (), b.__closure__ or ()
    return a.__code__ is b.__code__ and all(x is y or _held(x) is _held(y) for x, y in zip(*cells, strict=True))


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def _progress(before: Any, now: Any) -> int:
    """How two values differ: 0: at most in data-dependent values, 1: in known numbers, 2: in something else."""
    if before is now:
        return 0
    if isinstance(before, Tensor) and isinstance(now, Tensor):
        if before.dtype != now.dtype or before.dim() != now.dim():
            return 2
        return max((_progress(a, b) for a, b in zip(before.shape, now.shape, strict=True)), default=0)
    if is_scalar(before) and is_scalar(now):
        return 0 if isinstance(before, SYMBOLIC) or isinstance(now, SYMBOLIC) or before == now else 1
    if type(before) is not type(now):
        return 2
    a, b = parts(before), parts(now)
    if a is not None and b is not None and list(a) == list(b):
        return max((_progress(a[key], b[key]) for key in a), default=0)
    try:
        return 0 if a is None and b is None and bool(before == now) else 2
    except Exception:
        return 2


def endless(error: BaseException) -> errors.CompileError | None:
    """What went wrong, if it is that functions call each other without end."""
    for reason in reasons(error):
        if isinstance(reason, RecursionError):
            frames = [f for f in traceback.extract_tb(reason.__traceback__) if is_users_file(f.filename)]
            lines = Counter(f"{f.filename}:{f.lineno}" for f in frames).most_common(1)
            return errors.TreeError("import", _NEVER_ENDS, lines[0][0] if lines else None)
    return None
