"""Detection: suppression of boxes, regions of feature maps, deformable convolutions.

The rules of torchvision's operators need no torchvision: a program that has these operators has imported it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Tensor
from .elementwise import convert
from .sorting import sort_rows

_I64 = torch.int64
_UNROLLED = 16
"""Up to this many samples of a cell are one expression."""


@lowers("torch.torchvision.nms")
def nms(b: Builder, boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The indices of the boxes that overlap no kept box with a higher score, in order of score."""
    if boxes.dtype not in (torch.float32, torch.float64):
        raise NotLowerable(f"boxes of {boxes.dtype}; torchvision's CPU kernel has float32 and float64")
    count = scores.dims[0]
    b.require_equal(boxes.dims[0], count, "nms: boxes and scores must have the same number of rows")
    b.require_equal(boxes.dims[1], 4, "nms: boxes must have 4 columns")
    order = sort_rows(b, scores, 0, count, True)[1]
    indices, kept = b.call(
        "suppress_boxes",
        [boxes, order],
        [([count], _I64), ([], _I64)],
        config=[float(iou_threshold)],
        scratch=b.mul(count, 5 * boxes.dtype.itemsize + 1),
    )
    size = b.bind(kept, b.node_value.shape[0])
    return b.slice(indices, 0, 0, size)


