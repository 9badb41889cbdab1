"""The command ``disc`` and its subcommands: the same as ``disc-compile``, ``disc-run`` and ``disc-opt``."""
