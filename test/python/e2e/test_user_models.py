"""Models that are no transformers, written by hand, each compiled once and compared with eager at several shapes."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import disc

B, N = Dim("B", min=1, max=8), Dim("N", min=4, max=60)


class Recommender(nn.Module):
    """DLRM: bags of categories and dense features, and the products of all pairs."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(20, 8, mode=mode) for mode in ("sum", "mean", "sum")])
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
        self.register_buffer("pairs", torch.tril_indices(4, 4, -1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        fields = torch.stack([x, *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))], 1)
        products = torch.bmm(fields, fields.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1))


class Waves(nn.Module):
    """WaveNet: dilated causal convolutions with gates, residuals and skips."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 8, 1)
        self.dilated = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(4)])
        self.out = nn.ModuleList([nn.Conv1d(8, 16, 1) for _ in range(4)])
        self.last = nn.Conv1d(8, 10, 1)

    def forward(self, x):
        x, skips = self.first(x), 0
        for conv, out in zip(self.dilated, self.out, strict=True):
            a, b = conv(F.pad(x, (conv.dilation[0], 0))).chunk(2, 1)
            residual, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, skips = x + residual, skips + skip
        return self.last(F.relu(skips)).log_softmax(1)


class Speech(nn.Module):
    """Deep Speech 2: a convolution over a spectrogram, packed GRUs both ways, characters."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, (5, 7), (1, 2), (2, 3)), nn.BatchNorm2d(4), nn.Hardtanh(0, 20))
        self.gru = nn.GRU(4 * 8, 12, 2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(24, 9)

    def forward(self, spectrogram, lengths):
        x = self.conv(spectrogram.unsqueeze(1)).transpose(1, 2).flatten(2)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=x.shape[1])
        return self.out(y).log_softmax(-1)


class Points(nn.Module):
    """PointNet: a transform that the points choose, shared layers, the maximum over all points."""

    def __init__(self):
        super().__init__()
        self.chooses = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.transform = nn.Linear(16, 9)
        self.layers = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1))
        self.segment = nn.Conv1d(64, 5, 1)

    def forward(self, points):
        matrix = self.transform(self.chooses(points).amax(-1)).view(-1, 3, 3) + torch.eye(3)
        x = self.layers(torch.bmm(matrix, points))
        whole = x.max(-1, keepdim=True).values
        return self.segment(torch.cat([x, whole.expand_as(x)], 1)), whole


class Denoiser(nn.Module):
    """A diffusion U-Net: time embedding, residual blocks with group norm, attention, skips."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, c) for c in (16, 16, 32)])
        self.convs = nn.ModuleList([nn.Conv2d(c, 16, 3, padding=1) for c in (16, 16, 32)])
        self.down = nn.Conv2d(16, 16, 3, 2, 1)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.up = nn.ConvTranspose2d(16, 16, 4, 2, 1)
        self.last = nn.Conv2d(16, 3, 3, padding=1)

    def block(self, i, x, t):
        h = self.convs[i](F.silu(self.norms[i](x))) + t[:, :, None, None]
        return h + x if x.shape[1] == 16 else h

    def forward(self, image, step):
        rates = torch.exp(torch.arange(8) * (-math.log(1e4) / 8))
        angles = step[:, None].float() * rates
        t = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        a = self.block(0, self.first(image), t)
        h = self.block(1, self.down(a), t)
        b, c, height, width = h.shape
        flat = h.flatten(2).transpose(1, 2)
        h = h + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(b, c, height, width)
        return self.last(self.block(2, torch.cat([self.up(h), a], 1), t))


class Vision(nn.Module):
    """A ViT at any size of image: position embeddings are interpolated (bicubic)."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.cls = nn.Parameter(torch.randn(1, 1, 16))
        self.positions = nn.Parameter(torch.randn(1, 1 + 6 * 6, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, 10)

    def forward(self, image):
        x = self.patches(image)
        grid = self.positions[:, 1:].reshape(1, 6, 6, 16).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=x.shape[2:], mode="bicubic", align_corners=False)
        x = x.flatten(2).transpose(1, 2) + grid.flatten(2).transpose(1, 2)
        x = torch.cat([(self.cls + self.positions[:, :1]).expand(x.shape[0], -1, -1), x], 1)
        return self.head(self.encoder(x)[:, 0])


