"""The picture: peak against time, of DISC's plans and of the peers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bench.report import label

from .results import Result

MARKS = {"eager": "s", "checkpoint": "D", "compile_1": "^", "compile_0.5": "v", "compile_0.25": "<", "compile_0.1": ">"}


def draw(results: Sequence[Result], path: Path) -> None:
    """One panel per model, at its large shape; both axes are in parts of eager's figures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [r for r in results if r.shapes and r.shapes[-1].plans]
    wide = min(3, len(shown))
    tall = math.ceil(len(shown) / wide)
    figure, axes = pyplot.subplots(tall, wide, figsize=(4.6 * wide, 3.6 * tall), squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.axis("off")
    titles: dict[str, tuple[str, str]] = {}
    for axis, result in zip(axes.flat, shown, strict=False):
        at = result.shapes[-1]
        eager = at.peer("eager")
        memory = eager.peak if eager and eager.peak else at.peak
        clock = eager.seconds if eager and eager.seconds else at.usual or 1.0
        plans = [(p.total / memory, p.seconds / clock) for p in at.plans if p.seconds]
        axis.plot(*zip(*plans, strict=True), marker="o", color="#1f5fa8", markersize=4)
        for i, (name, mark) in enumerate(MARKS.items()):
            peer = at.peer(name)
            if peer and peer.peak and peer.seconds:
                color = f"C{i + 1}"
                axis.scatter([peer.peak / memory], [peer.seconds / clock], marker=mark, color=color, s=36, zorder=3)
                titles[name] = (peer.title, color)
        axis.set_title(f"{result.title}\n{label(tuple(at.shape))}", fontsize=9)
        axis.set_xlim(0, 1.08 * axis.dataLim.x1)
        axis.set_ylim(0, 1.12 * axis.dataLim.y1)
        axis.grid(linewidth=0.4, alpha=0.6)
    handles = [pyplot.Line2D([], [], marker="o", color="#1f5fa8", label="DISC's plans")]
    handles += [
        pyplot.Line2D([], [], marker=MARKS[name], linestyle="", color=color, label=title)
        for name, (title, color) in titles.items()
    ]
    figure.legend(handles=handles, loc="upper center", ncols=4, frameon=False, fontsize=8)
    against = "eager's" if titles else "DISC's without a budget"
    figure.supylabel(f"CPU time / {against}", fontsize=9)
    figure.supxlabel(f"peak memory / {against}", fontsize=9)
    figure.tight_layout(rect=(0.01, 0.01, 1, 1 - 0.6 / (3.6 * tall)))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
