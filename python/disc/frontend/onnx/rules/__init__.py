"""Rules for ONNX operators, by kind. Importing a module registers its rules."""

from . import elementwise, layers, padding, reductions, shapes

__all__ = ["elementwise", "layers", "padding", "reductions", "shapes"]
