"""Architectures of transformers with small random configurations, and the runner that compares them with eager.

``python -m zoo`` (in test/python) runs all of them and prints a table.
"""

from pathlib import Path

from .architecture import Architecture
from .media import AUDIO, MULTIMODAL, OTHER, VISION
from .text import DECODERS, ENCODERS, SEQ2SEQ
from .vision_language import DETECTION, VISION_LANGUAGE

ARCHITECTURES: dict[str, Architecture] = {
    a.name: a
    for a in (*ENCODERS, *DECODERS, *SEQ2SEQ, *VISION, *DETECTION, *AUDIO, *MULTIMODAL, *VISION_LANGUAGE, *OTHER)
}
"""All of them, by name."""

SELECTED = """
    bert albert deberta-v2 modernbert esm fnet
    gpt2 gpt_neox llama mistral gemma3_text phi opt bloom mpt olmoe rwkv lfm2
    t5 bart
    vit dinov2 resnet segformer efficientnet
    wav2vec2 audio-spectrogram-transformer whisper
    clip blip layoutlm qwen2_vl mistral3
""".split()
"""What `make test` runs: some of each kind."""

_FAILURES = Path(__file__).with_name("failures.txt")


def known_failures() -> dict[str, str]:
    """The architectures that do not pass, with the reason: a list that can only shrink."""
    lines = _FAILURES.read_text().splitlines() if _FAILURES.exists() else []
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


__all__ = ["ARCHITECTURES", "SELECTED", "Architecture", "known_failures"]
