"""The extension that ``model-explorer --extensions=disc.viewers.model_explorer`` loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs

from . import collection, of_text


class DiscAdapter(Adapter):
    """Shows what DISC makes of a model: the IR after each stage.

    Files are models that ``model.save`` wrote (``.disc``), programs that ``torch.export.save`` wrote (``.pt2``) and
    ONNX models (``.onnx``), which are compiled, and files of IR (``.mlir``), such as ``Options(dump_ir=...)`` writes.
    """

    metadata = AdapterMetadata(
        id="disc",
        name="DISC",
        description="The IR of DISC after each stage: operations, kernels, symbolic shapes, source lines.",
        fileExts=["disc", "pt2", "onnx", "mlir"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """The graphs of a file.

        Raises:
            CompileError: the model cannot be compiled.
            LibraryError: the file cannot be read.
            OSError: as before.
        """
        path = Path(model_path)
        if path.suffix == ".mlir":
            found = of_text(path.stem, path.read_text(encoding="utf-8"))
        else:
            found = collection(_model(path))
            found.label = ""  # Model Explorer then shows the name of the file.
        return {"graphCollections": [found]}


def _model(path: Path) -> Any:
    import disc

    if path.suffix == ".disc":
        return disc.load(path)
    import torch

    # Without code there is no need to compile for long; the stage before it has all kernels.
    options = disc.Options(stop_after="memory", progress=False, code_cache=False)
    return disc.compile(path if path.suffix == ".onnx" else torch.export.load(path), options=options)
