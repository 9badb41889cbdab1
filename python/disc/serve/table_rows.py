"""Rows of Arrow tables as requests of a model, and its results as columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentValueError, RowError
from .array_conversion import converted
from .joined_calls import Call, JoinedCalls
from .policies import Policy, Ragged
from .request_layout import ALONG, OFFSETS, SEQUENCES, TensorLayout
from .served_model import ServedModel

if TYPE_CHECKING:
    import pyarrow


class TableModel:
    """A model that adds columns to a table: each row is a request.

    Args:
        model: the model.
        batching: how rows become calls.
        columns: the column of each input, by the input's name; an input that is missing has the column of its name.
        results: the new column of each result, by the result's name; None: all results, under their names.
        keep: the columns of the table that the result has, too; None: all.

    Raises:
        ArgumentValueError: names that the model does not have, or a policy that does not fit the model.
    """

    def __init__(
        self,
        model: ServedModel,
        batching: Policy,
        columns: Mapping[str, str] | None = None,
        results: Mapping[str, str] | None = None,
        keep: Sequence[str] | None = None,
    ) -> None:
        self._model = model
        self._joined = JoinedCalls(model, batching, flat=True)
        layout = self._joined.layout
        self._separate = (SEQUENCES,) if isinstance(batching, Ragged) else (ALONG,)
        self._optional = layout.optional
        self._columns = dict(columns or {})
        _check_names("columns", self._columns, [entry.spec.name for entry in layout.inputs])
        self._keep = None if keep is None else list(keep)
        usable = [entry for entry in layout.outputs if entry.part != OFFSETS]
        named = {entry.spec.name: entry.spec.name for entry in usable} if results is None else dict(results)
        _check_names("results", named, [entry.spec.name for entry in usable])
        self._results = [
            (n, entry, named[entry.spec.name]) for n, entry in enumerate(layout.outputs) if entry.spec.name in named
        ]

    def columns(self, available: Sequence[str]) -> list[str]:
        """The columns that are read, of those that a table has.

        Raises:
            ArgumentValueError: a column is missing.
        """
        inputs = [column for _, column in self._sources(available)]
        return list(dict.fromkeys([*inputs, *(available if self._keep is None else self._keep)]))

    def __call__(self, table: pyarrow.Table, *, first: int = 0) -> pyarrow.Table:
        """The table with the columns of the results; ``first`` is the number of its first row, for errors.

        Raises:
            RowError: a row that the model rejects, or whose values do not have the input's dtype.
            ArgumentValueError: a column is missing, or one of the results exists.
        """
        import pyarrow as pa

        sources = self._sources(table.column_names)
        values = {layout.spec.name: self._rows(table[column], layout, column, first) for layout, column in sources}
        calls = [Call((), {name: rows[n] for name, rows in values.items()}) for n in range(table.num_rows)]
        rows: list[Sequence[Any]] = []
        for n, answer in enumerate(self._joined(calls), first):
            if answer.error is not None:
                raise RowError(f"row {n}: {answer.error}", row=n, error=answer.error)
            rows.append(answer.result)
        result = table if self._keep is None else table.select(self._keep)
        for number, layout, name in self._results:
            if name in result.column_names:
                raise ArgumentValueError(
                    f"results: the table has a column {name!r}; name another one for the result {layout.spec.name!r}"
                )
            arrays = [self._squeezed(layout, _host(row[number])) for row in rows]
            dims = len(layout.dims) - (layout.part in self._separate)
            result = result.append_column(name, pa.chunked_array([_column(arrays, layout.spec.dtype, dims)]))
        return result

    def _sources(self, available: Sequence[str]) -> list[tuple[TensorLayout, str]]:
        """The inputs with their columns; optional inputs without a column are left out."""
        found = []
        for layout in self._joined.layout.inputs:
            name = layout.spec.name
            column = self._columns.get(name, name)
            if column in available:
                found.append((layout, column))
            elif name in self._columns or name not in self._optional:
                listed = ", ".join(map(repr, available))
                raise ArgumentValueError(f"columns: no column {column!r} for the input {name!r}; there are: {listed}")
        return found

    def _rows(self, column: pyarrow.ChunkedArray, layout: TensorLayout, name: str, first: int) -> list[Any]:
        """The arrays of an input, one for each row."""
        dtype = _numpy_dtype(layout.spec.dtype)
        arrays = []
        for n, value in enumerate(_values(column), first):
            try:
                array = converted(value, dtype)
            except (ValueError, TypeError, OverflowError) as error:
                raise RowError(
                    f"row {n}, column {name!r}, for the input {layout.spec.name!r}: expected {layout.spec.dtype};"
                    f" {error}",
                    row=n,
                    error=error,
                ) from None
            if layout.part in self._separate:
                assert layout.joined is not None
                array = np.expand_dims(array, min(layout.joined, array.ndim))
            arrays.append(self._model.array(array))
        return arrays

    def _squeezed(self, layout: TensorLayout, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return array.squeeze(layout.joined) if layout.part in self._separate else array


def _check_names(option: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise ArgumentValueError(
                f"{option}: the model has no {name!r}; its names are: {', '.join(map(repr, known)) or '(none)'}"
            )


def _numpy_dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        raise ArgumentValueError(f"columns: tables have no values of dtype {name}, which the model takes") from None


def _values(column: pyarrow.ChunkedArray) -> Iterable[Any]:
    """The values of a column: None, numbers and arrays of NumPy, or lists of arrays."""
    for chunk in column.chunks:
        yield from _chunk_values(chunk)


def _chunk_values(chunk: pyarrow.Array) -> Sequence[Any]:
    import pyarrow as pa

    kind = chunk.type
    if isinstance(kind, pa.FixedShapeTensorType) and not chunk.null_count:
        return list(chunk.to_numpy_ndarray())
    if isinstance(kind, pa.BaseExtensionType):
        return _chunk_values(chunk.storage)
    if pa.types.is_fixed_size_list(kind):
        # Rows that are null have elements, too, unless the list has offsets.
        return _chunk_values(chunk.cast(pa.list_(kind.value_type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets, elements = chunk.offsets.to_numpy(), _chunk_values(chunk.values)
        rows = [elements[begin:end] for begin, end in itertools.pairwise(offsets)]
        return _with_nulls(chunk, rows) if chunk.null_count else rows
    # With nulls, NumPy's integers would become floats.
    return _with_nulls(chunk, chunk.to_pylist()) if chunk.null_count else chunk.to_numpy(zero_copy_only=False)


def _with_nulls(chunk: pyarrow.Array, values: Iterable[Any]) -> list[Any]:
    nulls = chunk.is_null().to_numpy(zero_copy_only=False)
    return [None if null else value for null, value in zip(nulls, values, strict=True)]


def _host(array: Any) -> np.ndarray[Any, Any]:
    """A result as an array of NumPy; bfloat16, which tables do not have, as float32."""
    if type(array).__module__.partition(".")[0] == "torch":
        array = array.detach().cpu()
        array = array.float() if str(array.dtype) == "torch.bfloat16" else array
    return np.asarray(array)


def _column(arrays: Sequence[np.ndarray[Any, Any]], dtype: str, dims: int) -> pyarrow.Array:
    """A column of arrays with this number of dims: of numbers, or of lists of lists."""
    import pyarrow as pa

    kind = _numpy_dtype("float32" if dtype == "bfloat16" else dtype)
    flat = [np.ascontiguousarray(array, kind).reshape(-1) for array in arrays]
    column = pa.array(np.concatenate(flat) if flat else np.empty(0, kind))
    for dim in range(dims - 1, -1, -1):
        # Each list of this dim has as many elements as its array.
        lengths = [np.full(int(np.prod(array.shape[:dim])), array.shape[dim], np.int64) for array in arrays]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths) if lengths else [])]).astype(np.int64)
        if offsets[-1] < 2**31:
            column = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), column)
        else:
            column = pa.LargeListArray.from_arrays(pa.array(offsets), column)
    return column
