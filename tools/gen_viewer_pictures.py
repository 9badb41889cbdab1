#!/usr/bin/env python3
"""Takes the pictures of docs/howto/viewers.md: Model Explorer and tlparse's report, of a small model.

It needs the extra `viewers`, the Python package playwright and Chromium (`CHROMIUM` names it, by default `chromium`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/howto"
_SIZE = {"width": 1500, "height": 950}
_SCRIPT = """
import torch
import disc


class Attention(torch.nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.project = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.norm(x + self.project(attended.transpose(1, 2).flatten(2)))


def main():
    dims = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", min=2, max=512)}
    model = disc.compile(Attention().eval(), (torch.randn(2, 8, 64),), dynamic_shapes=(dims,))
    torch.compile(Attention().eval(), backend="disc", dynamic=True)(torch.randn(2, 8, 64)).sum().backward()
    return model


if __name__ == "__main__":
    from disc.viewers import model_explorer

    model = main()
    x = torch.randn(16, 128, 64)
    model(x)
    with model.profile() as profile:
        model(x)
    model_explorer.save(model, "attention.json", ["memory"])
    model_explorer.save_node_data(profile, ".")
"""


def missing() -> str:
    """What this machine lacks for the pictures; "" if nothing."""
    try:
        import model_explorer  # noqa: F401
        import playwright  # noqa: F401
    except ModuleNotFoundError as error:
        return f"the package {error.name}"
    return "" if shutil.which(_chromium()) else "Chromium"


def _chromium() -> str:
    return os.environ.get("CHROMIUM", "chromium")


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Model Explorer on a free port; gives its address."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    address = f"http://localhost:{port}/"
    options = [f"--port={port}", "--no_open_in_browser", "--skip_health_check"]
    command = [sys.executable, "-m", "model_explorer", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(120):
                with contextlib.suppress(OSError), urllib.request.urlopen(address):
                    break
                time.sleep(0.5)
            yield address
        finally:
            process.terminate()


def _model_explorer(page: Any, folder: Path, picture: Path) -> None:
    view = {
        "deepestExpandedGroupNodeIds": ["main___group___"],
        "selectedNodeId": "main___group___",
        "selectedGraphId": "5 memory",
        "selectedCollectionLabel": "Attention",
        "widthFraction": 1,
        "selected": True,
    }
    data = {
        "models": [{"url": str(folder / "attention.json")}],
        "nodeData": [str(folder / "time.json")],
        "nodeDataTargets": [""],
        "uiState": {"paneStates": [view]},
    }
    with _server(folder) as address:
        page.goto(f"{address}?data={urllib.parse.quote(json.dumps(data))}")
        page.wait_for_selector("model-graph-visualizer", timeout=120_000)
        page.wait_for_timeout(10_000)
        # Zooms in on the launches.
        page.mouse.move(760, 520)
        page.keyboard.down("Control")
        for _ in range(9):
            page.mouse.wheel(0, -40)
            page.wait_for_timeout(300)
        page.keyboard.up("Control")
        page.wait_for_timeout(3_000)
        page.screenshot(path=str(picture))


def _tlparse(page: Any, folder: Path, picture: Path) -> None:
    (log,) = (folder / "trace").glob("*.log")
    tlparse = shutil.which("tlparse", path=Path(sys.executable).parent) or "tlparse"
    command = [tlparse, str(log), "-o", str(folder / "report"), "--no-browser"]
    subprocess.run(command, check=True, capture_output=True)
    page.goto((folder / "report/index.html").as_uri())
    page.get_by_text("Build products below:").evaluate("element => element.scrollIntoView()")
    page.screenshot(path=str(picture))


def take(target: Path) -> list[Path]:
    """Takes the pictures into a folder; returns the files."""
    from playwright.sync_api import sync_playwright

    target.mkdir(parents=True, exist_ok=True)
    pictures = [target / "viewers-model-explorer.png", target / "viewers-tlparse.png"]
    with tempfile.TemporaryDirectory() as name, sync_playwright() as browsers:
        folder = Path(name)
        (folder / "attention.py").write_text(_SCRIPT, encoding="utf-8")
        environment = {**os.environ, "TORCH_TRACE": str(folder / "trace"), "DISC_CODE_CACHE": ""}
        subprocess.run([sys.executable, "attention.py"], cwd=folder, env=environment, check=True)
        arguments = ["--no-sandbox", "--disable-quic", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = browsers.chromium.launch(executable_path=shutil.which(_chromium()), args=arguments)
        page = browser.new_page(viewport=_SIZE)
        _model_explorer(page, folder, pictures[0])
        _tlparse(page, folder, pictures[1])
        browser.close()
    return pictures


def main() -> int:
    """Writes the pictures to docs/howto, or to the folder given as argument."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    target = parser.parse_args().folder
    if lacks := missing():
        print(f"pictures: this machine lacks {lacks}", file=sys.stderr)
        return 1
    print("\n".join(map(str, take(target))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
