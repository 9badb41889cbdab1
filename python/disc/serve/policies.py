"""How requests of unequal shapes become one call of a model: the user's choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import ArgumentTypeError, ArgumentValueError


@dataclass(frozen=True)
class Policy:
    """What all policies say; use :class:`Stacked`, :class:`Padded` or :class:`Ragged`."""

    along: str = "batch"
    """The symbolic size along which requests are joined, by its name in the model's inputs (``"batch"``)."""
    requests: int = 32
    """The most requests that are joined."""
    wait_s: float = 0.005
    """Seconds that the first request of a batch waits for others."""
    limit: int | None = None
    """The largest size of ``along`` in one call; None: the model's own limit. A larger request is a call of its own."""

    def __post_init__(self) -> None:
        if not isinstance(self.along, str):
            raise ArgumentTypeError(f"along: expected the name of a symbolic size, got {self.along!r}")
        for name, least in (("requests", 1), ("limit", 1), ("wait_s", 0)):
            value = getattr(self, name)
            if value is None and name == "limit":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float if name == "wait_s" else int):
                raise ArgumentTypeError(f"{name}: expected a number, got {value!r}")
            if not value >= least:
                raise ArgumentValueError(f"{name}: expected at least {least}, got {value!r}")


@dataclass(frozen=True)
class Stacked(Policy):
    """Joins requests whose other sizes are equal: nothing is padded.

    >>> Stacked(along="batch", requests=64)
    """


@dataclass(frozen=True)
class Padded(Policy):
    """Pads sizes to the largest of the requests, joins the requests, and cuts the results to their own sizes.

    The model must ignore what it finds behind the end of a request, such as tokens whose mask is 0.

    >>> Padded(along="batch", dims=("length",), mask="attention_mask", values={"input_ids": 0})
    """

    dims: tuple[str, ...] = ("length",)
    """The symbolic sizes that are padded."""
    values: Mapping[str, float | int | bool] = field(default_factory=dict)
    """What inputs are padded with, by their names; the others with 0."""
    mask: str | None = None
    """The input that is the mask. It is padded with 0, and may be missing in a request: it is 1 then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.dims, str) or not all(isinstance(name, str) for name in self.dims):
            raise ArgumentTypeError(f"dims: expected names of symbolic sizes, got {self.dims!r}")
        if not self.dims:
            raise ArgumentValueError("dims: expected at least one size to pad; Stacked joins requests of equal shapes")
        if self.along in self.dims:
            raise ArgumentValueError(f"dims: {self.along!r} is the size along which requests are joined")


@dataclass(frozen=True)
class Ragged(Policy):
    """Joins requests one after the other along a size such as the number of tokens: nothing is padded.

    >>> Ragged(along="tokens", offsets=("offsets",))
    """

    along: str = "tokens"
    offsets: tuple[str, ...] = ()
    """The inputs and results that are offsets into ``along``: integers from 0 to its size, one more than there are
    sequences. Those of a request are shifted. An input may be missing in a request: it is ``[0, size]`` then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.offsets, str) or not all(isinstance(name, str) for name in self.offsets):
            raise ArgumentTypeError(f"offsets: expected names of inputs and results, got {self.offsets!r}")
