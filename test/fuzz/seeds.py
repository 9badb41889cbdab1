"""Inputs that a fuzzer begins with: seeds.py FUZZER FOLDER. Small, and made anew each time, so that none is in git."""

import json
import re
import struct
import sys
from collections.abc import Callable
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


REQUESTS = [
    b'{"sentences": ["a b", "\\u00e9"]}',
    b'{"sentence": "\\ud83d\\ude00", "sentence": "a"}',
    b'{"sentences": [1, null, {"a": [true]}], "x": -1e9}',
    b"[]",
]


def infer_request(batch: int, length: int, binary: bool) -> tuple[bytes, bytes]:
    """A whole request to FuzzModel.h's model: its JSON, and the bytes behind it."""
    tensors = [
        ("ids", "INT32", [batch, length], struct.pack("<i", 5)),
        ("mask", "BOOL", [batch, length], b"\1"),
        ("half", "FP16", [batch], b"\0\x3c"),
        ("scale", "FP64", [], struct.pack("<d", 0.5)),
    ]
    inputs, blob = [], b""
    for name, datatype, shape, element in tensors:
        count = batch * length if len(shape) == 2 else batch if shape else 1
        entry: dict = {"name": name, "datatype": datatype, "shape": shape}
        if binary:
            entry["parameters"] = {"binary_data_size": count * len(element)}
            blob += element * count
        else:
            value: object = {"BOOL": True, "FP64": 0.5, "FP16": 1.0}.get(datatype, 5)
            entry["data"] = [[value] * length] * batch if len(shape) == 2 else [value] * count
        inputs.append(entry)
    extra = {"id": "a", "parameters": {"binary_data_output": True}} if binary else {"outputs": [{"name": "half"}]}
    return json.dumps({"inputs": inputs, **extra}).encode(), blob


def infer() -> list[bytes]:
    """The first byte is one more than the bytes behind the JSON; 0: all is JSON."""
    seeds = [b"\0" + request for request in REQUESTS]
    for binary in (False, True):
        for batch, length in ((1, 1), (2, 3)):
            text, blob = infer_request(batch, length, binary)
            seeds.append((bytes([len(blob) + 1]) if binary else b"\0") + text + blob)
    shape = b'[2, -1, 0, 4611686018427387904, 1e3, "x"]'
    seeds.append(b'\0{"inputs": [{"name": "ids", "datatype": "BYTES", "shape": ' + shape + b', "data": [[[1]]]}]}')
    seeds.append(b'\0{"parameters": {"timeout": 5, "priority": 1}, "outputs": [{"parameters": {"binary_data": true}}]}')
    return seeds


def http() -> list[bytes]:
    """Requests of each kind, whole and in pieces that follow each other."""
    posts = [b"POST /embed HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body) for body in REQUESTS]
    chunked = (
        b"POST /embed HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n12\r\n" + b'{"sentence": "ab"}' + b"\r\n0\r\n\r\n"
    )
    gets = [b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in (b"health", b"metrics", b"embed", b"none%20")]
    form = b"POST /embed HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 5\r\n\r\n--b--"
    ranges = b"GET /metrics HTTP/1.1\r\nRange: bytes=0-1,4-\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    paths = (b"", b"/health/live", b"/health/ready", b"/models/m", b"/models/m/versions/1/ready", b"/models/n/ready")
    gets += [b"GET /v2%s HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in paths]
    for binary in (False, True):
        text, blob = infer_request(1, 2, binary)
        head = b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: %d\r\n" % len(text + blob)
        head += b"Inference-Header-Content-Length: %d\r\n" % len(text) if binary else b""
        posts.append(head + b"\r\n" + text + blob)
    return [*posts, *gets, chunked, form, ranges, gets[0] + posts[0] + b"HEAD /health HTTP/1.0\r\n\r\n"]


def passes() -> list[bytes]:
    """Each module of a lit test behind the passes that the test runs."""
    seeds = []
    for file in sorted((Path(__file__).parents[1] / "lit").rglob("*.mlir")):
        text = file.read_text()
        run = re.search(r"RUN: (?:not )?disc-opt %s([^|]*)", text)
        pipeline = run and re.search(r"--?pass-pipeline='builtin\.module\((.*?)\)'", run[1])
        flags = re.findall(r"(?<=\s)--?((?:disc-[a-z0-9-]+|canonicalize|cse)(?:=\S+)?)", run[1]) if run else []
        listed = pipeline[1] if pipeline else ",".join(re.sub("=(.*)", r"{\1}", flag) for flag in flags)
        for module in re.split(r"^// -----.*$", text, flags=re.MULTILINE):
            code = re.sub(r"^\s*//.*\n", "", module, flags=re.MULTILINE)
            if code.strip():
                seeds.append(f"{listed}\n{code}".encode())
    return seeds


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "Safetensors": safetensors,
    "Tensors": lambda: [bytes(64)],
    "Seal": lambda: [bytes(200)],
    "Functions": lambda: [bytes(range(k, k + 120)) for k in range(0, 120, 8)],
    "Guards": lambda: [bytes([k]) * 40 for k in range(8)],
    "Trees": lambda: [bytes(64), bytes(range(200))],
    "Passes": passes,
    "Request": lambda: REQUESTS,
    "Infer": infer,
    "Http": http,
    "Tokenizer": lambda: [b"\x20" + text.encode() for text in ("the ab!1", "[SEP]a[MASK", "É中\u0301ß", "a" * 120)],
}


def main() -> None:
    """Writes the seeds of one fuzzer; those whose inputs are plain choices have none."""
    fuzzer, folder = sys.argv[1], Path(sys.argv[2])
    for number, seed in enumerate(SEEDS[fuzzer]()):
        (folder / f"seed{number}").write_bytes(seed)


if __name__ == "__main__":
    main()
