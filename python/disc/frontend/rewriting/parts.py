"""Lists of a length that is known at run time only: lists with parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn


class Part:
    """An element of a list that stands for as many as is known at run time only."""

    joins: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """What functions of torch do with lists that have such elements."""
    differs: ClassVar[bool] = False
    """Whether it stands for elements that are not rows of one tensor: tensors that differ in a size, or tuples."""

    @property
    def count(self) -> Any:
        """How many elements it stands for."""
        raise NotImplementedError

    def _fail(self, *_: Any) -> NoReturn:
        raise NotImplementedError(
            "a list whose length depends on data can be stacked, concatenated, counted, indexed, sliced, iterated over"
        )

    __getitem__ = __iter__ = __bool__ = __call__ = __add__ = __radd__ = __mul__ = __rmul__ = __len__ = _fail
    __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __matmul__ = __lt__ = __gt__ = __le__ = __ge__ = __eq__ = _fail  # type: ignore[assignment]
    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Joins what a list with such parts in it holds."""
        join = Part.joins.get(func)
        if join is None:
            cls._fail(cls.__new__(cls))
        return join(*args, **(kwargs or {}))


def has_parts(value: Any) -> bool:
    """Whether a value is a list or tuple of a length that is known at run time only."""
    return isinstance(value, (list, tuple)) and any(isinstance(x, Part) for x in value)


def length(value: Sequence[Any]) -> Any:
    """How many elements such a list has."""
    return sum(x.count if isinstance(x, Part) else 1 for x in value)
