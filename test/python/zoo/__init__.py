"""Architectures of transformers with small random configurations, and the runner that compares them with eager.

``python -m zoo`` (in test/python) runs all of them and prints a table.
"""

from .architecture import Architecture
from .media import AUDIO, MULTIMODAL, OTHER, VISION
from .text import DECODERS, ENCODERS, SEQ2SEQ

ARCHITECTURES: dict[str, Architecture] = {
    a.name: a for a in (*ENCODERS, *DECODERS, *SEQ2SEQ, *VISION, *AUDIO, *MULTIMODAL, *OTHER)
}
"""All of them, by name."""

__all__ = ["ARCHITECTURES", "Architecture"]
