"""Compiled models in files: ``model.save("model.disc")`` and ``disc.load("model.disc")``.

A file is in the safetensors format, so its weights can be read by others. Beside the weights it has the machine code
and the description of the interface, as tensors of bytes. Loading links the code and packs the weights: no stage of
the compiler runs.

The weights are those of the module. If the module no longer exists, the file has the packed weights, which the code
reads.
"""

from __future__ import annotations

import inspect
import io
import json
import mmap
import os
import pickle
import threading
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import __version__, _native, caches
from .errors import ArgumentValueError, LibraryError, ProgramError, WeightsError
from .frontend import ImportedProgram
from .frontend.program import signless
from .weight_watch import WeightWatch
from .weights import NAMES, StoredBytes, StoredTensor, header_hash, write_weights

if TYPE_CHECKING:
    from .model import Model

FORMAT = "2"
"""Raised with every change of what a file contains."""

_KEY = "disc.model"
_PROGRAM = "disc.program"

# The attributes of a program that a file needs; the tensors are stored separately.
_FIELDS = (
    "inputs",
    "outputs",
    "output_names",
    "symbols",
    "in_spec",
    "out_spec",
    "states",
    "trees",
    "nested",
    "returns_nested",
    "constants",
    "same_caches",
    "dynamic_report",
    "_symbol_places",
)


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Writes a model to a file, which appears when it is complete.

    Raises:
        ProgramError: something in the model belongs to this process.
        OSError: the file cannot be written.
    """
    tensors, metadata = _contents(model)
    target = Path(path)
    if not target.name:
        raise ArgumentValueError(f"save: expected the name of a file, got {os.fspath(path)!r}")
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}.unfinished")
    try:
        with open(unfinished, "wb") as file:
            write_weights(file, tensors, metadata)
        os.replace(unfinished, target)
    except OSError as error:
        # With the user's file, and not with the name that it has until it is complete.
        raise type(error)(error.errno, _problem(target, error), os.fspath(path)) from None
    finally:
        unfinished.unlink(missing_ok=True)


def _problem(target: Path, error: OSError) -> str:
    if not target.parent.is_dir():
        return f"the folder {os.fspath(target.parent)!r} does not exist"
    return error.strerror or str(error)


def to_bytes(model: Model) -> bytes:
    """The file that :func:`save` writes, as bytes."""
    file = io.BytesIO()
    write_weights(file, *_contents(model))
    return file.getvalue()


def from_bytes(content: bytes, threads: int | None = None) -> Model:
    """The model of :func:`to_bytes`."""
    return _model(bytearray(content), "a pickled model", threads, None, trust_files=False)


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, trust_files: bool = False, device: int = 0
) -> Model:
    """Reads a model from a file that :func:`save` wrote; see :func:`disc.load`."""
    with open(path, "rb") as file:
        # A page that is written to, such as one of a model's state, is this process's own.
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return _model(content, os.fspath(path), threads, device, trust_files=trust_files)


# -- Writing -----------------------------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Pickles the description of a program; of tensors their names."""

    def __init__(self, file: io.BytesIO, names: Mapping[int, str]) -> None:
        super().__init__(file, protocol=5)
        self._names = names
        self.others: dict[str, torch.Tensor] = {}

    def persistent_id(self, value: Any) -> str | None:
        """The name of a tensor; None for other values."""
        if not isinstance(value, torch.Tensor):
            return None
        if id(value) in self._names:
            return self._names[id(value)]
        name = f"disc.tensor.{len(self.others)}"
        self.others[name] = value
        return name


