"""The class that a back end is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from .code import Code
from .graph import Condition
from .patterns import Pattern
from .region import Region

API_VERSION = 1
"""Raised when back ends must change."""


class Backend(ABC):
    """Compiles parts of models: a vendor's library, or a compiler.

    A package names its class among its entry points, in the group ``disc.backends``; the name there is the one that
    ``disc.compile(..., backends=[name])`` takes. The class is created without arguments, once for each compilation. In
    order, the compiler calls:

    1. :meth:`patterns`, and for each match the pattern's ``check``;
    2. :meth:`accept` for each region: operations of matches that the host put together. A region is convex, its
       results are computed by it alone, and everything in it is in one block;
    3. :meth:`prefer` for each accepted region;
    4. :meth:`compile` for each region that is not refused.

    What no back end takes, the host compiles. An operation that it cannot compile (:attr:`Operation.unsupported`) must
    be taken: :meth:`prefer` is not asked about its region. Methods may raise anything: compiling then ends with a
    :class:`disc.BackendError` that names the back end, the region and its source lines.
    """

    name: ClassVar[str]
    """As in the entry point."""
    api_version: ClassVar[int] = API_VERSION
    merges: ClassVar[bool] = True
    """Whether a region may contain several matches; otherwise each match is a region."""

    @abstractmethod
    def patterns(self) -> Iterable[Pattern]:
        """The operations that it can compile. A larger match goes before a smaller one."""

    def accept(self, region: Region) -> str | None:
        """None, or why it does not take the region after all."""
        return None

    def prefer(self, region: Region) -> Condition | bool:
        """At which sizes the back end is faster than the host: ``region.results[0].dims[0] >= 32``. The model then
        contains both and decides in each call. False leaves the region to the host."""
        return True

    @abstractmethod
    def compile(self, region: Region) -> Code:
        """The code of a region."""
