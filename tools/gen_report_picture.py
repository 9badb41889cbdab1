#!/usr/bin/env python3
"""Writes docs/howto/report.png and report-kernels.png: parts of a report, as Chromium shows them.

Times differ from run to run, so the pictures are not compared with those that are checked in.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/howto"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TRIES = 4
"""Now and then, Chromium without a GPU stops drawing a page; a new process of it draws the same page."""


def browser() -> str | None:
    """The program of an installed Chromium, or None."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


def picture(page: Path, output: Path, width: int, height: int, section: str = "") -> None:
    """Writes a PNG of the top of a page, or of one of its sections alone.

    Raises:
        RuntimeError: there is no Chromium, or it wrote nothing.
        subprocess.TimeoutExpired: it did not end, several times.
    """
    program = browser()
    if program is None:
        raise RuntimeError(f"a picture needs Chromium: none of {', '.join(_BROWSERS)} is on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        if section:
            hidden = f"<style>header, nav, footer, main > section:not(#{section}) {{ display: none }}</style></head>"
            part = Path(folder) / "part.html"
            part.write_text(page.read_text(encoding="utf-8").replace("</head>", hidden, 1), encoding="utf-8")
            page = part
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
        flags += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
        flags += [f"--user-data-dir={folder}", f"--window-size={width},{height}", f"--screenshot={output.resolve()}"]
        command = [program, *flags, page.resolve().as_uri()]
        for left in reversed(range(TRIES)):
            try:
                result = subprocess.run(command, capture_output=True, text=True, timeout=90)
                break
            except subprocess.TimeoutExpired:
                if not left:
                    raise
    if not output.exists():
        raise RuntimeError(f"{program} wrote no picture:\n{result.stderr}")


def minilm(page: Path) -> None:
    """Writes a report on the model of the demo."""
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]
    import disc
    from minilm import compile_model
    from sentence_embedder import load_model, random_inputs

    module = load_model()
    model = compile_model(module)
    disc.report(model, page, inputs=random_inputs(8, 64), shapes=[{"batch": 1, "length": 16}], title="all-MiniLM-L6-v2")


def main() -> None:
    """Writes the pictures, of a report on MiniLM or of a given page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="a report that is there (default: one on MiniLM)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = args.page
        if page is None:
            page = Path(folder) / "report.html"
            minilm(page)
        picture(page, args.folder / "report.png", 1280, 1000)
        picture(page, args.folder / "report-kernels.png", 1280, 1000, "kernels")


if __name__ == "__main__":
    main()
