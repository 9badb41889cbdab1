"""The cache of compiled code: found again, bounded, shared by processes, and never trusted when damaged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

SCRIPT = """
import sys
import torch
import disc

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2 + 1, -1)

for _ in range(4):
    model = disc.compile(Net(), (torch.ones(3, 4),), dynamic_shapes=({0: torch.export.Dim("n", max=64)},),
                         options=disc.Options(code_cache=sys.argv[1], code_cache_limit=int(sys.argv[2])))
    x = torch.randn(7, 4)
    torch.testing.assert_close(model(x), Net()(x))
"""


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return torch.tanh(x * self.factor) + self.factor


def check(folder, factor=2.0, **options):
    module = Scale(factor)
    model = disc.compile(
        module,
        (torch.ones(3, 4),),
        dynamic_shapes=({0: Dim("n", max=64)},),
        options=disc.Options(code_cache=folder, **options),
    )
    x = torch.randn(9, 4)
    torch.testing.assert_close(model(x), module(x))
    return model


def entries(folder):
    return sorted(Path(folder).glob("*.disc-object"))


def test_second_compilation_finds_the_code(tmp_path):
    check(tmp_path / "new")
    (entry,) = entries(tmp_path / "new")
    written = entry.stat().st_ino
    check(tmp_path / "new")
    assert [e.stat().st_ino for e in entries(tmp_path / "new")] == [written]


def test_other_content_and_options_are_other_entries(tmp_path):
    check(tmp_path)
    check(tmp_path, factor=3.0)
    check(tmp_path, opt_level=1)
    assert len(entries(tmp_path)) == 3


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "long"])
def test_damaged_entry_is_replaced(tmp_path, damage):
    check(tmp_path)
    (entry,) = entries(tmp_path)
    content = entry.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    damaged = {"empty": b"", "short": content[:middle], "flipped": flipped, "long": content + b"x"}[damage]
    entry.write_bytes(damaged)
    check(tmp_path)
    (entry,) = entries(tmp_path)
    assert entry.read_bytes() == content


def test_least_recently_used_entries_are_removed(tmp_path):
    for factor in (1.0, 2.0, 3.0):
        check(tmp_path, factor)
    oldest, *others = entries(tmp_path)
    # Room for half of another one; they differ by a few bytes.
    limit = sum(entry.stat().st_size for entry in entries(tmp_path)) + oldest.stat().st_size // 2
    for age, entry in enumerate((*others, oldest)):
        os.utime(entry, (1000.0 - age, 1000.0 - age))
    check(tmp_path, 4.0, code_cache_limit=limit)
    assert not oldest.exists()
    assert sum(entry.stat().st_size for entry in entries(tmp_path)) <= limit


def test_use_makes_an_entry_recent(tmp_path):
    check(tmp_path)
    (entry,) = entries(tmp_path)
    os.utime(entry, (1000.0, 1000.0))
    check(tmp_path)
    assert entry.stat().st_mtime > 1000.0


def test_too_large_for_the_cache(tmp_path):
    check(tmp_path, code_cache_limit=100)
    assert not list(tmp_path.iterdir())


def test_unusable_folder_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    check(tmp_path / "file")


def test_folder_that_others_may_write_to_is_not_used(tmp_path):
    tmp_path.chmod(0o777)
    check(tmp_path)
    assert not list(tmp_path.iterdir())


def test_environment_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DISC_CODE_CACHE", str(tmp_path))
    check(None)
    assert len(entries(tmp_path)) == 1
    check(False, factor=3.0)
    assert len(entries(tmp_path)) == 1


@pytest.mark.parametrize("limit", [1 << 20, pytest.param(1, marks=pytest.mark.nightly)])
def test_many_processes(tmp_path, limit):
    script = tmp_path.parent / "compile_often.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path), str(limit)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        _, problems = process.communicate()
        assert process.returncode == 0, problems
    assert [path.suffix for path in tmp_path.iterdir()] == ([".disc-object"] if limit > 1 else [])


@pytest.mark.parametrize("value", [True, 3])
def test_wrong_folder(value):
    with pytest.raises(TypeError, match="code_cache: expected a folder"):
        disc.Options(code_cache=value)
