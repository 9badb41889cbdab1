"""Rules for ONNX operators, by kind. Importing a module registers its rules."""

from . import elementwise, indexing, integers, layers, padding, recurrent, reductions, resizing, shapes

__all__ = ["elementwise", "indexing", "integers", "layers", "padding", "recurrent", "reductions", "resizing", "shapes"]
