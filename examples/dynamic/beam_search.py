"""Beam search: a recurrent decoder keeps its best hypotheses and stops when no open one can beat a finished one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.export import Dim

dynamic_shapes = ({1: Dim("length", min=2, max=40)},)


class BeamSearch(nn.Module):
    """A bidirectional encoder, and a decoder of GRU cells with attention."""

    def __init__(self, vocabulary: int = 100, width: int = 64, beams: int = 4, most: int = 16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, width // 2, bidirectional=True, batch_first=True)
        self.cell = nn.GRUCell(2 * width, width)
        self.head = nn.Linear(2 * width, vocabulary)
        self.begin, self.end = 0, 1
        self.beams, self.most = beams, most

    def step(self, tokens: Tensor, state: Tensor, context: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logarithms of the next tokens' probabilities, the new state and what it attends to."""
        state = self.cell(torch.cat((self.tokens(tokens), context), dim=-1), state)
        context = torch.softmax(state @ memory.t(), dim=-1) @ memory
        return self.head(torch.cat((state, context), dim=-1)).log_softmax(dim=-1), state, context

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The best output found for [1, length] token ids, without its end, and its mean logarithm."""
        memory = self.encoder(self.tokens(source))[0][0]
        state = memory.mean(dim=0).expand(self.beams, -1)
        context = torch.zeros_like(state)
        sequences = torch.full((self.beams, 1), self.begin)
        scores = torch.tensor([0.0] + [-1e9] * (self.beams - 1))
        best, best_score = sequences[0], torch.tensor(-1e9)
        for length in range(1, self.most + 1):
            logarithms, state, context = self.step(sequences[:, -1], state, context, memory)
            total = scores.unsqueeze(-1) + logarithms
            finished = total[:, self.end] / length
            if finished.max() > best_score:
                best, best_score = sequences[finished.argmax()], finished.max()
            total[:, self.end] = -1e9
            scores, places = total.flatten().topk(self.beams)
            if scores[0] / length < best_score:
                break
            rows, words = places // total.shape[1], places % total.shape[1]
            sequences = torch.cat((sequences[rows], words.unsqueeze(-1)), dim=1)
            state, context = state[rows], context[rows]
        return best[1:], best_score


def make_model(seed: int = 0) -> BeamSearch:
    """Random weights; the end's bias is such that two of three searches stop before the limit."""
    torch.manual_seed(seed)
    model = BeamSearch().eval().requires_grad_(False)
    model.tokens.weight *= 1.5
    model.head.weight *= 6.0
    sources = [source for (source,) in inputs(40, seed + 1)]
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    hook = model.head.register_forward_hook(count)
    low, high = -20.0, 20.0
    for _ in range(8):
        model.head.bias[model.end] = (low + high) / 2
        late = 0
        for source in sources:
            steps = 0
            model(source)
            late += steps == model.most
        low, high = ((low + high) / 2, high) if late > len(sources) / 3 else (low, (low + high) / 2)
    hook.remove()
    return model


def inputs(n: int, seed: int = 0) -> Iterator[tuple[Tensor]]:
    """Sentences of all lengths."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        length = int(torch.randint(2, 41, (), generator=generator))
        yield (torch.randint(2, 100, (1, length), generator=generator),)
