"""OpenVINO on the file that torch.onnx writes: on some models it is faster than from torch.export, on some slower."""

from __future__ import annotations

from . import openvino_pt
from .exports import FromOnnx


class Peer(FromOnnx, openvino_pt.Peer):
    """As from torch.export, but for the file."""

    title = "OpenVINO (ONNX)"
    precisions = ("f32",)
