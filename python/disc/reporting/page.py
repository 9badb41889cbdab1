"""The report as one HTML page: everything is inside, and nothing is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import charts
from .facts import Report
from .source import source_files

_TEMPLATE = "report.html.j2"


def render(report: Report) -> str:
    """The page's HTML.

    Raises:
        ImportError: jinja2 or pygments is not installed.
    """
    check_packages()
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        duration=duration,
        size=size,
        percent=percent,
        count=count,
        error=error,
        giga=giga,
        heat=heat,
        kindclass=kind_class,
    )
    first = report.measurements[0]
    lines = first.lines()
    memory = report.memory[0]
    rooflines = []
    if report.limits is not None:
        rooflines = [charts.roofline(first.kernels, report.limits, frame) for frame in charts.frames(430)]
    memory_charts: list[Any] = []
    if memory is not None:
        memory_charts = [charts.memory_chart(memory.temporaries, memory.arena, frame) for frame in charts.frames(340)]
    return environment.get_template(_TEMPLATE).render(
        report=report,
        first=first,
        lines=lines,
        files=source_files(lines),
        line_ids={line.source: f"line-{i}" for i, line in enumerate(lines, 1)},
        kernel_ids={kernel.name: f"kernel-{i}" for i, kernel in enumerate(first.kernels, 1)},
        numbers={kernel.name: i for i, kernel in enumerate(first.kernels, 1)},
        memory=memory,
        rooflines=[chart for chart in rooflines if chart is not None],
        memory_charts=[chart for chart in memory_charts if chart is not None],
        kinds=sorted({kernel.kind for kernel in first.kernels}, key=_KINDS.index if _known(first) else None),
    )


_KINDS = ["contraction", "convolution", "attention", "row", "column", "loop", "pack", "call"]


def _known(measurement: Any) -> bool:
    return all(kernel.kind in _KINDS for kernel in measurement.kernels)


def check_packages() -> None:
    """ImportError, which says how to install them, if packages of the page are missing."""
    for name in ("jinja2", "pygments"):
        try:
            __import__(name)
        except ImportError as error:
            raise ImportError(
                f"disc.report needs {name}, which is not installed; run: pip install 'disc-compiler[report]'",
                name=name,
            ) from error


def duration(seconds: float) -> str:
    """A time with its unit, three digits."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        value = seconds * factor
        if value >= 1 or unit == "µs":
            return f"{_digits(value)} {unit}"
    raise AssertionError


def size(count: float | None) -> str:
    """A number of bytes with its unit."""
    if count is None:
        return "–"
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{_digits(count / factor)} {unit}"
    return f"{count:g} B"


def giga(value: float | None) -> str:
    """A number in thousands of millions, without a unit."""
    return "–" if value is None else _digits(value / 1e9)


def count(value: float | None) -> str:
    """A number, three digits."""
    return "–" if value is None else _digits(value)


def percent(part: float | None) -> str:
    """A part of 1 in percent."""
    if part is None:
        return "–"
    value = 100 * part
    if 0 < value < 0.1:
        return "<\u202f0.1 %"
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.1f} %"


def error(value: float | None) -> str:
    """A difference."""
    return "–" if value is None else "0" if value == 0 else f"{value:.1e}"


def heat(share: float) -> str:
    """The strength of a line's colour, 0 to 1, so that small shares look different, too."""
    return f"{min(1.0, share) ** 0.6:.3f}"


def kind_class(kind: str) -> str:
    """The CSS class of a kind of kernel."""
    return f"kind-{kind}" if kind in _KINDS else "kind-other"


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.0f}".replace(",", "\u202f")
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