class Graph(nn.Module):
    """A graph network: messages along edges, added up where they arrive, over the root of the degree; attention."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8)])
        self.score = nn.Linear(16, 1)

    def forward(self, x, edges):
        source, target = edges
        count = x.shape[0]
        degree = torch.ones(count).scatter_add(0, target, torch.ones_like(target, dtype=x.dtype))
        weight = (degree[source] * degree[target]).rsqrt().unsqueeze(1)
        for layer in self.layers:
            h = layer(x)
            x = F.relu(h / degree[:, None] + torch.zeros_like(h).index_add(0, target, h[source] * weight))
        logits = F.leaky_relu(self.score(torch.cat([x[source], x[target]], 1)), 0.2)
        place = target[:, None]
        most = torch.full((count, 1), -1e9).scatter_reduce(0, place, logits, "amax")
        share = torch.exp(logits - most[target])
        total = torch.zeros(count, 1).scatter_add(0, place, share)
        return torch.zeros_like(x).index_add(0, target, x[source] * share / total[target].clamp(min=1e-9))


class Detector(nn.Module):
    """A detector without suppression: heat maps, their peaks, the best of them, boxes gathered there."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.heat, self.size = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 2, 1)

    def forward(self, image):
        x = self.body(image)
        heat, size = self.heat(x).sigmoid(), self.size(x).exp()
        peaks = heat * (F.max_pool2d(heat, 3, 1, 1) == heat)
        scores, places = peaks.flatten(1).topk(5)
        height, width = x.shape[2:]
        kinds, places = places // (height * width), places % (height * width)
        half = size.flatten(2).gather(2, places[:, None].expand(-1, 2, -1)).transpose(1, 2) / 2
        centre = torch.stack([places // width, places % width], -1).float()
        return torch.cat([centre - half, centre + half], -1), scores, kinds


class Tagger(nn.Module):
    """A CRF over an LSTM: the partition function, and the best path by Viterbi, in Python's loops over the length."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.emit = nn.Linear(6, 5)
        self.transitions = nn.Parameter(torch.randn(5, 5))

    def forward(self, x):
        scores = self.emit(self.lstm(x)[0])
        alpha = best = scores[:, 0]
        back = []
        for t in range(1, x.shape[1]):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1) + scores[:, t]
            best, before = (best.unsqueeze(2) + self.transitions).max(1)
            best = best + scores[:, t]
            back.append(before)
        pointers = torch.stack(back)
        tag = best.argmax(-1)
        path = [tag]
        for t in reversed(range(x.shape[1] - 1)):
            tag = pointers[t].gather(1, tag.unsqueeze(1)).squeeze(1)
            path.append(tag)
        return torch.logsumexp(alpha, 1), best.amax(-1), torch.stack(path, 1).flip(1)


class Beams(nn.Module):
    """One step of beam search: the best continuations of all beams, and the states that they come from."""

    def forward(self, logits, scores, states):
        _, beams, words = logits.shape
        total = (scores.unsqueeze(-1) + logits.log_softmax(-1)).flatten(1)
        best, at = total.topk(beams, 1)
        origin = at // words
        return best, at % words, states.gather(1, origin.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def _edges(nodes, edges):
    return torch.randint(0, nodes, (2, edges))


IMAGE = {0: B, 2: 8 * Dim("h", min=1, max=6), 3: 8 * Dim("w", min=1, max=6)}
SIZES = [(3, 5), (1, 4), (8, 60), (2, 17)]
IMAGES = [(3, 16, 24), (1, 8, 8), (2, 48, 40)]

CASES = {
    "recommender": (
        Recommender,
        lambda b, n: (torch.randn(b, 5), torch.randint(0, 20, (b, 3, n))),
        ({0: B}, {0: B, 2: N}),
        SIZES,
    ),
    "waves": (Waves, lambda b, n: (torch.randn(b, 1, n),), ({0: B, 2: N},), SIZES),
    "speech": (
        Speech,
        lambda b, n: (torch.randn(b, n, 16), torch.randint(1, n + 1, (b,))),
        ({0: B, 1: N}, {0: B}),
        SIZES,
    ),
    "points": (Points, lambda b, n: (torch.randn(b, 3, n),), ({0: B, 2: N},), SIZES),
    "denoiser": (
        Denoiser,
        lambda b, h, w: (torch.randn(b, 3, h, w), torch.randint(0, 1000, (b,))),
        (IMAGE, {0: B}),
        IMAGES,
    ),
    "vision": (Vision, lambda b, h, w: (torch.randn(b, 3, h, w),), (IMAGE,), IMAGES),
    "graph": (
        Graph,
        lambda n, e: (torch.randn(n, 6), _edges(n, e)),
        ({0: Dim("nodes", min=1, max=60)}, {1: Dim("edges", min=1, max=200)}),
        [(7, 20), (1, 3), (60, 200), (9, 1)],
    ),
    "detector": (Detector, lambda b, h, w: (torch.randn(b, 3, h, w),), (IMAGE,), IMAGES),
    "tagger": (Tagger, lambda b, n: (torch.randn(b, n, 4),), ({0: B, 1: N},), SIZES),
    "beams": (
        Beams,
        lambda b, n: (torch.randn(b, 4, n), torch.randn(b, 4), torch.randn(b, 4, 6)),
        ({0: B, 2: N}, {0: B}, {0: B}),
        SIZES,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_model(name):
    make, inputs, dims, sizes = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.add_(0.2 * torch.rand_like(buffer))
    model = disc.compile(module, inputs(*sizes[0]), dynamic_shapes=dims)
    for size in sizes:
        x = inputs(*size)
        with torch.no_grad():
            torch.testing.assert_close(model(*x), module(*x), rtol=2e-4, atol=2e-5, msg=lambda m: f"at {size}: {m}")


class Decoder(nn.Module):
    """One step of decoding: keys and values go into buffers, which grow with the text."""

    def __init__(self, room=32):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.register_buffer("keys", torch.zeros(1, 2, room, 8))
        self.register_buffer("values", torch.zeros(1, 2, room, 8))
        self.register_buffer("length", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, 2, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        at = self.length + torch.arange(n)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        seen = torch.arange(self.keys.shape[2]) <= at[:, None]
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        self.length += n
        return self.out(y.transpose(1, 2).flatten(2))


def test_decoder_with_a_cache():
    torch.manual_seed(0)
    module, eager = Decoder().eval(), Decoder().eval()
    eager.load_state_dict(module.state_dict())
    model = disc.compile(module, (torch.randn(1, 5, 16),), dynamic_shapes=({1: Dim("n", min=1, max=32)},))
    for n in (7, 1, 1, 4, 1, 10):
        x = torch.randn(1, n, 16)
        with torch.no_grad():
            torch.testing.assert_close(model(x), eager(x), rtol=2e-4, atol=2e-5)
    assert int(module.length) == 24