def _contents(model: Model) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors and the metadata of a file."""
    executable, program = model._executable, model._program
    if executable is None:
        raise ProgramError("save", "the compilation stopped before there was code: there is nothing to save")
    if program.fallbacks.functions:
        names = ", ".join(sorted({used.op for used in program.fallbacks.used}))
        raise ProgramError(
            "save",
            f"PyTorch does operations of this model in this process: {names}",
            help="save a model without fallback=True",
        )
    others = sorted({decision.backend for decision in model.backends if decision.backend})
    if others:
        raise ProgramError(
            "save",
            f"back ends compiled a part of this model: {', '.join(others)}",
            help="a library contains their code: disc.aot_compile(..., backends=...)",
        )
    parameters = model._weights.current() if model._weights is not None else None
    tensors: dict[str, StoredTensor] = {}
    forms: dict[str, tuple[str, list[int]]] = {}
    if parameters is not None:
        for name, tensor in parameters.items():
            tensors[name], forms[name] = _stored(tensor)
    else:
        for name, dtype, shape, data in executable.kept():
            tensors[name], forms[name] = StoredBytes(data), (dtype, list(shape))
        for i, data in enumerate(executable.globals()):
            tensors[f"disc.packed.{i}"] = StoredBytes(data)

    description = io.BytesIO()
    # State is kept in either case.
    named = program.states if parameters is None else parameters
    pickler = _Pickler(description, {id(t): name for name, t in named.items()})
    described = {name: getattr(program, name) for name in _FIELDS}
    described |= {
        "signature": _without_annotations(model._signature),
        "frozen_floats": None if program.frozen_floats is None else str(program.frozen_floats.diagnostic),
        "pipeline": model._pipeline,
        "texts": {name: zlib.compress(text.encode(), 6) for name, text in model._texts.items()},
        "timings": model.timings,
        "name": model.name,
        "state_dict": _state_dict_names(model, parameters),
    }
    try:
        pickler.dump(described)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ProgramError(
            "save",
            f"a part of the model's interface cannot be pickled: {error}",
            help="define classes of arguments and results at the top level of a module; trees cannot be saved: write a"
            " library with disc.aot_compile",
        ) from error
    for name, tensor in pickler.others.items():
        tensors[name], forms[name] = _stored(tensor)
    tensors[_PROGRAM] = StoredBytes(np.frombuffer(description.getvalue(), np.uint8))
    for i, code in enumerate(executable.objects()):
        tensors[f"disc.object.{i}"] = StoredBytes(np.frombuffer(code, np.uint8))
    needs = _native.Module.parse(next(reversed(model._texts.values()))).needs()
    metadata = {
        _KEY: FORMAT,
        "disc": __version__,
        "torch": torch.__version__,
        "device": executable.device,
        "packed": str(parameters is None),
        "needs": json.dumps(needs),
        "forms": json.dumps(forms),
    }
    return tensors, metadata


def _stored(tensor: torch.Tensor) -> tuple[StoredTensor, tuple[str, list[int]]]:
    """A tensor as it is stored in a file, with its dtype and shape."""
    dtype = tensor.dtype
    data = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    form = (str(dtype).removeprefix("torch."), list(tensor.shape))
    if dtype in NAMES:
        return data, form
    return StoredBytes(data.reshape(-1).view(torch.uint8).numpy()), form


def _state_dict_names(model: Model, parameters: Mapping[str, torch.Tensor] | None) -> dict[str, str | None]:
    """The names of the module's ``state_dict``, with the parameters that they are; None for one that nothing reads."""
    if parameters is None:
        return {}
    module = model.module
    names = {id(t): name for name, t in parameters.items()}
    if module is None:
        return dict(model._state_dict_names)
    return {key: names.get(id(t)) for key, t in module.state_dict(keep_vars=True).items()}


def _without_annotations(signature: inspect.Signature | None) -> inspect.Signature | None:
    """A signature with only names and defaults: annotations may be any objects."""
    if signature is None:
        return None
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return inspect.Signature(parameters)


# -- Reading -----------------------------------------------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    """Reads a description, with tensors by their names."""

    def __init__(self, data: bytes, tensor: Any) -> None:
        super().__init__(io.BytesIO(data))
        self._tensor = tensor

    def persistent_load(self, name: str) -> torch.Tensor:
        """The tensor of a name."""
        return self._tensor(name)  # type: ignore[no-any-return]


