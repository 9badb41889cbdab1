"""Programs of others that the compiler uses where they are there."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path


def find_ptxas() -> str:
    """NVIDIA's assembler: the one on PATH, or that of the package ``nvidia-cuda-nvcc``; "" if there is neither."""
    found = shutil.which("ptxas")
    if found:
        return found
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        # nvidia/cu13/bin, and nvidia/cuda_nvcc/bin of versions before 13; the newest first.
        for path in sorted(Path(root).glob("cu*/bin/ptxas"), reverse=True):
            if os.access(path, os.X_OK):
                return str(path)
    return ""
