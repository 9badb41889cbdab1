"""What happens to gradients before the optimizer takes them: loss scaling, clipping, the check for finite numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NORM, FINITE = "norm", "finite"


@dataclass(frozen=True)
class Transform:
    """Changes of gradients, in the order in which training loops make them: unscale, check, clip."""

    scaled: bool = False
    """Whether the loss is multiplied by a number, and the gradients divided by it."""
    unscaled: bool = True
    """Whether the gradients are divided; those of a micro-batch are added up as they are."""
    checked: bool = False
    """Whether gradients that are not finite are looked for."""
    clips_norm: bool = False
    """Whether the norm of all gradients together is bounded (``torch.nn.utils.clip_grad_norm_``)."""
    norm_type: float = 2.0
    clips_value: bool = False
    """Whether each element is bounded (``torch.nn.utils.clip_grad_value_``)."""

    @property
    def numbers(self) -> tuple[str, ...]:
        """The numbers that it takes, in order."""
        known = {"loss_scale": self.scaled, "clip_norm": self.clips_norm, "clip_value": self.clips_value}
        return tuple(name for name, used in known.items() if used)

    @property
    def results(self) -> tuple[str, ...]:
        """What it returns beside the gradients."""
        return (*([FINITE] if self.checked else []), *([NORM] if self.clips_norm else []))

    def scale(self, loss: Tensor, numbers: Tensor | None) -> Tensor:
        """The loss whose gradients are computed."""
        if not self.scaled:
            return loss
        return loss * self._number("loss_scale", numbers)

    def __call__(self, gradients: Sequence[Tensor], numbers: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """The changed gradients, and the further results.

        ``numbers`` is a float64 tensor with the values of :attr:`numbers` in its first elements.
        """
        found = list(gradients)
        further: list[Tensor] = []
        if self.scaled and self.unscaled:
            inverse = 1.0 / self._number("loss_scale", numbers)
            found = [g * inverse for g in found]
        if self.checked:
            # A sum with an infinity or NaN is not finite; this reads each gradient once.
            flags = [torch.isfinite(g).all() for g in found]
            further.append(torch.stack(flags).all())
        if self.clips_norm:
            norms = torch.stack([torch.linalg.vector_norm(g, self.norm_type) for g in found])
            total = torch.linalg.vector_norm(norms, self.norm_type)
            further.append(total)
            factor = (self._number("clip_norm", numbers) / (total + 1e-6)).clamp(max=1.0)
            found = [g * factor for g in found]
        if self.clips_value:
            limit = self._number("clip_value", numbers)
            found = [g.clamp(-limit, limit) for g in found]
        return found, further

    def _number(self, name: str, numbers: Tensor | None) -> Any:
        assert numbers is not None
        return numbers[self.numbers.index(name)].item()
