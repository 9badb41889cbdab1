"""Algorithms as people write them, with loops and branches that depend on data: one artifact, inputs of many sizes."""

import math

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import disc

pytestmark = pytest.mark.share(2)

N, M = Dim("n", min=1, max=64), Dim("m", min=1, max=64)
SIZES = (1, 2, 3, 5, 8, 13, 21, 34, 2, 1)


def check(module, inputs, axes, least=1):
    """``inputs(n, generator)`` makes inputs of size n; ``axes``: the dynamic dims of each."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = disc.compile(module, inputs(5, generator), dynamic_shapes=axes)
    for n in (*SIZES, *SIZES):
        given = inputs(max(n, least), generator)
        with torch.no_grad():
            expected = pytree.tree_leaves(module(*(x.clone() for x in given)))
        actual = pytree.tree_leaves(model(*given))
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-4, atol=1e-5)


def test_non_maximum_suppression():
    class Suppression(nn.Module):
        def forward(self, boxes, scores):
            order = scores.argsort(descending=True)
            keep = []
            while order.numel() > 0:
                i = order[0]
                keep.append(i)
                if order.numel() == 1:
                    break
                rest = order[1:]
                low = torch.maximum(boxes[i, :2], boxes[rest, :2])
                high = torch.minimum(boxes[i, 2:], boxes[rest, 2:])
                sides = (high - low).clamp(min=0)
                both = sides[:, 0] * sides[:, 1]
                area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
                order = rest[both / (area[i] + area[rest] - both) <= 0.4]
            return torch.stack(keep)

    def inputs(n, generator):
        corner = torch.rand(n, 2, generator=generator)
        return torch.cat([corner, corner + torch.rand(n, 2, generator=generator)], 1), torch.rand(
            n, generator=generator
        )

    check(Suppression(), inputs, ({0: N}, {0: N}))


def test_decoding():
    """CTC: what repeats, and blanks, are left out. RNN-T: none, one or several tokens for each frame."""

    class Collapse(nn.Module):
        def forward(self, logits):
            best = logits.argmax(-1)
            out = []
            previous = -1
            for t in range(best.shape[0]):
                c = int(best[t])
                if c != 0 and c != previous:
                    out.append(best[t])
                previous = c
            if len(out) == 0:
                return torch.zeros(0, dtype=torch.long)
            return torch.stack(out)

    class Transducer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.cell, self.out = nn.Embedding(6, 8), nn.GRUCell(8, 8), nn.Linear(8, 6)

        def forward(self, frames):
            tokens = []
            h = self.cell(self.embed(torch.zeros(1, dtype=torch.long)), torch.zeros(1, 8))
            for t in range(frames.shape[0]):
                n = 0
                while n < 3:
                    k = self.out(torch.tanh(frames[t] + h[0])).argmax()
                    if k == 0:
                        break
                    tokens.append(k)
                    h = self.cell(self.embed(k.reshape(1)), h)
                    n += 1
            return h, torch.stack(tokens) if tokens else torch.zeros(0, dtype=torch.long)

    check(Collapse(), lambda n, generator: (torch.randn(n, 5, generator=generator),), ({0: N},))
    check(Transducer(), lambda n, generator: (2 * torch.randn(n, 8, generator=generator),), ({0: N},))


def test_clusters():
    """Until nothing changes, at most 20 times; an empty cluster keeps its centre."""

    class Means(nn.Module):
        def forward(self, x):
            centers = x[:3].clone()
            assigned = torch.full((x.shape[0],), -1, dtype=torch.long)
            steps = 0
            while True:
                new = torch.cdist(x, centers).argmin(1)
                if torch.equal(new, assigned) or steps >= 20:
                    break
                assigned = new
                for j in range(3):
                    mask = assigned == j
                    if mask.any():
                        centers[j] = x[mask].mean(0)
                steps += 1
            return centers, assigned, steps

    points = Dim("points", min=3, max=64)
    check(Means(), lambda n, generator: (torch.randn(n, 2, generator=generator),), ({0: points},), least=3)


def test_adaptive_steps():
    """An equation solved with steps as long as its error allows: floats that data computes."""

    class Solver(nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

        def forward(self, y):
            t, h = 0.0, 0.1
            steps = rejected = 0
            while t < 1.0:
                h = min(h, 1.0 - t)
                k1 = self.slope(y)
                k2 = self.slope(y + h * k1)
                better = y + h * 0.5 * (k1 + k2)
                error = (y + h * k1 - better).abs().max().item()
                if error < 1e-2 or h < 1e-3:
                    t += h
                    y = better
                    steps += 1
                else:
                    rejected += 1
                h = h * min(2.0, max(0.3, 0.9 * math.sqrt(1e-2 / (error + 1e-12))))
            return y, steps, rejected

    check(Solver().double(), lambda n, generator: (4 * torch.randn(n, 4, generator=generator).double(),), ({0: N},))


def test_searches():
    """By halves in a sorted vector; in a graph from the nearest nodes outwards."""

    class Halves(nn.Module):
        def forward(self, values, wanted):
            low, high = 0, values.shape[0]
            while low < high:
                middle = (low + high) // 2
                if values[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            return low

    class Distances(nn.Module):
        def forward(self, edges, start):
            distance = torch.full((edges.shape[0],), -1, dtype=torch.long)
            distance[start] = 0
            front = start.reshape(1)
            d = 0
            while front.numel():
                d += 1
                front = (edges[front].any(0) & (distance < 0)).nonzero().squeeze(1)
                distance[front] = d
            return distance, d

    def vector(n, generator):
        return torch.randn(n, generator=generator).sort().values, torch.randn((), generator=generator)

    def graph(n, generator):
        return torch.rand(n, n, generator=generator) < 0.15, torch.randint(0, n, (), generator=generator)

    check(Halves(), vector, ({0: N}, None))
    check(Distances(), graph, ({0: N, 1: N}, None))


def test_a_parser():
    """Shift and reduce, on a stack that is rows of a tensor."""

    class Parser(nn.Module):
        def __init__(self):
            super().__init__()
            self.join = nn.Linear(16, 8)

        def forward(self, words, actions):
            stack = torch.zeros(words.shape[0] + 1, 8)
            top = following = 0
            for i in range(actions.shape[0]):
                if actions[i] == 0 and following < words.shape[0]:
                    stack[top] = words[following]
                    top += 1
                    following += 1
                elif top >= 2:
                    stack[top - 2] = torch.tanh(self.join(torch.cat([stack[top - 2], stack[top - 1]])))
                    top -= 1
            return stack[0], top

    def inputs(n, generator):
        return torch.randn(n, 8, generator=generator), torch.randint(0, 2, (n + 3,), generator=generator)

    check(Parser(), inputs, ({0: N}, {0: M}))


def test_tables():
    """Viterbi's best path, and the distance between two words, a row of the table at a time."""

    class Path(nn.Module):
        def forward(self, emitted, moves):
            score, back = emitted[0], []
            for t in range(1, emitted.shape[0]):
                best, came_from = (score[:, None] + moves).max(0)
                back.append(came_from)
                score = best + emitted[t]
            tag = score.argmax()
            path = [tag]
            for came_from in reversed(back):
                tag = came_from[tag]
                path.append(tag)
            return torch.stack(path[::-1]), score.max()

    class Distance(nn.Module):
        def forward(self, a, b):
            row = torch.arange(b.shape[0] + 1)
            for i in range(a.shape[0]):
                above, new = row, [row[0] + 1]
                for j in range(b.shape[0]):
                    cost = 0 if a[i] == b[j] else 1
                    new.append(torch.minimum(torch.minimum(new[-1] + 1, above[j + 1] + 1), above[j] + cost))
                row = torch.stack(new)
            return row[-1]

    def words(n, generator):
        return torch.randint(0, 3, (n,), generator=generator), torch.randint(0, 3, (n // 2 + 1,), generator=generator)

    def scores(n, generator):
        return torch.randn(n, 5, generator=generator), torch.randn(5, 5, generator=generator)

    check(Path(), scores, ({0: Dim("t", min=2, max=64)}, None), least=2)
    check(Distance(), words, ({0: N}, {0: M}))


def test_sampling():
    """Tokens from the likely ones, punished where they repeat, until one ends it or is likely enough."""

    class Sampler(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(16, 8), nn.Linear(8, 16)

        def forward(self, prompt, enough):
            tokens = prompt
            while tokens.shape[0] < 40:
                logits = self.out(self.embed(tokens).mean(0))
                logits = torch.where(torch.bincount(tokens, minlength=16) > 0, logits / 1.3, logits)
                p, order = logits.softmax(-1).sort(descending=True)
                token = order[p.cumsum(0) - p < 0.7][-1]
                tokens = torch.cat([tokens, token[None]])
                if token == 3 or p[0] > enough:
                    break
            return tokens

    def inputs(n, generator):
        return torch.randint(0, 16, (n,), generator=generator), 0.3 * torch.rand((), generator=generator)

    check(Sampler(), inputs, ({0: N}, None))


def test_choices():
    """Layers, functions, numbers and tensors at numbers from data; what is out of range is an error."""

    class Choices(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(5)])
            self.scales = [1.0, 2.0, 0.5, 3.0, -1.0]
            self.shifts = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(5)])
            self.activations = [torch.relu, torch.tanh, torch.sin]

        def forward(self, x, last):
            k = int(x.abs().sum() * 3) % 5
            y = self.layers[k](x) * self.scales[k] + self.shifts[k]
            y = self.activations[int(y.sum().abs()) % 3](y)
            return y, k, (x.sum(), x.mean(), x.max())[last]

    def inputs(n, generator):
        return torch.randn(n, 4, generator=generator), torch.randint(-3, 3, (), generator=generator)

    check(Choices(), inputs, ({0: N}, None))
    module = Choices()
    model = disc.compile(module, (torch.randn(5, 4), torch.tensor(0)), dynamic_shapes=({0: N}, None))
    for wrong in (3, -4):
        with pytest.raises(disc.ShapeError, match=r"IndexError: index out of range \(.*test_algorithms.py:\d+\)"):
            model(torch.randn(2, 4), torch.tensor(wrong))


