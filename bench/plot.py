"""The plot: for each workload and shape, how much longer every peer takes than DISC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from .engines import OURS
from .report import label
from .results import Cell, WorkloadResult, geomean

# Beyond this a peer is not in the race, and its distance would only flatten the others.
CUT = 8.0


def draw(results: Sequence[WorkloadResult], path: Path) -> None:
    """One panel per workload: bars to the best peer, dots for all of them, a line where we would be equal."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = {
        name: e.title
        for r in results
        for name, e in r.engines.items()
        if name in r.peers() and any(cells.get(name, Cell()).median for cells in r.shapes.values())
    }
    colors = dict(zip(titles, pyplot.get_cmap("tab20").colors, strict=False))
    wide = 2 if len(results) > 1 else 1
    tall = math.ceil(len(results) / wide)
    figure, axes = pyplot.subplots(tall, wide, figsize=(7.5 * wide, 3.1 * tall), squeeze=False)
    for axis in axes.flat[len(results) :]:
        axis.axis("off")
    for axis, result in zip(axes.flat, results, strict=False):
        _panel(axis, result, colors)
    handles = [
        pyplot.Line2D([], [], marker="o", linestyle="", color=colors[name], label=title)
        for name, title in titles.items()
    ]
    figure.legend(handles=handles, loc="upper center", ncols=min(8, len(handles)), frameon=False)
    figure.supylabel("time of the peer / time of DISC", fontsize=10)
    machine = results[0].machine
    figure.supxlabel(machine.describe() + f", {machine.threads} threads", fontsize=8)
    figure.tight_layout(rect=(0.01, 0.01, 1, 1 - 0.35 / (3.1 * tall)))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _panel(axis, result: WorkloadResult, colors) -> None:  # type: ignore[no-untyped-def]
    shapes = list(result.shapes)
    ratios = [result.ratio(shape) or float("nan") for shape in shapes]
    axis.bar(range(len(shapes)), [r - 1 for r in ratios], bottom=1, color="#d5dbe3", width=0.8, zorder=1)
    for name in result.peers():
        points = []
        for i, shape in enumerate(shapes):
            ours, theirs = (result.shapes[shape].get(n, Cell()).median for n in (OURS, name))
            if ours and theirs:
                points.append((i, min(theirs / ours, CUT)))
        if points:
            axis.scatter(*zip(*points, strict=True), s=16, color=colors.get(name, "gray"), zorder=3)
    for i, ratio in enumerate(ratios):
        if ratio == ratio:
            axis.annotate(f"{ratio:.2f}", (i, 0.53), ha="center", fontsize=7)
    axis.axhline(1.0, color="black", linewidth=1, zorder=2)
    axis.set_yscale("log")
    axis.set_ylim(0.5, CUT * 1.08)
    ticks = [0.75, 1, 1.5, 2, 3, 4, 6, 8]
    axis.set_yticks(ticks, [f"{t:g}" for t in ticks[:-1]] + [f"≥{CUT:g}"])
    axis.minorticks_off()
    axis.set_xticks(range(len(shapes)), [label(s) for s in shapes], rotation=60, fontsize=7, ha="right")
    axis.grid(axis="y", linewidth=0.4, alpha=0.6, zorder=0)
    mean = geomean(result.ratio(s) for s in shapes)
    axis.set_title(f"{result.title}: geomean {mean:.2f}" if mean else result.title, fontsize=10)
