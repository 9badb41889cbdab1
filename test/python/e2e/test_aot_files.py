"""Libraries and weights that are damaged or not what they should be: every one is refused, with a text."""

import json
import os
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import disc
from aot_cases import check

pytestmark = pytest.mark.share(2)

X = torch.linspace(-1, 1, 48).reshape(2, 24)


@pytest.fixture
def copy(libraries, tmp_path):
    """A library of its own with weights beside it. No two have one path: the process keeps what it loaded."""
    library = libraries("mlp", weights="weights.safetensors", packed=False)
    shutil.copy(library.path, tmp_path / "libmlp.so")
    shutil.copy(library.folder / "weights.safetensors", tmp_path / "weights.safetensors")
    return tmp_path / "libmlp.so"


def refused(path, error=disc.LibraryError, **options):
    with pytest.raises(error) as info:
        disc.load(path, **options)
    text = str(info.value)
    assert text and "\n" not in text
    return info.value


# -- libraries


def test_truncated_libraries(copy):
    content = copy.read_bytes()
    for length in (0, 1, 63, 64, 65, 1000, len(content) // 2, len(content) - 64, len(content) - 1):
        copy.write_bytes(content[:length])
        assert refused(copy).reason == "file"


def test_longer_libraries(copy):
    content = copy.read_bytes()
    for more in (b"\0", bytes(64), content[-64:], content):
        copy.write_bytes(content + more)
        assert refused(copy).reason == "file"


def test_flipped_bits(copy):
    content = bytearray(copy.read_bytes())
    positions = random.Random(0).sample(range(len(content)), 60)
    positions += range(64)
    positions += range(len(content) - 64, len(content))
    for at in positions:
        bit = 1 << at % 8
        content[at] ^= bit
        copy.write_bytes(content)
        refused(copy)
        content[at] ^= bit
    copy.write_bytes(content)
    assert disc.load(copy)(X).shape == (2, 10)


def test_other_files(tmp_path):
    for i, content in enumerate((b"", b"\x7fELF", b"text\n" * 1000, bytes(5000))):
        path = tmp_path / f"{i}.so"
        path.write_bytes(content)
        error = refused(path)
        assert error.reason == "file" and f"{i}.so" in str(error)
    os.mkfifo(tmp_path / "pipe.so")
    assert "is not a regular file" in str(refused(tmp_path / "pipe.so"))
    # A library, but none of ours.
    import disc._runtime

    refused(disc._runtime.__file__)


# -- weights


def change(path, edit):
    """Writes the weights anew; `edit` changes them."""
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


def rename(tensors):
    tensors["other"] = tensors.pop("first.bias")


def reshape(tensors):
    tensors["first.weight"] = tensors["first.weight"].T.copy()


def retype(tensors):
    tensors["first.bias"] = tensors["first.bias"].astype(np.float16)


def forget(tensors):
    del tensors["second.weight"]


def alter(tensors):
    tensors["third.bias"][3] += 1


@pytest.mark.parametrize("edit", [rename, reshape, retype, forget, alter], ids=lambda f: f.__name__)
def test_other_weights(copy, edit):
    weights = copy.parent / "weights.safetensors"
    change(weights, edit)
    error = refused(copy, disc.WeightsError)
    assert isinstance(error, ValueError) and isinstance(error, OSError) and error.reason == "weights"
    name = {"rename": "first.bias", "reshape": "first.weight", "retype": "first.bias", "forget": "second.weight"}
    assert name.get(edit.__name__, "third.bias") in str(error)
    refused(copy, disc.WeightsError, weights=weights)
    if edit is alter:
        # Contents are all that trust is about.
        assert disc.load(copy, trust_files=True)(X).shape == (2, 10)
    else:
        refused(copy, disc.WeightsError, trust_files=True)


def test_weights_that_are_no_file_of_weights(copy):
    weights = copy.parent / "weights.safetensors"
    content = weights.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])

    def with_header(value):
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        return len(text).to_bytes(8, "little") + text + content[8 + size :]

    name = next(key for key in header if key != "__metadata__")
    beyond = {**header, name: {**header[name], "data_offsets": [0, 1 << 40]}}
    backwards = {**header, name: {**header[name], "data_offsets": [64, 0]}}
    negative = {**header, name: {**header[name], "shape": [-1, 24]}}
    huge = {**header, name: {**header[name], "shape": [1 << 62, 1 << 62]}}
    for damaged in (
        b"",
        content[:4],
        content[:8],
        content[: 8 + size - 1],
        content[:-1],
        (1 << 63).to_bytes(8, "little") + content[8:],
        with_header(b"{"),
        with_header(b"[1, 2]"),
        with_header(b'{"a": {}}'),
        with_header(b"\xff" * 50),
        with_header(b"[" * 100000),
        with_header(beyond),
        with_header(backwards),
        with_header(negative),
        with_header(huge),
    ):
        weights.write_bytes(damaged)
        for trust in (False, True):
            refused(copy, trust_files=trust)
    weights.unlink()
    refused(copy)
    weights.write_bytes(content)
    assert disc.load(copy)(X).shape == (2, 10)


