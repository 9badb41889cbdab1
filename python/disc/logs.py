"""The logger ``disc``: stages and their seconds at INFO, decisions at DEBUG.

``DISC_LOG=info`` (or ``debug``, ``warning``) in the environment writes it to stderr. PyTorch's own switch works, too:
``TORCH_LOGS="disc"`` is INFO, ``TORCH_LOGS="+disc"`` is DEBUG. A program sets up ``logging.getLogger("disc")`` itself.
"""

from __future__ import annotations

import logging
import os

VARIABLE = "DISC_LOG"
"""The environment variable that has the level."""
LEVELS = ("debug", "info", "warning", "error")

log = logging.getLogger("disc")


def configure(level: str | None = None) -> None:
    """Writes the logger to stderr from ``level`` on; None means what the environment says.

    Raises:
        ValueError: there is no such level.
    """
    source = "level" if level is not None else VARIABLE
    level = (os.environ.get(VARIABLE, "") if level is None else level).strip().lower()
    if not level:
        return
    if level not in LEVELS:
        raise ValueError(f"{source}: expected one of {', '.join(LEVELS)}, got {level!r}")
    log.setLevel(level.upper())
    if not any(getattr(handler, "_disc", False) for handler in log.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        handler._disc = True  # type: ignore[attr-defined]
        log.addHandler(handler)


configure()
