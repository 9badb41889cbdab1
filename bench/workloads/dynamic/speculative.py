"""Speculative decoding as a `while_loop`, its sequence with room for all tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from .network import workloads


class Written(nn.Module):
    """Both models read the whole tensor each time; what comes after the tokens so far is not looked at."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, prompt: Tensor) -> tuple[Tensor, Tensor]:
        """The prompt with its continuation, and how many of the drafted tokens were accepted."""
        model = self.model
        total = prompt.shape[1] + model.new
        room = total + model.ahead
        places = torch.arange(room)
        ids = torch.cat((prompt, prompt.new_zeros(1, model.new + model.ahead)), dim=1)

        def unfinished(known: Tensor, ids: Tensor, accepted: Tensor) -> Tensor:
            return known < total

        def round(known: Tensor, ids: Tensor, accepted: Tensor) -> tuple[Tensor, ...]:
            guess = ids
            for i in range(model.ahead):
                following = torch.cat((guess[:, :1], model.draft(guess)[:, :-1]), dim=1)
                guess = torch.where(places == known + i, following, guess)
            wanted = torch.cat((guess[:, :1], model.target(guess)[:, :-1]), dim=1)
            wrong = (guess != wanted)[0] & (places >= known) | (places >= known + model.ahead)
            first = torch.where(wrong, places, room).min()
            ids = torch.where((places >= known) & (places <= first), wanted, ids)
            return first + 1, ids, accepted + (first - known)

        known = torch.full((), prompt.shape[1])
        _, ids, accepted = while_loop(unfinished, round, (known, ids, torch.zeros_like(known)))
        return ids[:, :total].clone(), accepted


FULL, SMALL = workloads("speculative", "Speculative decoding", Written)
