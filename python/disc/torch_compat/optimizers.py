"""Optimizers beyond their public methods."""

from __future__ import annotations

# Functions that all optimizers call before and after their steps.
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

GLOBAL_HOOKS = (_global_optimizer_pre_hooks, _global_optimizer_post_hooks)

__all__ = ["GLOBAL_HOOKS"]