class _File:
    """The tensors of a file in memory."""

    def __init__(self, content: Any, name: str) -> None:
        self.content, self.name = content, name
        size = int.from_bytes(content[:8], "little")
        try:
            if size + 8 > len(content):
                raise ValueError
            header = json.loads(bytes(content[8 : 8 + size]))
            self.metadata: dict[str, str] = header["__metadata__"]
            self._digest = header_hash(header)
            self._start = 8 + size
            self.entries: dict[str, tuple[int, int, str, list[int]]] = {
                name: (8 + size + e["data_offsets"][0], 8 + size + e["data_offsets"][1], e["dtype"], e["shape"])
                for name, e in header.items()
                if name != "__metadata__"
            }
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise LibraryError(f"{name}: the file is damaged, or not a saved model") from None
        end = max((end for _, end, *_ in self.entries.values()), default=0)
        if _KEY not in self.metadata or end > len(content) or _PROGRAM not in self.entries:
            raise LibraryError(f"{name}: the file is damaged, or not a saved model")
        self.forms: dict[str, tuple[str, list[int]]] = {}
        """The dtype and shape of each tensor that is one of the model's."""

    def check(self) -> None:
        """LibraryError if the file is not what was written."""
        digest = self._digest.copy()
        with memoryview(self.content) as view:
            for begin in range(self._start, len(view), 1 << 24):
                with view[begin : begin + (1 << 24)] as part:
                    digest.update(part)
        if digest.hexdigest() != self.metadata.get("sha256"):
            raise LibraryError(f"{self.name}: the file is damaged: its contents do not have the recorded hash")

    def bytes(self, name: str) -> bytes:
        """The contents of a tensor of bytes; packed ones are followed by zeros."""
        start, end, *_ = self.entries[name]
        return bytes(self.content[start:end])

    def raw(self, name: str) -> torch.Tensor:
        """The bytes of a tensor, in the file's memory."""
        if name not in self.entries:
            raise LibraryError(f"{self.name}: the file is damaged: it has no {name!r}")
        start, end, *_ = self.entries[name]
        if start == end:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self.content, dtype=torch.uint8, offset=start, count=end - start)

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor in the file's memory, with the dtype and shape that it had."""
        raw = self.raw(name)
        dtype, shape = self.forms[name]
        kind: torch.dtype = getattr(torch, dtype)
        count = int(np.prod(shape, dtype=np.int64))
        return raw[: count * kind.itemsize].view(kind).reshape(shape)


def _model(content: Any, name: str, threads: int | None, device: int | None, *, trust_files: bool) -> Model:
    from .model import Model

    file = _File(content, name)
    _check_versions(file)
    if not trust_files:
        file.check()
    _check_machine(file, json.loads(file.metadata["needs"]))
    file.forms = json.loads(file.metadata["forms"])
    place = _device(file.metadata["device"], device)
    tensors: dict[str, torch.Tensor] = {}

    def tensor(key: str) -> torch.Tensor:
        if key not in tensors:
            tensors[key] = file.tensor(key).to(place)
        return tensors[key]

    caches.register()
    try:
        with warnings.catch_warnings():
            # PyTorch's own structures of arguments are read with a deprecated check.
            warnings.simplefilter("ignore", FutureWarning)
            about = _Unpickler(file.bytes(_PROGRAM), tensor).load()
    except (ModuleNotFoundError, AttributeError) as error:
        raise LibraryError(f"{name}: a class of the model's arguments or results is not here: {error}") from error
    caches.register()  # Some classes of caches may have come with the description.
    objects = [file.bytes(key) for key in file.entries if key.startswith("disc.object.")]
    executable = _native.link(objects, torch.Tensor, threads=threads or 0, device=place.index or 0)
    info = executable.info()
    packed = [key for key in file.entries if key.startswith("disc.packed.")]
    program = ImportedProgram(
        text="", parameters={}, exported=None, signature=about["signature"], **{key: about[key] for key in _FIELDS}
    )
    if about["frozen_floats"] is not None:
        program.frozen_floats = ProgramError("import", about["frozen_floats"])
    watched = None
    parameters: dict[str, torch.Tensor] = {}
    if file.metadata["packed"] == str(True):
        kept = [tensor(key) if key in file.entries else None for key in info["parameters"]]
        executable.restore(kept, [file.raw(f"disc.packed.{i}") for i in range(len(packed))])
    else:
        parameters = {key: tensor(key) for key in info["parameters"]}
        executable.init([signless(parameters[key]) for key in info["parameters"]])
        watched = WeightWatch(None, parameters, program.states, signless)
        watched.start(executable)
    if isinstance(content, mmap.mmap):
        # The weights that were read to be packed are not needed again before they change.
        content.madvise(mmap.MADV_DONTNEED)
    texts = {key: zlib.decompress(text).decode() for key, text in about["texts"].items()}
    model = Model(
        program, about["pipeline"], texts, executable, about["timings"], about["signature"], watched, name=about["name"]
    )
    model._loaded_parameters = parameters
    model._state_dict_names = about["state_dict"]
    return model


