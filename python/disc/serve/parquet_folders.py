"""A folder of Parquet files and the folder of their outputs, on any file system of pyarrow."""

from __future__ import annotations

import contextlib
import os
import posixpath
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentValueError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.fs

_SUFFIX = ".parquet"
_UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class ParquetFolders:
    """Files are named relative to the folders, with ``/``.

    Raises:
        ArgumentValueError: the output folder is in the input folder, so its files would be inputs.
    """

    inputs: str
    """An absolute path or a URI."""
    output: str

    def __post_init__(self) -> None:
        for name in ("inputs", "output"):
            value = os.fspath(getattr(self, name))
            object.__setattr__(self, name, (value if "://" in value else os.path.abspath(value)).rstrip("/"))
        if f"{self.output}/".startswith(f"{self.inputs}/"):
            raise ArgumentValueError(
                f"output: expected a directory outside of inputs ({self.inputs!r}), got {self.output!r}"
            )

    def files(self) -> list[str]:
        """The input files, sorted; FileNotFoundError without the folder."""
        return _listed(self.inputs, must_exist=True)

    def existing(self) -> set[str]:
        """The output files."""
        return set(_listed(self.output, must_exist=False))

    def exists(self, file: str) -> bool:
        """Whether a file has its output."""
        import pyarrow.fs

        system, root = _system(self.output)
        info = system.get_file_info(posixpath.join(root, file))
        return bool(info.type == pyarrow.fs.FileType.File)

    def input_path(self, file: str) -> str:
        """The path of an input, for people."""
        return posixpath.join(self.inputs, file)

    def output_path(self, file: str) -> str:
        """The path of an output, for people."""
        return posixpath.join(self.output, file)

    def open_input(self, file: str) -> pyarrow.NativeFile:
        """An input file, for reading."""
        system, root = _system(self.inputs)
        return system.open_input_file(posixpath.join(root, file))

    def output_rows(self, file: str) -> int:
        """The number of rows of an output file."""
        import pyarrow.parquet as parquet

        system, root = _system(self.output)
        with system.open_input_file(posixpath.join(root, file)) as stream:
            return int(parquet.read_metadata(stream).num_rows)

    @contextlib.contextmanager
    def writing(self, file: str) -> Iterator[Any]:
        """A stream to the output of a file, which appears when the block ends without an exception."""
        import pyarrow.fs

        system, root = _system(self.output)
        folder, name = posixpath.split(posixpath.join(root, file))
        unfinished = posixpath.join(folder, f"_{name}.{uuid.uuid4().hex}{_UNFINISHED}")
        system.create_dir(folder, recursive=True)
        try:
            with system.open_output_stream(unfinished) as stream:
                yield stream
            if isinstance(system, pyarrow.fs.LocalFileSystem):
                with open(unfinished, "rb+") as written:
                    os.fsync(written.fileno())
            system.move(unfinished, posixpath.join(folder, name))
        except BaseException:
            with contextlib.suppress(OSError):
                system.delete_file(unfinished)
            raise

    def remove_unfinished(self) -> None:
        """Removes the parts of files that interrupted runs left."""
        system, root = _system(self.output)
        for info in _infos(system, root, must_exist=False):
            if info.base_name.startswith("_") and info.base_name.endswith(_UNFINISHED):
                with contextlib.suppress(FileNotFoundError):
                    system.delete_file(info.path)


def _system(folder: str) -> tuple[pyarrow.fs.FileSystem, str]:
    import pyarrow.fs

    return pyarrow.fs.FileSystem.from_uri(folder)  # type: ignore[no-any-return]


def _infos(system: pyarrow.fs.FileSystem, root: str, *, must_exist: bool) -> list[pyarrow.fs.FileInfo]:
    import pyarrow.fs

    selector = pyarrow.fs.FileSelector(root, recursive=True, allow_not_found=not must_exist)
    return [info for info in system.get_file_info(selector) if info.type == pyarrow.fs.FileType.File]


def _listed(folder: str, *, must_exist: bool) -> list[str]:
    system, root = _system(folder)
    names = [posixpath.relpath(info.path, root) for info in _infos(system, root, must_exist=must_exist)]
    hidden = (".", "_")
    return sorted(
        name
        for name in names
        if name.endswith(_SUFFIX) and not any(part.startswith(hidden) for part in name.split("/"))
    )
