"""A compiled model as engines use it: opened in each process from one source, and called by flat lists of arrays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from ..errors import ArgumentTypeError, ArgumentValueError
from ..interface import Interface, SymbolSpec, TensorSpec
from ..library import Library, _open, _Source, load

if TYPE_CHECKING:
    from ..model import Model

    Compiled = Library | Model
    Source = str | os.PathLike[str] | Library | Model | Callable[[int], Compiled]


@dataclass(frozen=True)
class PortableSource:
    """A source of a model that can be pickled, and opened in any process that finds its files."""

    kind: str
    """``"file"``, ``"library"``, ``"model"`` or ``"function"``."""
    value: Any
    name: str
    """A name for people: that of the library or file."""
    trust_files: bool = False

    def open(self, threads: int) -> ServedModel:
        """The model in this process, with this number of threads; raises what :func:`disc.load` raises."""
        if self.kind == "file":
            return ServedModel(load(self.value, threads=threads, trust_files=self.trust_files))
        if self.kind == "library":
            return ServedModel(_open(replace(self.value, threads=threads)))
        if self.kind == "model":
            from .. import saved

            return ServedModel(saved.from_bytes(self.value, threads=threads))
        model = self.value(threads)
        if not is_compiled(model):
            raise ArgumentTypeError(
                f"source: the function must return a disc.Model or a disc.Library, got {type(model).__name__}"
            )
        return ServedModel(model)


def portable(source: Source, *, trust_files: bool = False) -> PortableSource:
    """A source for other processes.

    Args:
        source: the path of a library or of a saved model; such a model itself; or a function of the number of threads
            that returns one, which each process calls. A relative path that exists here becomes absolute.
        trust_files: as for :func:`disc.load`.

    Raises:
        ArgumentTypeError: the source is something else.
        ProgramError: a model that cannot be saved.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        absolute = os.path.abspath(path)
        return PortableSource("file", absolute if os.path.exists(absolute) else path, _stem(path), trust_files)
    if isinstance(source, Library):
        held: _Source = source._source
        return PortableSource("library", held, source.name)
    if _is_model(source):
        from .. import saved

        return PortableSource("model", saved.to_bytes(source), "model")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        raise ArgumentTypeError(
            "source: expected a compiled model, got a torch.nn.Module; pass disc.compile(module, ...), or a function "
            "that compiles it in each process: lambda threads: disc.compile(module, ..., "
            "options=disc.Options(threads=threads))"
        )
    if callable(source):
        return PortableSource("function", source, getattr(source, "__name__", "model").strip("<>"))
    raise ArgumentTypeError(
        "source: expected the path of a library or saved model, a disc.Library, a disc.Model, or a function that "
        f"returns one, got {type(source).__name__}"
    )


def _stem(path: str) -> str:
    stem = os.path.basename(path).partition(".")[0]
    return stem.removeprefix("lib") or stem


def is_compiled(value: Any) -> TypeGuard[Compiled]:
    """Whether it is a library or a model, and not where to get one from."""
    return isinstance(value, Library) or _is_model(value)


def _is_model(value: Any) -> TypeGuard[Model]:
    """Whether it is a :class:`disc.Model`; without importing torch."""
    module = sys.modules.get("disc.model")
    return module is not None and isinstance(value, module.Model)


class ServedModel:
    """A library or model behind one interface: arguments to a flat list of arrays, a run, and the caller's result."""

    def __init__(self, model: Compiled) -> None:
        self.model = model
        self.interface = _interface(model)

    @property
    def has_state(self) -> bool:
        """Whether calls update an input, a buffer or a parameter."""
        model = self.model
        if any(spec.updated for spec in self.interface.inputs):
            return True
        if isinstance(model, Library):
            return any(spec.updated for spec in model.parameters)
        return bool(model.state())

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A call of the model itself."""
        return self.model(*args, **kwargs)

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The inputs in the order of ``interface.inputs``; raises the model's error for another structure."""
        if isinstance(self.model, Library):
            return list(self.model._bind(tuple(args), dict(kwargs)))
        return list(self.model._flatten(tuple(args), dict(kwargs)))

    def run(self, flat: Sequence[Any]) -> Sequence[Any]:
        """The results in the order of ``interface.outputs``."""
        if isinstance(self.model, Library):
            return self.model._run(tuple(flat), None)  # type: ignore[no-any-return]
        return self.model._run(flat)

    def result(self, results: Sequence[Any], flat: Sequence[Any]) -> Any:
        """What a call with the inputs ``flat`` returns, of its ``results``."""
        if isinstance(self.model, Library):
            return results[0] if len(results) == 1 else self.model._results(results)
        return self.model._program.unflatten(results, flat)

    def leaves(self, result: Any) -> Sequence[Any]:
        """The arrays in what a call returns, in the order of ``interface.outputs``."""
        if isinstance(self.model, Library):
            return result if isinstance(result, tuple) else (result,)
        import torch

        from ..torch_compat import pytree

        return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]

    def array(self, array: np.ndarray[Any, Any]) -> Any:
        """An array of NumPy as the model takes it: itself, or a tensor of torch."""
        if isinstance(self.model, Library) and self.model.device == "cpu":
            return array
        import torch

        device = self.model.device if isinstance(self.model, Library) else self.model._executable.device  # type: ignore[union-attr]
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        return tensor if device == "cpu" else tensor.to(device)

    def swap_weights(self, path: str) -> None:
        """Takes other weights from a safetensors file; see :meth:`disc.Library.swap_weights`."""
        if not isinstance(self.model, Library):
            raise ArgumentValueError(
                "weights: only a library of disc.aot_compile can take other weights while it is served, and this is a"
                " disc.Model; deploy it again"
            )
        self.model.swap_weights(path)


def _interface(model: Compiled) -> Interface:
    """The tensors that a run takes and returns."""
    if isinstance(model, Library):
        inputs, outputs = list(model.inputs), list(model.outputs)
        symbols = list(model.symbols)
    else:
        if model._executable is None:
            model._not_built(())
        assert model._executable is not None
        found = model._executable.info()
        inputs = [TensorSpec(*tensor) for tensor in found["inputs"]]
        outputs = [TensorSpec(*tensor) for tensor in found["outputs"]]
        symbols = [SymbolSpec(*symbol) for symbol in found["symbols"]]
    sizes = {name for spec in inputs for dim in spec.expressions() for name in dim.symbols()}
    return Interface(inputs, outputs, [replace(s, computed=s.name not in sizes) for s in symbols])
