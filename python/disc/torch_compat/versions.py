"""The minor version of the installed PyTorch, for what differs between 2.11, 2.12 and 2.13."""

from __future__ import annotations

import torch

MINOR = int(torch.__version__.split(".")[1])
"""13 of 2.13.0."""
