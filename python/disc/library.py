"""Compiled libraries in Python: the code that C and C++ programs link, without torch and without the compiler."""

from __future__ import annotations

import functools
import importlib
import math
import os
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import _runtime
from .byte_sizes import parse_bytes
from .errors import ArgumentTypeError, ArgumentValueError, CallError, raise_coded
from .interface import SymbolSpec, TensorSpec

if TYPE_CHECKING:
    from .model import Model

_MAX_THREADS = 4096
# The start of a safetensors file with metadata: the size of its header, then the header.
_START, _METADATA = 8, b'{"__metadata__"'


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    weights: str | os.PathLike[str] | None = None,
    trust_files: bool = False,
    device: int = 0,
    memory_budget: int | str | None = None,
) -> Library | Model:
    """Loads a compiled model from a file. Nothing is compiled.

    The file is either a library, which :func:`disc.aot_compile` or ``disc compile`` wrote and which needs only NumPy,
    or a file of :meth:`disc.Model.save`, ``model.disc``, which needs the package that compiled it. Loading runs the
    code in the file, so load only files that you trust.

    Args:
        path: the file, ``libminilm.so``. A library remains in the process, even if nothing uses it.
        threads: threads of one call, the caller's included; None means every core this process may use.
        weights: for a library, a safetensors file with the weights; None means the weights in the library, or in the
            file beside it.
        trust_files: do not compare files with the checksums in the library. Formats and bounds are checked anyway.
        device: for a library for GPUs, the number of the GPU to run on.
        memory_budget: the limit for the memory that all calls hold at once, besides weights, inputs and outputs that
            the caller passes: bytes, or text such as ``"512MiB"``. None means the budget that the library was compiled
            with, if any. See :meth:`Library.set_memory_budget`.

    Raises:
        OSError: a file cannot be read (FileNotFoundError, ...).
        disc.LibraryError: a file has the wrong format, is damaged, or is for another machine or version.
        disc.WeightsError: the weights' names, dtypes, shapes or contents are not those of the library.
        MemoryError: there is not enough memory.
    """
    if threads is not None and (not isinstance(threads, int) or not 1 <= threads <= _MAX_THREADS):
        raise ArgumentValueError(f"threads: expected None or a number from 1 to {_MAX_THREADS}, got {threads!r}")
    budget = None if memory_budget is None else parse_bytes(memory_budget)
    if _is_saved(path):
        if weights is not None:
            raise ArgumentValueError(
                f"weights: {os.fspath(path)!r} is not a library; call model.load_state_dict for other weights"
            )
        model = _load_saved(path, threads, trust_files, device)
        if budget is not None:
            model.set_memory_budget(budget)
        return model
    source = _Source(_readable(path), threads, None if weights is None else _readable(weights), trust_files, device)
    return _open(source if budget is None else replace(source, memory=(budget, True)))


def _is_saved(path: str | os.PathLike[str]) -> bool:
    """Whether a file is one that :meth:`disc.Model.save` wrote, by its first bytes."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return False
    with open(path, "rb") as file:
        return file.read(_START + len(_METADATA))[_START:] == _METADATA


def _load_saved(path: str | os.PathLike[str], threads: int | None, trust_files: bool, device: int) -> Model:
    try:
        from . import saved
    except ImportError as error:
        raise ImportError(
            f"{os.fspath(path)}: a file of disc.Model.save needs disc-compiler and torch ({error}); write a"
            " library with disc.aot_compile for machines without it"
        ) from error
    return saved.load(path, threads=threads, trust_files=trust_files, device=device)


@dataclass(frozen=True)
class _Source:
    """The arguments that a library was loaded with, to load it again in another process."""

    path: bytes
    threads: int | None
    weights: bytes | None
    trust_files: bool
    device: int
    swapped: bytes | None = None
    seed: int | None = None
    memory: tuple[int, bool] | None = None
    """A budget, and whether calls wait for one another."""


def _open(source: _Source) -> Library:
    model = _runtime.Model(source.path, source.threads or 0, source.weights, source.trust_files, source.device)
    library = Library(model, source)
    if source.memory is not None:
        budget, waits = source.memory
        model.set_memory_budget(budget, fail=not waits)
    if source.swapped is not None:
        model.swap_weights(source.swapped)
    if source.seed is not None:
        model.seed(source.seed)
    return library


def _readable(path: str | os.PathLike[str]) -> bytes:
    """The path for C; raises Python's own errors if the file does not exist or cannot be read."""
    # Opening a pipe would wait for its other end.
    if stat.S_ISREG(os.stat(path).st_mode) or os.path.isdir(path):
        with open(path, "rb"):
            pass
    return os.fsencode(os.path.abspath(path))