@lowers("torch.torchvision.roi_align")
def roi_align(
    b: Builder,
    x: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: Extent,
    pooled_width: Extent,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """The mean of the samples in each cell of a grid over each box; a row of ``rois`` is an image's index and a box."""
    b.require_equal(rois.dims[1], 5, "roi_align: rois must have 5 columns")
    number = b.reshape(b.slice(rois, 1, 0, 1), [rois.dims[0]])
    images = convert(b, number, _I64)
    boxes = b.slice(rois, 1, 1, 4)
    return align(b, x, boxes, images, spatial_scale, (pooled_height, pooled_width), sampling_ratio, aligned)


def align(
    b: Builder,
    x: Tensor,
    boxes: Tensor,
    images: Tensor,
    scale: float,
    cells: Sequence[Extent],
    ratio: int,
    half: bool,
    *,
    most: bool = False,
) -> Tensor:
    """Samples of ``x`` [N, C, H, W] in boxes (x1, y1, x2, y2): [boxes, C, *cells], means or with ``most`` maxima.

    A cell has ``ratio`` samples along each dim, or if that is not positive one for each element that it covers. With
    ``half`` coordinates are those of elements' corners, else of their centres.
    """
    channels, sizes = x.dims[1], x.dims[2:]
    compute = dtypes.opmath(x.dtype)
    domain: list[Extent] = [boxes.dims[0], channels, *cells]

    def span(roi: Elem, axis: int) -> tuple[Elem, Elem]:
        """Where the box begins along y (0) or x (1), and how large a cell is."""
        ends = [
            b.extract(boxes, [roi, scalar.constant(1 - axis + k, _I64)]).to(compute) * scale - (0.5 if half else 0.0)
            for k in (0, 2)
        ]
        size = ends[1] - ends[0] if half else scalar.maximum(ends[1] - ends[0], 1.0)
        return ends[0], size / scalar.from_extent(cells[axis], _I64).to(compute)

    def count(roi: Elem, axis: int) -> Elem:
        """How many samples cover a cell along an axis."""
        size = span(roi, axis)[1]
        return (-scalar.floor(-size)).to(_I64)

    def corners(roi: Elem, axis: int, sample: Elem | int, samples: Elem | int) -> tuple[list[tuple[Elem, Elem]], Elem]:
        """Two indices with their weights, and whether the sample is inside."""
        start, size = span(roi, axis)
        cell = scalar.loop_index(2 + axis).to(compute)
        part: Elem | float
        if isinstance(sample, int) or isinstance(samples, int):
            part = (sample + 0.5) / samples  # type: ignore[assignment, operator]
            at = start + cell * size + size * part
        else:
            at = start + cell * size + (sample.to(compute) + 0.5) * size / samples.to(compute)
        extent = scalar.from_extent(sizes[axis], _I64)
        inside = (at >= -1.0) & (at <= extent.to(compute))
        at = scalar.minimum(scalar.maximum(at, 0.0), (extent - 1).to(compute))
        low = at.to(_I64)
        beyond = at - low.to(compute)
        return [(low, 1.0 - beyond), (scalar.minimum(low + 1, extent - 1), beyond)], inside

    def terms(rows: tuple[list[tuple[Elem, Elem]], Elem], columns: tuple[list[tuple[Elem, Elem]], Elem]) -> list[Elem]:
        channel = scalar.loop_index(1)
        image = b.checked_index(b.extract(images, [scalar.loop_index(0)]), x.dims[0], wrap=False)
        inside = rows[1] & columns[1]
        found = []
        for y, y_weight in rows[0]:
            for z, z_weight in columns[0]:
                safe = [scalar.select(inside, i, 0) for i in (y, z)]
                term = b.extract(x, [image, channel, *safe]).to(compute) * (y_weight * z_weight)
                found.append(scalar.select(inside, term, 0.0))
        return found

    def unrolled() -> Elem:
        roi = scalar.loop_index(0)
        sides = [[corners(roi, axis, i, ratio) for i in range(ratio)] for axis in range(2)]
        result: Elem | None = None
        for rows in sides[0]:
            for columns in sides[1]:
                for term in terms(rows, columns):
                    if result is None:
                        result = term
                    else:
                        result = scalar.maximum(result, term) if most else result + term
        assert result is not None
        return (result if most else result / float(ratio**2)).to(x.dtype)

    if ratio > 0 and ratio**2 <= _UNROLLED:
        return b.generic([], [], domain, x.dtype, unrolled)
    if most:
        raise NotLowerable(f"maxima of {ratio or 'as many as the boxes are large'} samples")

    # Sums over as many samples as the largest box has.
    grid: list[Extent] = [ratio, ratio]
    if ratio <= 0:
        counts = [b.generic([], [], [boxes.dims[0]], _I64, lambda axis=axis: count(scalar.loop_index(0), axis))
                  for axis in range(2)]  # fmt: skip
        grid = [b.bind(b.reduce([each], [0], _I64, 0, scalar.maximum)) for each in counts]

    def samples(roi: Elem) -> list[Elem]:
        if ratio > 0:
            return [scalar.constant(ratio, _I64)] * 2
        return [b.extract(each, [roi]) for each in counts]

    def step(acc: Elem, *_: Elem) -> Elem:
        roi = scalar.loop_index(0)
        numbers = [scalar.loop_index(4 + axis) for axis in range(2)]
        own = samples(roi)
        rows, columns = (corners(roi, axis, numbers[axis], own[axis]) for axis in range(2))
        counted = (numbers[0] < own[0]) & (numbers[1] < own[1])
        first, *rest = terms(rows, (columns[0], columns[1] & counted))
        for term in rest:
            first = first + term
        return acc + first

    # Only its extents matter.
    extents = Tensor(b.empty(grid, compute), tuple(grid), compute)
    whole = [*domain, *grid]
    sums = b.generic(
        [extents],
        [b.loop_map([4, 5], 6)],
        domain,
        compute,
        step,
        domain=whole,
        out_map=b.loop_map([0, 1, 2, 3], 6),
        reduced=[4, 5],
        init=0,
    )

    def mean(total: Elem) -> Elem:
        own = samples(scalar.loop_index(0))
        return (total / scalar.maximum(own[0] * own[1], 1).to(compute)).to(x.dtype)

    return b.map(x.dtype, [sums], mean)


def _neighbours(at: Elem, extent: Extent, compute: torch.dtype) -> list[tuple[Elem, Elem]]:
    """The two indices around a place, inside the extent, each with its weight: 0 outside."""
    last = scalar.from_extent(extent, _I64) - 1
    low = scalar.floor(at)
    part = at - low
    found = []
    for index, weight in ((low, 1.0 - part), (low + 1.0, part)):
        whole = index.to(_I64)
        inside = scalar.minimum(scalar.maximum(whole, 0), last)
        found.append((inside, scalar.select(inside.eq(whole), weight, 0.0).to(compute)))
    return found


@lowers("torch.torchvision.deform_conv2d")
def deform_conv2d(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """A convolution that samples its input at given offsets, with bilinear interpolation."""
    strides, low, dilations = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    for axis in range(2):
        reach = b.add(b.mul(b.sub(weight.dims[2 + axis], 1), dilations[axis]), 1)
        room = b.sub(b.add(x.dims[2 + axis], 2 * low[axis]), reach)
        count = b.add(b.floordiv(room, strides[axis]), 1)
        b.require_equal(offset.dims[2 + axis], count, "deform_conv2d: offset must have the size of the result")
    masks = mask if use_mask else None
    return deformed(b, x, weight, offset, masks, bias, strides, low, dilations, groups, offset_groups)


def deformed(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    strides: Sequence[int],
    low: Sequence[Extent],
    dilations: Sequence[int],
    groups: int,
    offset_groups: int,
) -> Tensor:
    """A deformable convolution: what each tap of the kernel sees, then a product for each group."""
    n, channels = x.dims[:2]
    kernel = weight.dims[2:]
    rows, columns = offset.dims[2:]
    offsets = b.reshape(offset, [n, offset_groups, *kernel, 2, rows, columns])
    masks = None if mask is None else b.reshape(mask, [n, offset_groups, *kernel, rows, columns])
    per_group = b.floordiv(channels, offset_groups)
    compute = dtypes.opmath(x.dtype)

    # [N, C, kh, kw, oh, ow].
    def seen() -> Elem:
        batch, channel, *taps_and_places = (scalar.loop_index(d) for d in range(6))
        taps, places = taps_and_places[:2], taps_and_places[2:]
        own = scalar.trunc_divide(channel, scalar.from_extent(per_group, _I64))
        ends = []
        for i in range(2):
            base = places[i] * strides[i] + taps[i] * dilations[i] - scalar.from_extent(low[i], _I64)
            moved = b.extract(offsets, [batch, own, *taps, scalar.constant(i, _I64), *places]).to(compute)
            ends.append(_neighbours(base.to(compute) + moved, x.dims[2 + i], compute))
        total = None
        for y, y_weight in ends[0]:
            for z, z_weight in ends[1]:
                term = b.extract(x, [batch, channel, y, z]).to(compute) * (y_weight * z_weight)
                total = term if total is None else total + term
        assert total is not None
        if masks is not None:
            total = total * b.extract(masks, [batch, own, *taps, *places]).to(compute)
        return total.to(x.dtype)

    taps = b.generic([], [], [n, channels, *kernel, rows, columns], x.dtype, seen)
    inner = b.mul(b.floordiv(channels, groups), b.product(kernel))
    filters, places = b.floordiv(weight.dims[0], groups), b.mul(rows, columns)
    image = b.reshape(taps, [n, groups, inner, places])
    matrix = b.reshape(weight, [groups, filters, inner])
    product = b.contract(matrix, image, [1, 2, 4], [0, 1, 4, 3], [n, groups, filters, places, inner])
    result = b.reshape(product, [n, weight.dims[0], rows, columns])
    inputs = [result] if bias is None else [result, b.reshape(bias, [weight.dims[0], 1, 1])]
    return b.elementwise(x.dtype, inputs, lambda y, *c: y + c[0] if c else y)
