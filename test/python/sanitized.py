"""Sanitized models for a whole run of tests."""

from typing import Any

from disc import Options


def enable() -> None:
    """From here on, options for the CPU have ``sanitize`` set, also those that DISC makes itself."""
    check = Options.__post_init__

    def sanitize(self: Any) -> None:
        on_cpu = (self.target or "cpu").partition(":")[0] == "cpu" and self.pipeline is None
        object.__setattr__(self, "sanitize", on_cpu)
        check(self)

    Options.__post_init__ = sanitize  # type: ignore[method-assign]
