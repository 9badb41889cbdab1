"""The packages of examples/backends, found by their entry points, and docs/adding-a-backend.md, followed."""

import importlib
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import disc
from doc_pages import blocks

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples/backends"
PAGE = (ROOT / "docs/adding-a-backend.md").read_text(encoding="utf-8")
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
PIP += ["--no-deps", "--no-build-isolation", "--target"]
BOTH = ("cblas", "accelerator")


def is_openblas_installed():
    command = ["cc", "-print-file-name=libopenblas.so"]
    return os.sep in subprocess.run(command, capture_output=True, text=True).stdout


needs_openblas = pytest.mark.skipif(not is_openblas_installed(), reason="libopenblas-dev is missing")


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The packages of examples/backends in a folder of the import path."""
    sources, site = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    for name in BOTH:
        shutil.copytree(EXAMPLES / name, sources / name)
    subprocess.run([*PIP, site, *(sources / name for name in BOTH)], check=True)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    yield site
    sys.path.remove(str(site))
    for name in BOTH:
        sys.modules.pop(f"disc_backend_{name}", None)


class Layers(torch.nn.Module):
    """What both back ends could take, with operands that are transposed, sliced and repeated."""

    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.last = torch.nn.Linear(16, 8, bias=False)

    def forward(self, x, w):
        y = self.norm(x + self.down(F.gelu(self.up(x))) * 0.5)
        mixed = torch.softmax(torch.bmm(y, x.transpose(1, 2)) * 0.25, -1) @ y
        repeated = x.unsqueeze(1) @ w.t().expand(3, 16, w.shape[0])
        return F.relu(self.last(mixed)), self.up(x.transpose(0, 1)), torch.mm(w, w.t()), x[:, ::2] @ w.t(), repeated


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(16, 32)
        self.b = torch.nn.Linear(16, 32)
        self.step = torch.nn.Linear(32, 32)

    def forward(self, x):
        y = F.relu(self.a(x)) if x.sum() > 0 else F.gelu(self.b(x))
        while y.abs().max() > 0.5:
            y = self.step(y) * 0.3
        return y + 1.0


class Derived(torch.nn.Module):
    """Extents n//2, 2*n+1, b*n, and one that data decides."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(16, 32)
        self.b = torch.nn.Linear(16, 32)

    def forward(self, x):
        b, n, _ = x.shape
        longer = torch.cat([x, x, torch.ones(b, 1, 16)], 1)
        chosen = x[x[..., 0] > 0]
        half = F.gelu(self.a(x[:, : n // 2] * 1.5))
        return half, F.relu(self.b(longer)) * 2.0, self.a(x.reshape(-1, 16)), self.b(chosen)


POINTS = ((1, 1), (3, 5), (2, 7), (5, 1), (0, 3), (3, 0), (4, 2), (16, 33))
# Of each case the module, an example, the dynamic shapes, and arguments for b and n.
CASES = {
    "layers": (
        Layers,
        (torch.randn(3, 5, 16), torch.randn(4, 16)),
        ({0: "b", 1: "s"}, {0: "k"}),
        lambda b, n: (torch.randn(b, n, 16), torch.randn(b + n, 16)),
    ),
    "branches": (
        Branches,
        (torch.randn(3, 16),),
        ({0: "n"},),
        lambda b, n: (torch.randn(b * n + 1, 16) + 2 * (n % 2) - 1,),
    ),
    "derived": (
        Derived,
        (torch.randn(3, 6, 16),),
        ({0: "b", 1: "n"},),
        lambda b, n: (torch.randn(b, n, 16),),
    ),
}


def check(run, module, arguments):
    torch.manual_seed(0)
    for b, n in POINTS:
        args = arguments(b, n)
        with torch.no_grad():
            expected = module(*args)
        torch.testing.assert_close(run(*args), expected, msg=lambda text, b=b, n=n: f"at {b} x {n}: {text}")


def compiled(case, backends, preferred):
    """The model; unless ``preferred``, back ends are not asked at which sizes they are faster."""
    make, example, shapes, arguments = CASES[case]
    torch.manual_seed(0)
    module = make().eval()
    chosen = [disc.backends.find(name) for name in backends]
    if not preferred:
        for backend in chosen:
            backend.prefer = lambda region: True
    model = disc.compile(module, example, dynamic_shapes=shapes, backends=backends if preferred else chosen)
    return model, module, arguments


def takers(model):
    return {decision.op: decision.backend for decision in model.backends}


def test_sizes_of_the_packages():
    def lines(name):
        files = [file for file in (EXAMPLES / name).rglob("*") if file.suffix in (".py", ".c")]
        assert len(files) == 2
        return sum(file.read_text(encoding="utf-8").count("\n") for file in files)

    assert lines("cblas") <= 150
    assert lines("accelerator") <= 300


def test_available(installed):
    assert set(disc.backends.available()) >= set(BOTH)
    assert disc.backends.find("accelerator").name == "accelerator"
    assert Path(sys.modules["disc_backend_accelerator"].__file__).is_relative_to(installed)


@needs_openblas
@pytest.mark.slow
@pytest.mark.parametrize("preferred", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("backends", [BOTH, BOTH[::-1]], ids="-".join)
def test_layers(installed, backends, preferred):
    model, module, arguments = compiled("layers", backends, preferred)
    check(model, module, arguments)
    found = takers(model)
    assert found["aten.linear"] == backends[0]
    assert (found["aten.bmm"], found["aten.layer_norm"]) == BOTH
    assert all(bool(decision.when) == preferred for decision in model.backends if decision.backend)


@needs_openblas
@pytest.mark.parametrize("backends", [BOTH, pytest.param(BOTH[::-1], marks=pytest.mark.nightly)], ids="-".join)
def test_branches(installed, backends):
    model, module, arguments = compiled("branches", backends, False)
    check(model, module, arguments)
    assert takers(model)["aten.linear"] == backends[0]
    # Both branches, and the loop.
    assert len({decision.region for decision in model.backends if decision.op == "aten.linear"}) == 3


@pytest.mark.parametrize(
    "backends", [("accelerator",), pytest.param(BOTH, marks=[needs_openblas, pytest.mark.nightly])], ids="-".join
)
def test_derived_extents(installed, backends):
    model, module, arguments = compiled("derived", backends, len(backends) == 1)
    check(model, module, arguments)
    taken = model.backends.by(backends[0])
    assert sum(decision.op == "aten.linear" for decision in taken) == 4
    if len(backends) == 1:
        conditions = " ".join(decision.when for decision in taken)
        assert "n floordiv 2" in conditions and "n * 2 + 1" in conditions and "u0" in conditions


def test_reasons(installed):
    class Refused(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.odd = torch.nn.Linear(8, 6)

        def forward(self, x, y):
            return self.odd(x), y + 1.0

    example = (torch.randn(3, 8), torch.randn(3, 8, dtype=torch.float64))
    backends = BOTH if is_openblas_installed() else ("accelerator",)
    model = disc.compile(
        Refused().eval(), example, dynamic_shapes=({0: "n"}, None), backends=[disc.backends.find(b) for b in backends]
    )
    refusals = {r.reason for decision in model.backends for r in decision.refusals}
    assert "the number of features, 6, is not a multiple of 4" in refusals
    assert "the dtype is float64, expected float32" in refusals


PROGRAM = """\
#include "layers.h"
#include <stdio.h>

int main(void) {
  float x[3 * 5 * 16], y[3 * 5 * 16];
  disc_model *model;
  fread(x, sizeof(float), 240, stdin);
  if (layers_open(NULL, &model) || layers_run(model, 3, 5, x, y))
    return fprintf(stderr, "%s\\n", disc_last_error()), 1;
  fwrite(y, sizeof(float), 240, stdout);
  disc_free(model);
  return 0;
}
"""


class Library(torch.nn.Module):
    """Both back ends compile a part of it, whichever is first."""

    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        y = self.norm(self.down(F.gelu(self.up(x))))
        return torch.bmm(torch.softmax(torch.bmm(x, y.transpose(1, 2)) * 0.25, -1), y)


@needs_openblas
@pytest.mark.slow
@pytest.mark.parametrize("backends", [BOTH[::-1], pytest.param(BOTH, marks=pytest.mark.nightly)], ids="-".join)
def test_ahead_of_time(installed, backends, tmp_path):
    torch.manual_seed(0)
    module = Library().eval()
    artifact = disc.aot_compile(
        module,
        (torch.randn(3, 5, 16),),
        dynamic_shapes=({0: "b", 1: "s"},),
        output=tmp_path / "liblayers.so",
        header=tmp_path / "layers.h",
        backends=backends,
    )
    assert {decision.backend for decision in artifact.decisions} >= set(BOTH)
    check(disc.load(tmp_path / "liblayers.so"), module, lambda b, n: (torch.randn(b, n, 16),))

    # A program without Python.
    (tmp_path / "main.c").write_text(PROGRAM)
    command = ["cc", "main.c", "-I.", "-L.", "-llayers", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    x = torch.randn(3, 5, 16)
    done = subprocess.run([tmp_path / "main"], input=x.numpy().tobytes(), capture_output=True, check=True)
    y = torch.frombuffer(bytearray(done.stdout), dtype=torch.float32).reshape(3, 5, 16)
    torch.testing.assert_close(y, module(x).detach())


@pytest.mark.slow
def test_the_page_is_followed(tmp_path):
    """In an empty folder; what pip installs is found by its entry point."""
    folder, site = tmp_path / "disc-backend-tiny", tmp_path / "site"
    folder.mkdir()
    script = ["set -euo pipefail", f'pip() {{ {" ".join(map(str, PIP))} "{site}" "${{@:2}}"; }}']
    script += [f'pytest() {{ "{sys.executable}" -m pytest -p no:cacheprovider "$@"; }}']
    for block in blocks(PAGE):
        if block.title:
            (folder / block.title).write_text(block.code, encoding="utf-8")
        if block.marker == "run" and block.language == "console":
            script += [line[2:] for line in block.code.splitlines() if line.startswith("$ ")]
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
    report = next(block.code for block in blocks(PAGE) if "tiny (region 0" in block.code)
    assert report in done.stdout.replace(f"{folder}{os.sep}", "")
    # The prototype is not a package.
    runpy.run_path(str(folder / "prototype.py"))


def test_the_code_of_the_page_is_the_packages():
    """What the page shows of the template and of the header is what there is."""
    files = [*(EXAMPLES / "accelerator").rglob("*.py"), *(EXAMPLES / "accelerator").rglob("*.c")]
    there = "\n".join(f.read_text(encoding="utf-8") for f in [*files, ROOT / "lib/Runtime/disc_backend.h"])
    shown = [block for block in blocks(PAGE) if block.language in ("python", "c") and not block.title]
    assert len(shown) == 5
    for block in shown:
        # Blocks are without the indentation that they have in common.
        lines = [line.strip() for line in block.code.splitlines()]
        assert "\n".join(lines) in "\n".join(line.strip() for line in there.splitlines()), block.line
