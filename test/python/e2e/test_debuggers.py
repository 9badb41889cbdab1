"""Options(profile=True): debuggers and perf find the user's lines in compiled code."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import disc

DWARFDUMP = shutil.which("llvm-dwarfdump-22")


def scaled(x, y):
    z = torch.softmax(x @ y, dim=-1)
    return z.cumsum(0)


def compiled(**options):
    shapes = {"x": {0: "rows"}, "y": {}}
    example = (torch.randn(5, 16), torch.randn(16, 24))
    try:
        return disc.compile(scaled, example, dynamic_shapes=shapes, options=disc.Options(code_cache=False, **options))
    finally:
        Path(f"/tmp/perf-{os.getpid()}.map").unlink(missing_ok=True)


def sections(objects, tmp_path):
    found = ""
    for number, code in enumerate(objects):
        path = tmp_path / f"{number}.o"
        path.write_bytes(code)
        found += subprocess.run([DWARFDUMP, "--debug-line", path], check=True, capture_output=True, text=True).stdout
    return found


def test_code_has_the_lines_of_the_model(tmp_path):
    lines = sections(compiled(profile=True)._executable.objects(), tmp_path)
    assert Path(__file__).name in lines
    first = scaled.__code__.co_firstlineno
    rows = {row.split()[1] for row in lines.splitlines() if row.startswith("0x")}
    assert {str(first + 1), str(first + 2)} <= rows


def test_code_has_no_lines_otherwise(tmp_path):
    assert Path(__file__).name not in sections(compiled()._executable.objects(), tmp_path)


def test_the_results_are_the_same_with_lines():
    x, y = torch.randn(37, 16), torch.randn(16, 24)
    assert torch.equal(compiled(profile=True)(x, y), compiled()(x, y))


def test_perf_gets_a_dump_of_the_code(tmp_path, monkeypatch):
    monkeypatch.setenv("JITDUMPDIR", str(tmp_path))
    model = compiled(profile="jitdump")
    (dump,) = tmp_path.rglob("jit*.dump")
    names = dump.read_bytes()
    assert all(kernel.name.encode() in names for kernel in model.kernels())
    assert Path(__file__).name.encode() in names


def test_other_values_are_refused():
    with pytest.raises(ValueError, match="profile: expected False, True or 'jitdump', got 'perf'"):
        disc.Options(profile="perf")


SCRIPT = """
import torch, disc
def scaled(x, y):
    z = torch.softmax(x @ y, dim=-1)
    return z
example = (torch.randn(5, 16), torch.randn(16, 24))
model = disc.compile(scaled, example, options=disc.Options(profile=True, code_cache=False, threads=1))
print([kernel.name for kernel in model.kernels()])
model(*example)
"""


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_stops_in_a_kernel_at_the_users_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    commands = ["set breakpoint pending on", "break script.py:4", "run", *["continue", "bt 1"] * 6]
    gdb = ["gdb", "-batch", "-nx", *(word for command in commands for word in ("-ex", command))]
    ran = subprocess.run(
        [*gdb, "--args", sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=300,
    )
    assert re.search(r"^#0 .*\bk\d+_\w+ .*script\.py:4$", ran.stdout, re.M), ran.stdout + ran.stderr
