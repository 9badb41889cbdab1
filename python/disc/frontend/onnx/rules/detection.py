"""What detectors do with boxes."""

from __future__ import annotations

import torch

from ... import scalar
from ...registry import NotLowerable, lowers
from ...rules.elementwise import convert
from ...scalar import Elem
from ...values import Extent, Tensor
from ..builder import OnnxBuilder

_I64 = torch.int64


@lowers("onnx.NonMaxSuppression")
def non_max_suppression(
    b: OnnxBuilder,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    iou: Tensor | None = None,
    least: Tensor | None = None,
    center_point_box: int = 0,
) -> Tensor:
    """(batch, class, box) of the boxes that overlap no better one of their class."""
    most = b.full([], 0, _I64) if most is None else b.reshape(convert(b, most, _I64), [])
    iou = b.full([], 0.0, torch.float32) if iou is None else b.reshape(iou, [])
    least = b.full([], float("-inf"), torch.float32) if least is None else b.reshape(least, [])
    capacity = b.maximum(b.product(scores.dims), 1)
    indices, count = b.call(
        "non_max_suppression",
        [boxes, scores, most, iou, least],
        [([capacity, 3], _I64), ([], _I64)],
        config=[center_point_box],
        scratch=b.mul(scores.dims[2], 16),
    )
    return b.slice(indices, 0, 0, b.bind(count))


@lowers("onnx.RoiAlign")
def roi_align(
    b: OnnxBuilder,
    x: Tensor,
    rois: Tensor,
    batches: Tensor,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """The mean (or maximum) of samples in each cell of a grid over each box."""
    half = (coordinate_transformation_mode or ("half_pixel" if b.opset >= 16 else "output_half_pixel")) == "half_pixel"
    if sampling_ratio <= 0:
        raise NotLowerable("sampling_ratio 0: as many samples as the boxes are large")
    channels, height, width = x.dims[1:]
    compute = x.dtype
    domain: list[Extent] = [rois.dims[0], channels, output_height, output_width]
    cells = (output_height, output_width)

    def one_dim(roi: Elem, axis: int, sample: int) -> tuple[list[tuple[Elem, Elem]], Elem]:
        """Two indices with their weights, and whether the sample is inside, along y (0) or x (1)."""
        ends = [
            b.extract(rois, [roi, scalar.constant(1 - axis + k, _I64)]) * spatial_scale - (0.5 if half else 0.0)
            for k in (0, 2)
        ]
        size = ends[1] - ends[0]
        if not half:
            size = scalar.maximum(size, 1.0)
        bin_size = size / float(cells[axis])
        cell = scalar.loop_index(2 + axis).to(compute)
        at = ends[0] + cell * bin_size + bin_size * ((sample + 0.5) / sampling_ratio)
        extent = scalar.from_extent((height, width)[axis], _I64)
        inside = (at >= -1.0) & (at <= extent.to(compute))
        at = scalar.minimum(scalar.maximum(at, 0.0), (extent - 1).to(compute))
        low = at.to(_I64)
        part = at - low.to(compute)
        return [(low, 1.0 - part), (scalar.minimum(low + 1, extent - 1), part)], inside

    def body() -> Elem:
        roi, channel = scalar.loop_index(0), scalar.loop_index(1)
        batch = b.checked_index(b.extract(batches, [roi]), x.dims[0], wrap=False)
        result: Elem | None = None
        for i in range(sampling_ratio):
            for j in range(sampling_ratio):
                rows, in_rows = one_dim(roi, 0, i)
                columns, in_columns = one_dim(roi, 1, j)
                for y, y_weight in rows:
                    for z, z_weight in columns:
                        term = b.extract(x, [batch, channel, y, z]) * (y_weight * z_weight)
                        term = scalar.select(in_rows & in_columns, term, 0.0)
                        if result is None:
                            result = term
                        else:
                            result = scalar.maximum(result, term) if mode == "max" else result + term
        assert result is not None
        return result if mode == "max" else result / float(sampling_ratio**2)

    return b.generic([], [], domain, x.dtype, body)