def _check_versions(file: _File) -> None:
    """LibraryError if another version wrote the file, which describes objects of DISC and of PyTorch."""
    here = {_KEY: FORMAT, "disc": __version__, "torch": torch.__version__}
    for key, what in ((_KEY, "format"), ("disc", "DISC"), ("torch", "PyTorch")):
        if file.metadata.get(key) != here[key]:
            raise LibraryError(
                f"{file.name}: written with {what} {file.metadata.get(key)}, and this is {what} {here[key]}; compile"
                " the model again, or write a library with disc.aot_compile, which later versions can load",
                reason="version",
            )


def _check_machine(file: _File, needs: Mapping[str, str]) -> None:
    own = _native.host_target()["machine"]
    if needs["machine"] != own:
        raise LibraryError(f"{file.name}: code for {needs['machine']}, and this machine is {own}", reason="target")
    if missing := _native.missing_features(needs["features"]):
        raise LibraryError(
            f"{file.name}: code for {needs['cpu']}, and this CPU lacks {missing}; compile with"
            " disc.Options(cpu='x86-64-v3'), or for another kind of CPU that both machines are",
            reason="target",
        )


def _device(name: str, number: int | None) -> torch.device:
    """The device of the tensors of a model that was compiled for this one."""
    kind, _, index = name.partition(":")
    if kind != "cuda":
        return torch.device("cpu")
    return torch.device(kind, int(index or 0) if number is None else number)


def state_dict(model: Model) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a model that was loaded, under the names of its module."""
    _check_parameters(model)
    found = {key: name for key, name in model._state_dict_names.items() if name is not None}
    return {key: model._loaded_parameters[name] for key, name in found.items() if name in model._loaded_parameters}


def load_state_dict(model: Model, values: Mapping[str, torch.Tensor], strict: bool) -> tuple[list[str], list[str]]:
    """Copies values to the parameters of a loaded model; returns the missing and the unexpected names."""
    own = state_dict(model)
    missing = [key for key in own if key not in values]
    unexpected = [key for key in values if key not in model._state_dict_names]
    wrong = [
        f"{key}: expected shape {tuple(own[key].shape)}, got {tuple(values[key].shape)}"
        for key in own
        if key in values and own[key].shape != values[key].shape
    ]
    problems = [*wrong]
    if strict:
        problems += [f"{key} is missing" for key in missing] + [
            f"{key} is not a parameter of the model" for key in unexpected
        ]
    if problems:
        raise WeightsError(f"load_state_dict: {'; '.join(problems)}")
    with torch.no_grad():
        for key, tensor in own.items():
            if key in values:
                tensor.copy_(values[key])
    return missing, unexpected


def _check_parameters(model: Model) -> None:
    if not model._state_dict_names:
        raise ProgramError(
            "load",
            "the model has packed weights alone: it was compiled without a module, or with keep_module=False and its"
            " module is gone",
            help="compile the module itself, without keep_module=False; an ONNX model's weights are in its file",
        )
