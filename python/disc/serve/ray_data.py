"""Batch inference with Ray Data: over datasets, and over directories of Parquet files that can be resumed."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentTypeError, ArgumentValueError
from .parquet_folders import ParquetFolders
from .policies import Policy
from .served_model import PortableSource, portable
from .table_rows import TableModel

if TYPE_CHECKING:
    import pyarrow
    import ray.data

    from .served_model import Source

_logger = logging.getLogger("disc.serve")


def map_batches(
    dataset: ray.data.Dataset,
    source: Source,
    *,
    batching: Policy,
    columns: Mapping[str, str] | None = None,
    results: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    rows: int = 1024,
    concurrency: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    trust_files: bool = False,
    **options: Any,
) -> ray.data.Dataset:
    """The dataset with the results of a model as columns; each row is a request of its own.

    >>> dataset = map_batches(ray.data.read_parquet("in"), "libminilm.so", concurrency=4,
    ...     batching=Padded(mask="attention_mask"), columns={"input_ids": "tokens"})
    >>> dataset.write_parquet("out")

    A row has no dim along which requests are joined: an input ``[batch, length]`` reads a column of lists, and a result
    ``[batch, 384]`` becomes a column of lists. With :class:`disc.serve.Ragged` an input ``[tokens, 8]`` reads a column
    of lists of lists, and an input for each sequence a column of numbers.

    Args:
        dataset: the dataset.
        source: the model, as for :func:`disc.serve.ray.deployment`.
        batching: how rows become calls of the model.
        columns: the column of each input, by the input's name; an input that is missing here has a column of its name.
        results: the new column of each result, by the result's name; None: all results, under their names.
        keep: the columns of the dataset that the result has, too; None: all.
        rows: the rows that are processed at a time.
        concurrency: the number of processes that load the model, or the least and the most.
        num_cpus: CPUs, and so threads, of each process.
        trust_files: as for :func:`disc.load`.
        **options: others of ``Dataset.map_batches``.

    Raises:
        ArgumentTypeError, ArgumentValueError: an argument is wrong.
        ImportError: Ray Data is not installed.
        RowError: when the dataset is executed: the model rejects a row. Ray raises it as a part of its own error.
    """
    data = _ray_data()
    return dataset.map_batches(
        _TableWorker,
        batch_size=_positive("rows", rows),
        batch_format="pyarrow",
        compute=_pool(data, concurrency),
        num_cpus=num_cpus,
        fn_constructor_args=(portable(source, trust_files=trust_files), _checked(batching), columns, results, keep),
        **options,
    )


@dataclass(frozen=True)
class FileResult:
    """What became of an input file."""

    file: str
    """Its path."""
    output: str
    """The path of the output file."""
    rows: int
    """The number of rows of the output; 0 if there is an error."""
    error: str | None = None
    """Why there is no output."""
    existed: bool = False
    """Whether the output was there already."""


@dataclass(frozen=True)
class FilesReport:
    """What became of all input files, in their order."""

    results: tuple[FileResult, ...]

    @property
    def failed(self) -> dict[str, str]:
        """The files without an output, and why."""
        return {result.file: result.error for result in self.results if result.error is not None}

    @property
    def rows(self) -> int:
        """The number of rows in all output files."""
        return sum(result.rows for result in self.results)

    def __str__(self) -> str:
        done, existed = len(self.results) - len(self.failed), sum(result.existed for result in self.results)
        lines = [f"{done} of {len(self.results)} files, {existed} of them from an earlier run"]
        lines += [f"failed: {file}: {reason}" for file, reason in self.failed.items()]
        return "\n".join(lines)


def map_files(
    source: Source,
    inputs: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    batching: Policy,
    columns: Mapping[str, str] | None = None,
    results: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    rows: int = 1024,
    concurrency: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    trust_files: bool = False,
) -> FilesReport:
    """Runs a model over the Parquet files of a directory: one output file for each, with its rows in their order.

    >>> report = map_files("libminilm.so", "in", "out", batching=Padded(mask="attention_mask"), concurrency=4)
    >>> print(report)

    Call it again after it was interrupted, or with more input files: it computes the files that have no output yet. An
    output file appears when it is complete, by a rename. A file that cannot be read, or with a row that the model
    rejects, has no output; the report names it with the reason, and the next run tries it again. Memory is that of
    ``rows`` rows for each process. Only one run may write to a directory at one time.

    Args:
        source: the model, as for :func:`disc.serve.ray.deployment`.
        inputs: a directory that all nodes see, or a URI of a file system that pyarrow knows (``s3://bucket/in``). Its
            files ``*.parquet`` are processed, also those in folders; names that begin with ``.`` or ``_`` are not.
        output: the directory for the output files, which have the same names.
        batching, columns, results, keep, concurrency, num_cpus, trust_files: as for :func:`map_batches`.
        rows: the rows that are read and written at a time.

    Raises:
        ArgumentTypeError, ArgumentValueError: an argument is wrong, or the directories are the same.
        FileNotFoundError: there is no such input directory.
        ImportError: Ray Data is not installed.
    """
    data = _ray_data()
    held = portable(source, trust_files=trust_files)
    _checked(batching)
    _positive("rows", rows)
    pool = _pool(data, concurrency)
    folders = ParquetFolders(os.fspath(inputs), os.fspath(output))
    files = folders.files()
    existing = folders.existing()
    todo = [file for file in files if file not in existing]
    found: dict[str, FileResult] = {}
    if todo:
        arguments = (held, batching, columns, results, keep, folders, rows)
        dataset = data.from_items([{"file": file} for file in todo], override_num_blocks=min(len(todo), 1000))
        done = dataset.map_batches(
            _FileWorker, batch_size=1, compute=pool, num_cpus=num_cpus, fn_constructor_args=arguments
        )
        for row in done.iter_rows():
            result = FileResult(
                row["path"], row["output"], int(row["rows"]), row["error"] or None, bool(row["existed"])
            )
            found[row["file"]] = result
            if result.error is not None:
                _logger.warning("%s: %s", result.file, result.error)
    found |= {file: _existing(folders, file) for file in files if file not in found}
    folders.remove_unfinished()
    return FilesReport(tuple(found[file] for file in files))


class _TableWorker:
    """A model in a process of Ray Data."""

    def __init__(
        self,
        source: PortableSource,
        batching: Policy,
        columns: Mapping[str, str] | None,
        results: Mapping[str, str] | None,
        keep: Sequence[str] | None,
    ) -> None:
        from .ray import _assigned_cpus

        self._table = TableModel(source.open(max(1, _assigned_cpus())), batching, columns, results, keep)

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        return self._table(table)


class _FileWorker(_TableWorker):
    """The same for whole files."""

    def __init__(
        self,
        source: PortableSource,
        batching: Policy,
        columns: Mapping[str, str] | None,
        results: Mapping[str, str] | None,
        keep: Sequence[str] | None,
        folders: ParquetFolders,
        rows: int,
    ) -> None:
        super().__init__(source, batching, columns, results, keep)
        self._folders = folders
        self._rows = rows

    def __call__(self, files: Mapping[str, Any]) -> dict[str, list[Any]]:  # type: ignore[override]
        results = [self._process(str(file)) for file in files["file"]]
        return {
            "file": [str(file) for file in files["file"]],
            "path": [result.file for result in results],
            "output": [result.output for result in results],
            "rows": [result.rows for result in results],
            "error": [result.error or "" for result in results],
            "existed": [result.existed for result in results],
        }

    def _process(self, file: str) -> FileResult:
        folders = self._folders
        if folders.exists(file):
            # Ray repeats the work of a process that died.
            return _existing(folders, file, existed=False)
        path, output = folders.input_path(file), folders.output_path(file)
        try:
            return FileResult(path, output, self._write(file))
        except Exception as error:
            return FileResult(path, output, 0, f"{type(error).__name__}: {error}")

    def _write(self, file: str) -> int:
        """Writes the output of a file; returns the number of its rows."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        folders, done, writer = self._folders, 0, None
        with folders.open_input(file) as stream, parquet.ParquetFile(stream) as source:
            schema = source.schema_arrow
            names = self._table.columns(schema.names)
            with folders.writing(file) as sink, contextlib.ExitStack() as stack:
                for batch in itertools.chain(source.iter_batches(self._rows, columns=names), [None]):
                    if batch is None and writer is not None:
                        break
                    # A file without rows has the columns of the results, too.
                    table = schema.empty_table().select(names) if batch is None else pa.Table.from_batches([batch])
                    result = self._table(table, first=done)
                    if writer is None:
                        writer = stack.enter_context(parquet.ParquetWriter(sink, result.schema))
                    writer.write_table(result)
                    done += result.num_rows
        return done


def _existing(folders: ParquetFolders, file: str, *, existed: bool = True) -> FileResult:
    """The result for a file whose output is there."""
    path, output = folders.input_path(file), folders.output_path(file)
    try:
        return FileResult(path, output, folders.output_rows(file), existed=existed)
    except (OSError, ValueError) as error:
        return FileResult(path, output, 0, f"the output exists and cannot be read; remove it: {error}", existed)


def _ray_data() -> Any:
    try:
        from ray import data
    except ImportError as error:
        raise ImportError(
            f'disc.serve.ray needs Ray Data ({error}); run: pip install "disc-compiler[ray]"', name=error.name
        ) from error
    return data


def _checked(batching: Any) -> Policy:
    if not isinstance(batching, Policy):
        raise ArgumentTypeError(
            f"batching: expected disc.serve.Stacked, Padded or Ragged, got {type(batching).__name__}"
        )
    return batching


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentValueError(f"{name}: expected a number from 1 on, got {value!r}")
    return value


def _pool(data: Any, concurrency: int | tuple[int, int]) -> Any:
    """The processes of a stage, as Ray Data describes them."""
    if isinstance(concurrency, tuple) and len(concurrency) == 2:
        least, most = (_positive("concurrency", number) for number in concurrency)
        return data.ActorPoolStrategy(min_size=least, max_size=most)
    if isinstance(concurrency, tuple):
        raise ArgumentValueError(f"concurrency: expected a number, or the least and the most, got {concurrency!r}")
    return data.ActorPoolStrategy(size=_positive("concurrency", concurrency))
