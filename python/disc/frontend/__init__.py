"""The import stage: PyTorch models to DISC input IR."""

from .program import ImportedProgram, Input, Output, import_program
from .registry import NotLowerable, lowers

__all__ = ["ImportedProgram", "Input", "NotLowerable", "Output", "import_program", "lowers"]
