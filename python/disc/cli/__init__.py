"""The commands ``disc-compile`` and ``disc-run``."""
