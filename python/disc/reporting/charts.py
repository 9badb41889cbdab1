"""The geometry of a report's charts; the template draws them as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .limits import Limits
from .measurement import KernelRun


class Tick(NamedTuple):
    """A mark of an axis."""

    at: float
    label: str


class Point(NamedTuple):
    """A kernel on the roofline."""

    x: float
    y: float
    radius: float
    number: int
    """Its row in the table of kernels, from 1."""
    kernel: KernelRun
    label: tuple[float, float] | None
    """Where its number is; None if it has none."""


class Roof(NamedTuple):
    """A limit of the machine, as the corners of a line."""

    name: str
    label: str
    points: tuple[tuple[float, float], ...]
    label_at: tuple[float, float]
    angle: float
    """Of the label, in degrees."""


@dataclass(frozen=True)
class Frame:
    """The size of a chart, and the plot inside of its axes."""

    name: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def across(self, part: float) -> float:
        """The x of a part, 0 to 1, of the plot."""
        return round(self.left + part * (self.right - self.left), 1)

    def up(self, part: float) -> float:
        """The y of a part, 0 to 1, of the plot, from its bottom."""
        return round(self.bottom - part * (self.bottom - self.top), 1)


def frames(height: float) -> list[Frame]:
    """A wide and a narrow variant: text keeps its size on a phone, and CSS shows one of the two."""
    return [
        Frame("wide", 1150, height, 58, 1140, 14, height - 44),
        Frame("narrow", 352, height * 0.9, 48, 346, 14, height * 0.9 - 44),
    ]


@dataclass(frozen=True)
class Roofline:
    """Operations per second over operations per byte, both logarithmic."""

    frame: Frame
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    roofs: list[Roof]
    points: list[Point]


_LABELLED = 6


def roofline(kernels: Sequence[KernelRun], limits: Limits, frame: Frame) -> Roofline | None:
    """The kernels that compute something; None if there are none."""
    shown = [(i, k, k.intensity, k.flops) for i, k in enumerate(kernels, 1) if k.intensity and k.flops]
    if not shown:
        return None
    ridge = limits.flops / limits.memory_bandwidth
    x = _Log([*(intensity for _, _, intensity, _ in shown), ridge], 1.6)
    y = _Log([*(flops for *_, flops in shown), limits.flops], 1.8)
    total = sum(kernel.seconds for kernel in kernels) or 1.0
    points: list[Point] = []
    labels: list[tuple[float, float]] = []
    for number, kernel, intensity, flops in shown:
        at = frame.across(x.part(intensity)), frame.up(y.part(flops))
        radius = round(4 + 12 * math.sqrt(kernel.seconds / total), 1)
        label = _label(at, radius, labels) if len(points) < _LABELLED else None
        if label is not None:
            labels.append(label)
        points.append(Point(*at, radius, number, kernel, label))
    roofs = [
        _slope(
            frame,
            x,
            y,
            limits.memory_bandwidth,
            limits.flops,
            "memory",
            f"memory {limits.memory_bandwidth / 1e9:.0f} GB/s",
        ),
        _slope(
            frame, x, y, limits.cache_bandwidth, limits.flops, "cache", f"cache {limits.cache_bandwidth / 1e9:.0f} GB/s"
        ),
    ]
    top = y.part(limits.flops)
    flat = max(0.0, min(1.0, x.part(limits.flops / limits.cache_bandwidth)))
    roofs.append(
        Roof(
            "arithmetic",
            f"{limits.flops / 1e9:.0f} GFLOP/s",
            ((frame.across(flat), frame.up(top)), (frame.right, frame.up(top))),
            (frame.right - 4, frame.up(top) - 6),
            0.0,
        )
    )
    return Roofline(frame, _ticks(x, frame.across), _ticks(y, frame.up, 1e9), roofs, points[::-1])


def _label(at: tuple[float, float], radius: float, taken: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """A place for a number inside of its circle or beside it, where no other number is."""
    far = radius + 9
    for dx, dy in ((0, 0), (0, -far), (0, far), (far, 0), (-far, 0), (far, -far), (-far, far)):
        place = round(at[0] + dx, 1), round(at[1] + dy + 4, 1)
        if all(math.dist(place, other) > 15 for other in taken):
            return place
    return None


class _Log:
    """A logarithmic axis with some space around its values."""

    def __init__(self, values: Sequence[float], space: float) -> None:
        self.low = math.log10(min(values) / space)
        self.high = math.log10(max(values) * space)

    def part(self, value: float) -> float:
        """Where a value is, from 0 to 1."""
        return (math.log10(value) - self.low) / (self.high - self.low)

    def value(self, part: float) -> float:
        """The value at a place."""
        return float(10 ** (self.low + part * (self.high - self.low)))


def _slope(frame: Frame, x: _Log, y: _Log, bandwidth: float, flops: float, name: str, label: str) -> Roof:
    """The roof of a bandwidth: operations per second are proportional to operations per byte."""
    begin, end = max(x.value(0), y.value(0) / bandwidth), min(flops / bandwidth, x.value(1))
    corners = tuple((frame.across(x.part(v)), frame.up(y.part(v * bandwidth))) for v in (begin, end))
    (x0, y0), (x1, y1) = corners
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    place = 0.3
    return Roof(name, label, corners, (x0 + place * (x1 - x0), y0 + place * (y1 - y0) - 7), round(angle, 1))


def _ticks(axis: _Log, place: object, unit: float = 1.0) -> list[Tick]:
    decades = range(math.ceil(axis.low), math.floor(axis.high) + 1)
    step = max(1, math.ceil(len(decades) / 6))
    values = [10.0**d for d in decades if d % step == 0]
    if len(values) < 2:
        values = [m * 10.0**d for d in range(math.floor(axis.low), math.ceil(axis.high) + 1) for m in (1, 2, 5)]
        values = [v for v in values if axis.low <= math.log10(v) <= axis.high]
    return [Tick(place(axis.part(v)), f"{v / unit:g}") for v in values]  # type: ignore[operator]


class Block(NamedTuple):
    """A temporary in the arena: its lifetime across, its place in memory upwards."""

    x: float
    y: float
    width: float
    height: float
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryChart:
    """The arena over the steps of a call."""

    frame: Frame
    blocks: list[Block]
    live: str
    """The bytes in use at each step, as the points of a polyline."""
    x_ticks: list[Tick]
    y_ticks: list[Tick]


def memory_chart(temporaries: Sequence[tuple[int, int, int, int]], arena: int, frame: Frame) -> MemoryChart | None:
    """Offset, size, first and last step of each temporary; None if there are none."""
    present = [t for t in temporaries if t[1] > 0]
    if not present or arena <= 0:
        return None
    begin, end = min(t[2] for t in present), max(t[3] for t in present) + 1
    span = end - begin
    blocks = []
    for offset, size, first, last in present:
        x, right = frame.across((first - begin) / span), frame.across((last + 1 - begin) / span)
        bottom, top = frame.up(offset / arena), frame.up((offset + size) / arena)
        blocks.append(
            Block(x, top, round(max(right - x, 1.0), 1), round(max(bottom - top, 1.0), 1), offset, size, first, last)
        )
    corners = []
    for step in range(begin, end):
        used = sum(size for _, size, first, last in present if first <= step <= last)
        corners += [(step - begin, used), (step - begin + 1, used)]
    live = " ".join(f"{frame.across(s / span)},{frame.up(used / arena)}" for s, used in corners)
    steps = _round_steps(span)
    x_ticks = [
        Tick(frame.across((s - begin) / span), str(s)) for s in range(-(-begin // steps) * steps, end + 1, steps)
    ]
    unit, factor = _unit(arena)
    step = _round_steps(max(1, math.ceil(arena / factor)), 4)
    y_ticks = [Tick(frame.up(0), "0")]
    y_ticks += [Tick(frame.up(v * factor / arena), f"{v} {unit}") for v in range(step, int(arena / factor) + 1, step)]
    return MemoryChart(frame, blocks, live, x_ticks, y_ticks)


def _round_steps(span: int, most: int = 8) -> int:
    """A round distance of ticks."""
    for step in (m * 10**d for d in range(12) for m in (1, 2, 5)):
        if span / step <= most:
            return step
    return span


def _unit(size: int) -> tuple[str, int]:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= 2 * factor:
            return unit, factor
    return "B", 1
