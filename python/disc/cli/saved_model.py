"""A model that ``model.save`` wrote, with the interface of a library, for ``disc run`` and ``disc bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import __version__
from ..interface import SymbolSpec, TensorSpec
from . import text


class SavedModel:
    """Takes torch tensors in the order of its inputs, or by their names, and returns all results in a tuple."""

    version = __version__
    """Files are for the version that wrote them."""
    cpu = "this machine"

    def __init__(self, path: str, threads: int | None = None) -> None:
        from .. import load
        from ..model import Model

        model = load(path, threads=threads)
        assert isinstance(model, Model)
        self._model = model
        self.name = model.name
        self.threads = model.threads
        self.inputs = tuple(tensor_spec(i.name, i.dtype, i.dims) for i in model.inputs)
        self.symbols = tuple(SymbolSpec(s.name, s.min, s.max, computed=s.data_dependent) for s in model.symbols)
        about = model._built().info()
        self.outputs = tuple(tensor_spec(name, dtype, dims) for name, dtype, dims in about["outputs"])
        weights = model._loaded_parameters
        self.parameters = tuple(tensor_spec(n, t.dtype, tuple(t.shape)) for n, t in weights.items())

    def __call__(self, *inputs: Any, **named: Any) -> tuple[Any, ...]:
        """Runs the model."""
        return self._model._run((*inputs, *(named[spec.name] for spec in self.inputs[len(inputs) :])))


def is_saved(path: str) -> bool:
    """Whether a file is what ``model.save`` wrote; CommandError if it cannot be read."""
    from .. import library

    try:
        return library._is_saved(Path(path))
    except OSError as error:
        text.fail(text.reason(error))


def tensor_spec(name: str, dtype: Any, dims: Any) -> TensorSpec:
    """A tensor of a model; CommandError for an element type that NumPy's random numbers cannot fill."""
    try:
        return TensorSpec(name, str(dtype).removeprefix("torch."), tuple(dims))
    except ValueError as error:
        text.fail(f"tensors of this kind cannot be made at random: {error}")


def as_tensor(array: Any) -> Any:
    """A NumPy array as a torch tensor."""
    import torch

    return torch.tensor(array.astype("f4")).bfloat16() if array.dtype.name == "bfloat16" else torch.from_numpy(array)
