"""Recurrent layers of PyTorch, whole: one artifact for all lengths and batches, equal to eager."""

import re

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import disc

pytestmark = pytest.mark.share(2)

T, B = Dim("T", min=1, max=64), Dim("B", min=1, max=9)
SIZES = [(1, 1), (2, 3), (13, 1), (64, 2), (64, 9), (7, 5), (3, 1)]


def compare(model, module, inputs, tolerance=2e-6):
    with torch.no_grad():
        expected, actual = module(*inputs), model(*inputs)
    leaves, spec = torch.utils._pytree.tree_flatten(expected)
    found, other = torch.utils._pytree.tree_flatten(actual)
    assert spec == other
    for e, a in zip(leaves, found, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=tolerance)


def compiled(module, inputs, dims, **options):
    return disc.compile(module, inputs, dynamic_shapes=dims, options=disc.Options(threads=2, **options))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {}),
        ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
        ("LSTM", {"num_layers": 2, "proj_size": 7, "bias": False}),
        ("GRU", {"num_layers": 2, "dropout": 0.5}),
        ("GRU", {"bidirectional": True, "bias": False}),
        ("RNN", {"batch_first": True}),
        ("RNN", {"nonlinearity": "relu", "bidirectional": True, "num_layers": 2}),
    ],
)
def test_layers(kind, options):
    torch.manual_seed(0)
    module = getattr(nn, kind)(12, 20, **options).eval()
    first = options.get("batch_first", False)
    dims = {0: B, 1: T} if first else {0: T, 1: B}
    model = compiled(module, (torch.randn(*((4, 6) if first else (6, 4)), 12),), (dims,))
    for t, batch in SIZES:
        compare(model, module, (torch.randn(*((batch, t) if first else (t, batch)), 12),))


def test_initial_states():
    torch.manual_seed(0)
    module = nn.LSTM(12, 20, 2).eval()

    def inputs(t, batch):
        return torch.randn(t, batch, 12), (torch.randn(2, batch, 20), torch.randn(2, batch, 20))

    model = compiled(module, inputs(6, 4), ({0: T, 1: B}, ({1: B}, {1: B})))
    for t, batch in SIZES:
        compare(model, module, inputs(t, batch))


def test_unbatched_and_doubles():
    torch.manual_seed(0)
    module = nn.GRU(5, 9, bidirectional=True).double().eval()
    model = compiled(module, (torch.randn(6, 5, dtype=torch.float64),), ({0: T},))
    for t, _ in SIZES:
        compare(model, module, (torch.randn(t, 5, dtype=torch.float64),), 1e-12)


class Cells(nn.Module):
    """One step of each kind of cell."""

    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(12, 20), nn.GRUCell(20, 20)
        self.tanh, self.relu = nn.RNNCell(20, 20, bias=False), nn.RNNCell(20, 20, nonlinearity="relu")

    def forward(self, x):
        h, c = self.lstm(x)
        return self.relu(self.tanh(self.gru(h, c)), h)


def test_cells():
    torch.manual_seed(0)
    module = Cells().eval()
    model = compiled(module, (torch.randn(4, 12),), ({0: B},))
    for batch in (1, 2, 9):
        compare(model, module, (torch.randn(batch, 12),))


class Tagger(nn.Module):
    """Embeddings, a packed recurrent layer, and a linear layer over what it gave."""

    def __init__(self, kind, **options):
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.layer = getattr(nn, kind)(12, 20, batch_first=True, bidirectional=True, **options)
        self.out = nn.Linear(40, 5)
        self.sorted = options.get("num_layers", 1) == 1

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=self.sorted)
        y, states = self.layer(packed)
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=words.shape[1])
        return self.out(y), states


@pytest.mark.parametrize(("kind", "layers"), [("LSTM", 1), ("LSTM", 2), ("GRU", 2), ("RNN", 1)])
def test_packed_sequences(kind, layers):
    torch.manual_seed(0)
    module = Tagger(kind, num_layers=layers).eval()

    def inputs(t, batch):
        lengths = torch.randint(1, t + 1, (batch,))
        lengths[0] = t
        lengths = lengths.sort(descending=True).values if layers == 1 else lengths.flip(0)
        return torch.randint(0, 50, (batch, t)), lengths

    model = compiled(module, inputs(6, 4), ({0: B, 1: T}, {0: B}))
    for t, batch in SIZES:
        compare(model, module, inputs(t, batch))


