"""A report in Chromium: no error in the console, no request, no sideways scrolling; and the pictures of the docs."""

import re
import subprocess

import pytest
import torch
from torch import nn

import disc
import gen_report_picture
from disc.reporting import limits

CHROMIUM = gen_report_picture.browser()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The file of a report on a small model."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.Softmax(-1)).eval()
    model = disc.compile(module, (torch.randn(4, 32),), dynamic_shapes=({0: torch.export.Dim("rows", max=4096)},))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "measure", lambda threads: limits.Limits(threads, 100e9, 50e9, 10e9, 1 << 20))
        disc.report(model, path, shapes=[{"rows": 64}], calls=1)
    return path


# An iframe has any width; a window of a headless browser does not. Resources are all that the page asked for.
_FRAME = """<!doctype html><title>unfinished</title><iframe width="{width}" height="3000" src="{page}"></iframe>
<script>onload = () => {{
  const page = document.querySelector("iframe").contentWindow, root = page.document.documentElement;
  const charts = [...page.document.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().width > 0);
  document.title = [root.scrollWidth - root.clientWidth, page.performance.getEntriesByType("resource").length,
    charts.map(svg => svg.getAttribute("class")).join("+")].join(" ");
}}</script>"""


def browse(file, folder):
    """The title of a page, and what it wrote to the console."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", "--allow-file-access-from-files"]
    flags += ["--enable-logging=stderr", f"--user-data-dir={folder}", "--window-size=1700,1200", "--dump-dom"]
    result = subprocess.run([CHROMIUM, *flags, file.as_uri()], capture_output=True, text=True, timeout=120)
    title = re.search(r"<title>(.*?)</title>", result.stdout)
    assert title is not None, result.stderr
    return title[1], [line for line in result.stderr.splitlines() if "CONSOLE" in line]


def test_in_a_browser(report, tmp_path):
    text = report.read_text(encoding="utf-8")
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    for width, charts in ((390, "narrow+narrow"), (1600, "wide+wide")):
        frame = tmp_path / f"{width}.html"
        frame.write_text(_FRAME.format(width=width, page="report.html"))
        title, console = browse(frame, tmp_path / "browser")
        assert console == []
        # No sideways scrolling, no request, and the chart of this width.
        assert title == f"0 0 {charts}"
    # The checks see what they look for.
    (tmp_path / "loads.html").write_text(text.replace("</body>", '<img src="missing.png"></body>'), encoding="utf-8")
    frame.write_text(_FRAME.format(width=1600, page="loads.html"))
    title, console = browse(frame, tmp_path / "browser")
    assert console and "Content Security Policy" in console[0]


def test_the_pictures_of_the_documentation(report, tmp_path, monkeypatch):
    arguments = ["--page", str(report), "--folder", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["gen_report_picture.py", *arguments])
    gen_report_picture.main()
    for name in ("report.png", "report-kernels.png"):
        header = (tmp_path / name).read_bytes()[:24]
        assert header.startswith(b"\x89PNG") and int.from_bytes(header[16:20]) == 1280
        assert (gen_report_picture.FOLDER / name).exists()
