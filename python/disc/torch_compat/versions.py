"""Which of the supported versions of PyTorch is installed, for what differs between them."""

from __future__ import annotations

import torch

MINOR = int(torch.__version__.split(".")[1])
"""13 of 2.13.0."""
