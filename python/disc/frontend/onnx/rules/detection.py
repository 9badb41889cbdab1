"""What detectors do with boxes."""

from __future__ import annotations

import torch

from ...registry import lowers
from ...rules.detection import align
from ...rules.elementwise import convert
from ...values import Tensor
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
    cells = (output_height, output_width)
    return align(b, x, rois, batches, spatial_scale, cells, sampling_ratio, half, most=mode == "max")
