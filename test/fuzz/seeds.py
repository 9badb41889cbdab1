"""Inputs that a fuzzer begins with: seeds.py FUZZER FOLDER. Small, and made anew each time, so that none is in git."""

import json
import struct
import sys
from pathlib import Path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict:
    """A tensor as the header has it."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HEADERS = [
    {},
    {"a": entry("F32", [1], 0, 4)},
    {"a": entry("U8", [2, 2], 0, 4), "b": entry("F64", [], 4, 12), "__metadata__": {"format": "pt"}},
    {"disc.packed.x86-64-v3.0": entry("U8", [64], 0, 64), "w": entry("BF16", [4, 0, 3], 64, 64)},
    {"overlap": entry("F32", [2], 0, 8), "other": entry("F32", [1], 4, 8)},
    {"too large": entry("F32", [2**62, 4], 0, 8)},
    {"ä\n": entry("F8_E4M3", [3], 0, 3)},
]


def safetensors() -> list[bytes]:
    """The first byte tells the fuzzer whether the rest is a whole file (0) or a header whose length it sets (1)."""
    seeds = []
    for header in HEADERS:
        text = json.dumps(header).encode()
        size = max((t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"), default=0)
        seeds.append(b"\0" + struct.pack("<Q", len(text)) + text + bytes(min(size, 100)))
        seeds.append(b"\1" + bytes([min(size, 255)]) + text)
    return seeds


def main() -> None:
    """Writes the seeds of one fuzzer; those whose inputs are plain choices have none."""
    fuzzer, folder = sys.argv[1], Path(sys.argv[2])
    seeds = {"Safetensors": safetensors, "Tensors": lambda: [bytes(64)], "Seal": lambda: [bytes(200)]}[fuzzer]()
    for number, seed in enumerate(seeds):
        (folder / f"seed{number}").write_bytes(seed)


if __name__ == "__main__":
    main()
