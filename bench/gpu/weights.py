"""Weights that do not travel: a library contains the code, and the machine that runs it makes weights of its own.

Beside `libNAME.so` lies `NAME.constants.pt`: the names of all parameters of the library, and the contents of those that
are not the module's (constants which the compiler made while it traced).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]


def constants_file(folder: Path, name: str) -> Path:
    """What lies beside the library."""
    return folder / f"{name}.constants.pt"


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def write_constants(written: Path, module: nn.Module, to: Path) -> None:
    """From the file of weights that `disc.aot_compile` wrote for the module."""
    with written.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        begin = file.tell()
        header.pop("__metadata__", None)
        own = _tensors(module)
        constants: dict[str, Tensor] = {}
        dtypes = {name: dtype for dtype, name in _format().NAMES.items()}
        for name, entry in header.items():
            dtype = dtypes[entry["dtype"]]
            if name in own and list(own[name].shape) == entry["shape"] and own[name].dtype == dtype:
                continue
            first, last = entry["data_offsets"]
            file.seek(begin + first)
            data = torch.frombuffer(bytearray(file.read(last - first)), dtype=dtype) if last > first else torch.empty(0)
            constants[name] = data.to(dtype).reshape(entry["shape"])
    torch.save((sorted(header), constants), to)


def write(folder: Path, name: str, module: nn.Module, to: Path) -> None:
    """The file of weights for a library, from a module like that which it was compiled from."""
    names, constants = torch.load(constants_file(folder, name))
    own = _tensors(module)
    _format().write_weights(to, {n: constants[n] if n in constants else own[n] for n in names})


def _format() -> ModuleType:
    """DISC's writer of such files, without the compiler."""
    name = "disc_file_of_weights"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "python/disc/weights.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