class Trimmed(nn.Module):
    """What it gives is as long as the longest sequence: known when it runs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(12, 20, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0], batch_first=True, padding_value=-1.0)


def test_packed_sequences_trimmed_to_the_longest():
    torch.manual_seed(0)
    module = Trimmed().eval()
    model = compiled(module, (torch.randn(3, 7, 12), torch.tensor([4, 6, 2])), ({0: B, 1: T}, {0: B}))
    for lengths in ([4, 6, 2], [5], [1, 9, 3, 3]):
        compare(model, module, (torch.randn(len(lengths), 9, 12), torch.tensor(lengths)))
    for wrong in (0, 10):
        with pytest.raises((IndexError, disc.ShapeError)):
            model(torch.randn(2, 9, 12), torch.tensor([4, wrong]))


def test_library(tmp_path):
    torch.manual_seed(0)
    module = nn.LSTM(12, 20).eval()
    disc.aot_compile(module, (torch.randn(6, 1, 12),), dynamic_shapes=({0: T},), output=tmp_path / "liblayer.so")
    library = disc.load(tmp_path / "liblayer.so")
    with torch.no_grad():
        for t in (1, 2, 13, 64, 5):
            x = torch.randn(t, 1, 12)
            torch.testing.assert_close(torch.as_tensor(library(x)[0]), module(x)[0], rtol=1e-5, atol=2e-6)


def test_one_kernel_per_step_and_a_real_loop():
    """The gates meet in one product, weights are packed at load, and the code has a loop: nothing is unrolled."""
    torch.manual_seed(0)
    module = nn.LSTM(12, 20).eval()
    x = torch.randn(6, 1, 12)
    ir = compiled(module, (x,), ({0: T},), stop_after="memory").ir("memory")
    body = re.search(r"disc_rt\.loop(.*?)disc_rt\.next", ir, re.S).group(1)
    assert body.count("disc_rt.launch") == 1
    assert len(re.findall(r"disc_rt\.global %\S+ @packed", ir)) == 10  # five weights, in init and in main
    model = compiled(module, (x,), ({0: T},))
    with model.profile() as profile:
        model(torch.randn(11, 1, 12))
        model(torch.randn(5, 1, 12))
    assert max(entry.launches for entry in profile.kernels()) == 16


def test_what_is_patched_is_put_back():
    before = torch._VF.__dict__.get("lstm"), pack_padded_sequence.__code__, nn.LSTM.get_expected_hidden_size
    with pytest.raises(disc.CompileError):
        compiled(nn.LSTM(12, 20).train(), (torch.randn(6, 4, 11),), None)
    assert before == (
        torch._VF.__dict__.get("lstm"),
        pack_padded_sequence.__code__,
        nn.LSTM.get_expected_hidden_size,
    )
    with torch.no_grad():
        nn.LSTM(12, 20)(pack_padded_sequence(torch.randn(6, 4, 12), torch.tensor([6, 5, 2, 1])))


def test_a_sequence_of_no_steps_is_an_error():
    module = nn.LSTM(12, 20).eval()
    model = compiled(module, (torch.randn(6, 1, 12),), ({0: Dim("T", min=0, max=64)},))
    with pytest.raises(Exception, match=r"larger than 0|out of range"):
        model(torch.randn(0, 1, 12))


class Packs(nn.Module):
    def __init__(self, layer, ordered):
        super().__init__()
        self.layer, self.ordered = layer, ordered

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=self.ordered)
        return self.layer(packed)[1] if self.layer else packed.data.sum()


@pytest.mark.parametrize("layer", [None, nn.GRU(4, 3, batch_first=True)])
def test_lengths_that_cannot_be_packed(layer):
    N, T = Dim("n", min=1, max=99), Dim("t", min=1, max=99)
    x, lengths = torch.randn(3, 5, 4), torch.tensor([5, 3, 1])
    for ordered in (True, False):
        model = disc.compile(Packs(layer, ordered), (x, lengths), dynamic_shapes=({0: N, 1: T}, {0: N}))
        model(torch.randn(1, 1, 4), torch.tensor([1]))
        with pytest.raises(disc.ShapeError, match=r"test_recurrent.py:\d+: the length of each .* greater than 0"):
            model(x, torch.tensor([5, 3, 0]))
        with pytest.raises(disc.ShapeError, match="a length exceeds"):
            model(x, torch.tensor([6, 3, 1]))
        if ordered:
            with pytest.raises(disc.ShapeError, match="decreasing order"):
                model(x, torch.tensor([3, 5, 1]))