def test_trying_again():
    """Until it works, a loop without an end of its own."""

    class Factor(nn.Module):
        def forward(self, a):
            shift = 0.0
            while True:
                factor, failed = torch.linalg.cholesky_ex(a @ a.T + (shift - 0.5) * torch.eye(a.shape[0]))
                if failed == 0:
                    return factor, shift
                shift = max(shift * 2, 0.1)

    def inputs(n, generator):
        return (torch.randn(min(n, 6), min(n, 6), generator=generator),)

    size = Dim("size", min=1, max=8)
    check(Factor(), inputs, ({0: size, 1: size},))


def test_lengths():
    """As many steps as the longest sequence has; the others keep what they had."""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(4, 6)

        def forward(self, x, lengths):
            h = x.new_zeros(x.shape[0], 6)
            for t in range(int(lengths.max())):
                new = self.cell(x[:, t], h)
                h = torch.where((t < lengths)[:, None], new, h)
            return h

    def inputs(n, generator):
        batch = min(n, 3)
        return torch.randn(batch, n, 4, generator=generator), torch.randint(1, n + 1, (batch,), generator=generator)

    batch = Dim("batch", min=1, max=8)
    check(Last(), inputs, ({0: batch, 1: N}, {0: batch}))


def test_counting_down():
    """Numbers from data that get less, to nothing and below."""

    class Power(nn.Module):
        def power(self, x, n):
            result = torch.ones_like(x)
            while n > 0:
                if n % 2 == 1:
                    result = result * x
                x = x * x
                n //= 2
            return result

        def forward(self, x, n, by):
            left = n = int(n)
            steps = 0
            while left > 0:
                left = left - int(by)
                steps += 1
            return self.power(x, n), left, steps

    def inputs(n, generator):
        number, by = torch.randint(-3, 9, (), generator=generator), torch.randint(1, 4, (), generator=generator)
        return torch.rand(n, generator=generator), number, by

    check(Power(), inputs, ({0: N}, None, None))


def test_sizes():
    """What an extent decides: levels as long as there is something to halve; windows whose places data says."""

    class Levels(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Linear(8, 4)

        def forward(self, x):
            skips = []
            for _ in range(3):
                if x.shape[0] < 4:
                    break
                n = x.shape[0] // 2 * 2
                skips.append(x)
                x = torch.tanh(self.down(x[:n].reshape(n // 2, 8)))
            return x * 2, len(skips)

    class Windows(nn.Module):
        def forward(self, x):
            i, out = 0, []
            while i + 3 <= x.shape[0]:
                window = x[i : i + 3]
                out.append(window.mean(0))
                i += 2 if window.sum() > 0 else 1
            return torch.stack(out) if out else x.mean(0, keepdim=True)

    for module in (Levels(), Windows()):
        check(module, lambda n, generator: (torch.randn(n, 4, generator=generator),), ({0: N},))