class Results(tuple[Any, ...]):
    """Several results of a library: a tuple, and like a dict with the names of :attr:`Library.outputs`.

    >>> scores, boxes = library(image)
    >>> library(image)["boxes"]
    >>> dict(library(image))
    """

    __slots__ = ()
    names: tuple[str, ...] = ()

    def __getitem__(self, key: Any) -> Any:
        """A result by its number or name, or a tuple for a slice."""
        if isinstance(key, str):
            if key not in self.names:
                raise KeyError(f"{key!r}; the results are: {', '.join(self.names)}")
            key = self.names.index(key)
        return super().__getitem__(key)

    def keys(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    def __reduce__(self) -> tuple[Any, ...]:
        return _named_results, (self.names, tuple(self))

    def __repr__(self) -> str:
        return f"Results({', '.join(f'{name}={value!r}' for name, value in zip(self.names, self, strict=True))})"


@functools.cache
def _results_of(names: tuple[str, ...]) -> type[Results]:
    return type("Results", (Results,), {"names": names, "__slots__": (), "__doc__": Results.__doc__})


def _named_results(names: tuple[str, ...], values: tuple[Any, ...]) -> Results:
    return _results_of(names)(values)


class Library:
    """A compiled model from a library: call it with arrays, in the order of :attr:`inputs` or by their names.

    Arrays may be NumPy arrays, torch tensors, or anything with ``__dlpack__``, strided or not; they are not copied. If
    one of them is a torch tensor, the results are torch tensors, else NumPy arrays. A single result is returned as it
    is, several as :class:`Results`, a tuple with names.
    Several threads may call at once, and other Python threads keep running; calls of a model with state take turns.
    Inputs that are ``updated`` are written to.

    On a GPU, arrays must be contiguous tensors on that GPU. The work is put into the framework's current stream, and a
    call does not wait for it.

    A library can be pickled and sent to other processes, which load the same files with the same options, weights and
    seed. State that calls update starts with its initial values there.

    NumPy supports bfloat16 only with the package ``ml_dtypes``: without it, a model with bfloat16 results needs inputs
    or ``out`` of another framework.
    """

    def __init__(self, model: _runtime.Model, source: _Source) -> None:
        self._model = model
        self._source = source
        self._run = model.run
        about = model.describe()
        self.name: str = about["name"]
        """The library's name, as in ``disc_library_NAME``."""
        self.cpu: str = about["cpu"]
        """The kind of CPU whose code was chosen, ``"x86-64-v3"``."""
        self.threads: int = about["threads"]
        """The number of threads that a call may use."""
        self.device: str = about["device"] if about["device"] == "cpu" else f"{about['device']}:{about['device_id']}"
        """Where it runs: ``"cpu"``, ``"cuda:0"``, ..."""
        version = about["version"]
        self.version: str = f"{version >> 16}.{version >> 8 & 255}.{version & 255}"
        """The version of DISC that compiled it."""
        self.inputs: tuple[TensorSpec, ...] = _specs(model.inputs())
        """The inputs: names, dtypes and symbolic dims."""
        self.outputs: tuple[TensorSpec, ...] = _specs(model.outputs())
        """The outputs: names, dtypes and symbolic dims."""
        self.parameters: tuple[TensorSpec, ...] = _specs(model.parameters())
        """The weights: names, dtypes and dims."""
        self.symbols: tuple[SymbolSpec, ...] = tuple(SymbolSpec(*symbol) for symbol in model.symbols())
        """The dynamic sizes: names and ranges."""
        self._names = tuple(spec.name for spec in self.inputs)
        self._results = _results_of(tuple(spec.name for spec in self.outputs))

    def __call__(self, /, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Runs the model.

        Args:
            *args: the inputs, in order; the rest by name.
            out: an array for the result, or a sequence with an array or None for each of several results. They are
                written in place, may be strided, and must not overlap an input. If a size is known only after the
                run, the array may be larger, and the result is the part that was written.
            **kwargs: inputs by name.

        Raises:
            ShapeError: the model was not compiled for the rank or sizes of an input, or an output has the wrong shape.
            CallError: inputs are missing, or unknown.
            InputTypeError: the dtype or device of an input differs. Both are TypeErrors.
            TypeError: the dtype or device of an output differs.
            ValueError: an output, or an input that is updated, is read-only.
            IndexRangeError: an element of an input indexes beyond a dimension; an IndexError.
            MemoryError: there is not enough memory.
        """
        inputs = args if not kwargs and len(args) == len(self._names) else self._bind(args, kwargs)
        try:
            results = self._run(inputs, None if out is None else self._targets(out))
        except (TypeError, IndexError) as error:
            raise_coded(error)
            raise
        return results[0] if len(results) == 1 else self._results(results)

    def output_shapes(self, /, *args: Any, **kwargs: Any) -> tuple[tuple[int | None, ...], ...]:
        """The shape of each result of a call with these inputs; None for a size that is known only after the run.

        Reads only shapes and dtypes, and raises the errors that the call would raise for them.
        """
        return self._model.output_shapes(self._bind(args, kwargs))

    def swap_weights(self, path: str | os.PathLike[str]) -> None:
        """Loads other weights with the same names, dtypes and shapes from a safetensors file.

        Running calls end with the weights they began with. After an error the old weights remain.

        Raises:
            OSError: the file cannot be read or is damaged.
            disc.WeightsError: names, dtypes or shapes are not the model's.
        """
        file = _readable(path)
        self._model.swap_weights(file)
        self._source = replace(self._source, swapped=file)

    def seed(self, seed: int) -> None:
        """Sets the seed of random operations, a number of 64 bits; see :meth:`disc.Model.seed`."""
        self._model.seed(seed % 2**64)
        self._source = replace(self._source, seed=seed % 2**64)

    def set_memory_budget(self, budget: int | str | None, *, wait: bool = True) -> None:
        """Limits the memory that later calls hold at once; see :meth:`disc.Model.set_memory_budget`."""
        memory = (0 if budget is None else parse_bytes(budget), wait)
        self._model.set_memory_budget(memory[0], fail=not wait)
        self._source = replace(self._source, memory=memory)

    def memory_held(self) -> _runtime.MemoryUsage:
        """The bytes that calls hold now, and their peak, while a budget is set."""
        return self._model.memory()

    def state(self) -> dict[str, Any]:
        """Copies of the state (parameters that are ``updated``) by name, as NumPy arrays; waits for running calls.

        >>> library.state()["layer.weight"]

        Raises:
            TypeError: some state is bfloat16, and the package ``ml_dtypes`` is not installed.
        """
        return {spec.name: self._state(i, spec) for i, spec in enumerate(self.parameters) if spec.updated}

    def _state(self, index: int, spec: TensorSpec) -> Any:
        import numpy as np

        dtype = np.dtype(_bfloat16(spec.name) if spec.dtype == "bfloat16" else spec.dtype)
        shape = tuple(map(int, spec.dims))
        data = np.empty(math.prod(shape) * dtype.itemsize, np.uint8)
        self._model.read_state(index, data)
        return data.view(dtype).reshape(shape)

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Writes the state, and the position in the random numbers, to a safetensors file; waits for running calls.

        The file replaces an older one when it is complete.

        Raises:
            OSError: the file cannot be written.
        """
        self._model.save_state(os.fsencode(os.path.abspath(path)))

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Loads the state from a file of :meth:`save_state`, or of ``disc_save_state`` in C.

        Raises:
            OSError: the file cannot be read or is damaged.
            disc.WeightsError: names, dtypes or shapes are not the model's. The state does not change.
        """
        self._model.load_state(_readable(path))

    def reset(self) -> None:
        """Resets the state (parameters that are ``updated``) to its values when the model was compiled."""
        self._model.reset()

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The inputs in order."""
        names = self._names
        if len(args) > len(names):
            raise CallError(f"{self.name} has {_count(len(names), 'input')} ({', '.join(names)}), got {len(args)}")
        rest = names[len(args) :]
        for name in kwargs:
            if name not in rest:
                what = "is passed twice" if name in names else f"does not exist; the inputs are: {', '.join(names)}"
                raise CallError(f"{self.name}: input {name!r} {what}")
        missing = [name for name in rest if name not in kwargs]
        if missing:
            raise CallError(f"{self.name}: missing {_count(len(missing), 'input')}: {', '.join(missing)}")
        return (*args, *(kwargs[name] for name in rest))

    def _targets(self, out: Any) -> tuple[Any, ...]:
        if not isinstance(out, (tuple, list)):
            out = (out,)
        if len(out) != len(self.outputs):
            names = ", ".join(spec.name for spec in self.outputs)
            raise ArgumentTypeError(f"out: expected {_count(len(self.outputs), 'array')} ({names}), got {len(out)}")
        return tuple(out)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self._source,)

    def __repr__(self) -> str:
        return f"disc.Library({self.name}({', '.join(map(str, self.inputs))}) -> {', '.join(map(str, self.outputs))})"


def _bfloat16(name: str) -> Any:
    try:
        return importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        raise ArgumentTypeError(
            f"state {name!r} is bfloat16, which NumPy supports only with a package: run pip install ml_dtypes"
        ) from None


def _specs(tensors: Any) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, dtype, tuple(dims), updated) for name, dtype, dims, updated in tensors)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