def test_flipped_bits_of_weights(copy):
    weights = copy.parent / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    size = int.from_bytes(content[:8], "little")
    for at in (0, 3, 9, 8 + size, len(content) // 2, len(content) - 1):
        content[at] ^= 0x10
        weights.write_bytes(content)
        refused(copy)
        content[at] ^= 0x10


# -- swapping


def test_swap(libraries, tmp_path):
    library = libraries("mlp")
    loaded = disc.load(library.path, threads=1)
    other = library.case.make()
    for parameter in other.parameters():
        parameter.data.mul_(-0.5)
    save_file({name: p.detach().numpy() for name, p in other.named_parameters()}, tmp_path / "other.safetensors")
    loaded.swap_weights(tmp_path / "other.safetensors")
    check(loaded(X), other, (X,), 1e-5)

    # What fails changes nothing.
    for edit in (rename, reshape, retype, forget):
        shutil.copy(tmp_path / "other.safetensors", tmp_path / "wrong.safetensors")
        change(tmp_path / "wrong.safetensors", edit)
        with pytest.raises(disc.WeightsError):
            loaded.swap_weights(tmp_path / "wrong.safetensors")
    (tmp_path / "wrong.safetensors").write_bytes(b"nothing")
    with pytest.raises(disc.LibraryError):
        loaded.swap_weights(tmp_path / "wrong.safetensors")
    check(loaded(X), other, (X,), 1e-5)


def test_swap_while_running(libraries, tmp_path):
    """Each result is that of the old or of the new weights, never of a mixture."""
    import threading

    library = libraries("mlp")
    loaded = disc.load(library.path, threads=1)
    files, expected = [], []
    for i, factor in enumerate((1.0, -2.0)):
        other = library.case.make()
        for parameter, own in zip(other.parameters(), library.module.parameters(), strict=True):
            parameter.data.copy_(own * factor)
        files.append(tmp_path / f"{i}.safetensors")
        save_file({name: p.detach().numpy() for name, p in other.named_parameters()}, files[i])
        loaded.swap_weights(files[i])
        expected.append(loaded(X))
    assert not torch.equal(*expected)
    stop, wrong = threading.Event(), []

    def work():
        while not stop.is_set():
            result = loaded(X)
            if not any(torch.equal(result, e) for e in expected):
                wrong.append(result)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(40):
        loaded.swap_weights(files[i % 2])
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


_PEAK = """
import resource, sys, torch, disc
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
def compiled(size):
    with torch.no_grad():
        layer = torch.nn.Linear(size, size, bias=False)
    n = torch.export.Dim("n", max=64)
    before = peak()
    disc.aot_compile(layer, (torch.randn(3, size),), dynamic_shapes=({0: n},), output=sys.argv[1])
    return (peak() - before) / layer.weight.nbytes
compiled(16)  # loads what compiling needs
print(compiled(6144))
"""


def test_compiling_holds_one_copy_of_the_weights(tmp_path):
    """Beside the model's own: the packed ones, until they are in a file. Neither assembler nor linker has another."""
    path = tmp_path / "libbig.so"
    output = subprocess.run([sys.executable, "-c", _PEAK, path], capture_output=True, text=True, check=True).stdout
    assert float(output) < 1.5
    assert path.stat().st_size > 6144 * 6144 * 4
