"""AMD's zentorch: Inductor's front end with AMD's own library behind it. Only on AMD's processors."""

from __future__ import annotations

from . import inductor


class Peer(inductor.Peer):
    """torch.compile for dynamic shapes with its backend."""

    title = "zentorch"
    packages = ("zentorch", "torch")
    imports = ("torch._dynamo", "torch._inductor.compile_fx", "zentorch")
    environment = ".venv-zentorch"
    backend = "zentorch"
