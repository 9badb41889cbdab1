"""Optimizers beyond their public methods."""

from __future__ import annotations

# Functions that all optimizers call before and after their steps.
from torch.optim.optimizer import _global_optimizer_post_hooks as global_post_hooks
from torch.optim.optimizer import _global_optimizer_pre_hooks as global_pre_hooks

__all__ = ["global_post_hooks", "global_pre_hooks"]
