"""Beam search as a `while_loop`, its sequences with room for all tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from .network import workloads


class Written(nn.Module):
    """The best hypothesis and its length are chosen by `torch.where`."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The best output found, without its end, and its mean logarithm."""
        model = self.model
        memory = model.encoder(model.tokens(source))[0][0]
        places = torch.arange(model.most + 1)

        def unfinished(length: Tensor, going: Tensor, *_: Tensor) -> Tensor:
            return going & (length < model.most)

        def step(
            length: Tensor,
            going: Tensor,
            sequences: Tensor,
            scores: Tensor,
            state: Tensor,
            context: Tensor,
            best: Tensor,
            best_score: Tensor,
            best_length: Tensor,
        ) -> tuple[Tensor, ...]:
            last = sequences.index_select(1, length.unsqueeze(0)).squeeze(1)
            logarithms, state, context = model.step(last, state, context, memory)
            length = length + 1
            total = scores.unsqueeze(-1) + logarithms
            finished = total[:, model.end] / length
            better = finished.max() > best_score
            best = torch.where(better, sequences.index_select(0, finished.argmax().unsqueeze(0)).squeeze(0), best)
            best_score = torch.where(better, finished.max(), best_score)
            best_length = torch.where(better, length, best_length)
            ends = torch.arange(total.shape[1]) == model.end
            scores, chosen = torch.where(ends, -1e9, total).flatten().topk(model.beams)
            rows, words = chosen // total.shape[1], chosen % total.shape[1]
            sequences = torch.where(places == length, words.unsqueeze(-1), sequences[rows])
            going = scores[0] / length >= best_score
            return length, going, sequences, scores, state[rows], context[rows], best, best_score, best_length

        state = memory.mean(dim=0).expand(model.beams, -1).clone()
        zero = torch.zeros((), dtype=torch.int64)
        carried = (
            zero,
            torch.ones((), dtype=torch.bool),
            torch.full((model.beams, model.most + 1), model.begin),
            torch.tensor([0.0] + [-1e9] * (model.beams - 1)),
            state,
            torch.zeros_like(state),
            torch.full((model.most + 1,), model.begin),
            torch.tensor(-1e9),
            zero.clone(),
        )
        *_, best, best_score, best_length = while_loop(unfinished, step, carried)
        length = best_length.item()
        torch._check(length >= 1)
        torch._check(length <= model.most)
        return best[1:length], best_score


FULL, SMALL = workloads("beam_search", "Beam search", Written)
