"""Requests of unequal shapes in one call of a model: the results of single calls, and each request's own error."""

import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import disc
from disc.errors import ArgumentTypeError, ArgumentValueError, CallError, InputTypeError, ShapeError
from disc.serve import Padded, Ragged, Stacked
from disc.serve.joined_calls import Call, JoinedCalls
from disc.serve.served_model import ServedModel, portable
from served_models import IDS, compiled, embedder, write_embedder

PADDED = Padded(mask="attention_mask", values={"input_ids": 7})


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory):
    return write_embedder(tmp_path_factory.mktemp("embedder") / "libembedder.so")


@pytest.fixture(scope="module")
def model():
    return compiled()


def library(module, args, shapes, folder, name):
    disc.aot_compile(module, args, dynamic_shapes=shapes, output=folder / f"lib{name}.so")
    return disc.load(folder / f"lib{name}.so", threads=1)


def requests(count, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 100, generator.integers((0, 2), (4, 40))) for _ in range(count)]


def assert_close(found, expected):
    if isinstance(expected, dict):
        expected = tuple(expected.values())
        found = tuple(found.values())
    single = not isinstance(expected, tuple)
    for x, y in zip((found,) if single else found, (expected,) if single else expected, strict=True):
        assert type(x) is type(y) and x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-5)


def test_padding_with_and_without_a_mask_in_the_request(embeddings):
    joined = JoinedCalls(ServedModel(embeddings), PADDED)
    arrays = requests(40)
    calls = [
        Call((), {"input_ids": ids}) if n % 2 else Call((ids,), {"attention_mask": np.ones_like(ids)})
        for n, ids in enumerate(arrays)
    ]
    answers = joined(calls)
    rows = sum(len(ids) for ids in arrays)
    assert joined.calls <= -(-rows // 40) + 2
    for ids, answer in zip(arrays, answers, strict=True):
        expected = embeddings(ids, np.ones_like(ids))
        assert answer.result.keys() == expected.keys()
        assert_close(answer.result, expected)


def test_calls_stay_below_the_models_maximum_and_the_policys(embeddings):
    ids = np.ones((20, 5), np.int64)
    calls = [Call((ids,), {})] * 9
    for limit, expected in ((None, 3), (40, 5), (10, 9)):
        joined = JoinedCalls(ServedModel(embeddings), Padded(mask="attention_mask", limit=limit))
        assert all(answer.error is None for answer in joined(calls))
        assert joined.calls == expected
    joined = JoinedCalls(ServedModel(embeddings), Padded(mask="attention_mask", requests=2))
    joined(calls)
    assert joined.calls == 5


BAD = {
    "index": (np.full((2, 5), 1000), IndexError, "index 1000 is out of range"),
    "dtype": (np.full((2, 5), 1.0), InputTypeError, "input 'input_ids', dtype: expected int64, got float64"),
    "rank": (np.ones(5, np.int64), ShapeError, "input 'input_ids', rank: expected 2 dims"),
    "range": (np.ones((2, 600), np.int64), ShapeError, "input 'input_ids', dim 1 .* got 600"),
    "kind": ([[1, 2]], TypeError, "input_ids"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_request_has_its_own_error_and_the_others_their_results(bad, embeddings):
    value, kind, message = BAD[bad]
    joined = JoinedCalls(ServedModel(embeddings), PADDED)
    arrays = requests(8)
    answers = joined(
        [*(Call((ids,), {}) for ids in arrays[:4]), Call((value,), {}), *(Call((x,), {}) for x in arrays[4:])]
    )
    with pytest.raises(kind, match=message):
        answers.pop(4).get()
    for ids, answer in zip(arrays, answers, strict=True):
        assert_close(answer.get(), embeddings(ids, np.ones_like(ids)))


def test_two_wrong_requests_do_not_make_a_right_one(embeddings):
    """Ids of 2 rows with a mask of 3, and the reverse: 5 rows of each in all."""
    joined = JoinedCalls(ServedModel(embeddings), PADDED)
    two, three = np.ones((2, 4), np.int64), np.ones((3, 4), np.int64)
    answers = joined([Call((two, three), {}), Call((three, two), {}), Call((), {"ids": two}), Call((two, two), {})])
    assert [type(answer.error) for answer in answers] == [ShapeError, ShapeError, CallError, type(None)]


def test_a_compiled_model_takes_tensors(model):
    joined = JoinedCalls(ServedModel(model), PADDED)
    arrays = [torch.from_numpy(ids) for ids in requests(12)]
    answers = joined([Call((ids,), {}) for ids in arrays])
    assert joined.calls == 1
    for ids, answer in zip(arrays, answers, strict=True):
        assert set(answer.get()) == {"embedding", "tokens"}
        assert_close(answer.get(), model(ids, torch.ones_like(ids)))
    (answer,) = joined([Call((arrays[0].float(),), {})])
    with pytest.raises(InputTypeError, match="input_ids"):
        answer.get()


def test_tensors_and_arrays_are_not_joined(embeddings):
    joined = JoinedCalls(ServedModel(embeddings), PADDED)
    answers = joined([Call((IDS,), {}), Call((IDS.numpy(),), {}), Call((IDS,), {})])
    assert joined.calls == 2
    assert [type(a.get()["tokens"]).__name__ for a in answers] == ["Tensor", "ndarray", "Tensor"]


class Scaled(nn.Module):
    """A result that depends on a number that all rows share."""

    def forward(self, x, scale):
        return x.cumsum(1) * scale, (x > 0)


def test_stacking_joins_equal_shapes_and_equal_shared_inputs(tmp_path):
    shapes = {"x": {0: Dim("batch", min=0, max=100), 1: Dim("width", min=1, max=50)}, "scale": None}
    scaled = library(Scaled(), (torch.ones(2, 3), torch.ones(())), shapes, tmp_path, "scaled")
    joined = JoinedCalls(ServedModel(scaled), Stacked())
    generator = np.random.default_rng(1)
    arrays = [generator.random((n, width), np.float32) for n, width in [(1, 3), (2, 3), (0, 3), (1, 4), (3, 4), (1, 3)]]
    scales = [np.array(2, np.float32)] * 5 + [np.array(3, np.float32)]
    answers = joined([Call((x, s), {}) for x, s in zip(arrays, scales, strict=True)])
    assert joined.calls == 3
    for x, scale, answer in zip(arrays, scales, answers, strict=True):
        for found, expected in zip(answer.get(), scaled(x, scale), strict=True):
            np.testing.assert_array_equal(found, expected)


class Segments(nn.Module):
    """Of sequences one after the other: a row for each token, a row for each sequence, and the offsets doubled."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 4)

    def forward(self, values, offsets, weights):
        tokens = self.out(values)
        ends = torch.cat([tokens.new_zeros(1, 4), tokens.cumsum(0)])
        sums = ends[offsets[1:]] - ends[offsets[:-1]]
        return tokens, sums * weights.unsqueeze(1), offsets + 0


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    tokens, sequences = Dim("tokens", min=0, max=4096), Dim("sequences", min=0, max=512)
    shapes = {"values": {0: tokens}, "offsets": {0: sequences + 1}, "weights": {0: sequences}}
    args = (torch.randn(5, 3), torch.tensor([0, 2, 5]), torch.ones(2))
    return library(Segments().eval(), args, shapes, tmp_path_factory.mktemp("segments"), "segments")


RAGGED = Ragged(offsets=("offsets", "output_2"))


def test_ragged_requests_are_joined_without_padding(segments):
    generator = np.random.default_rng(2)
    joined = JoinedCalls(ServedModel(segments), RAGGED)
    calls = []
    for lengths in ([2, 3], [1], [], [0, 0, 4], [7]):
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        values = generator.random((offsets[-1], 3), np.float32)
        calls.append(Call((values, offsets, np.ones(len(lengths), np.float32) * 2), {}))
    answers = joined(calls)
    assert joined.calls == 1
    for call, answer in zip(calls, answers, strict=True):
        found, expected = answer.get(), segments(*call.args)
        assert_close(tuple(found), tuple(expected))
        np.testing.assert_array_equal(found["output_2"], call.args[1])


def test_missing_offsets_are_those_of_one_sequence(segments):
    joined = JoinedCalls(ServedModel(segments), RAGGED)
    values = [np.random.default_rng(n).random((n, 3), np.float32) for n in (0, 4, 9)]
    answers = joined([Call((x,), {"weights": np.ones(1, np.float32)}) for x in values])
    assert joined.calls == 1
    for x, answer in zip(values, answers, strict=True):
        expected = segments(x, np.array([0, len(x)]), np.ones(1, np.float32))
        assert_close(tuple(answer.get()), tuple(expected))


def test_offsets_that_leave_tokens_out_are_called_alone(segments):
    joined = JoinedCalls(ServedModel(segments), RAGGED)
    x, weights = np.ones((6, 3), np.float32), np.ones(1, np.float32)
    calls = [Call((x, np.array(offsets), weights), {}) for offsets in ([0, 6], [1, 6], [0, 4], [0, 6])]
    answers = joined(calls)
    assert joined.calls == 3
    for call, answer in zip(calls, answers, strict=True):
        assert_close(tuple(answer.get()), tuple(segments(*call.args)))


class Pairs(nn.Module):
    """An input with twice the rows of another."""

    def forward(self, x, y):
        return x.view(-1, 2, 3).sum(1) * y


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(0)


class Similarity(nn.Module):
    def forward(self, x):
        return x @ x.T


class Positive(nn.Module):
    def forward(self, x):
        return x[x[:, 0] > 0]


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x + self.count


ROWS = {"x": {0: Dim("batch", min=1, max=50)}}
UNSUITABLE = {
    "mean": (Mean(), (torch.ones(4, 3),), ROWS, r"result 'output_0' has no dim 'batch'"),
    "similarity": (Similarity(), (torch.ones(4, 3),), ROWS, r"result 'output_0' has 'batch' in two of its dims"),
    "positive": (Positive(), (torch.ones(4, 3),), ROWS, r"result 'output_0', dim 0: .* is computed from data"),
    "counter": (Counter(), (torch.ones(4, 3),), ROWS, r"update an input, a buffer or a parameter"),
    "pairs": (
        Pairs(),
        (torch.ones(8, 3), torch.ones(4, 3)),
        {"x": {0: 2 * Dim("batch", max=50)}, "y": {0: Dim("batch", max=50)}},
        r"input 'x', dim 0: its size is '.*batch.*', .* only along a dim that is exactly 'batch'",
    ),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_models_whose_requests_cannot_be_joined(name, tmp_path):
    module, args, shapes, message = UNSUITABLE[name]
    unsuitable = library(module, args, shapes, tmp_path, name)
    with pytest.raises(ArgumentValueError, match=message):
        JoinedCalls(ServedModel(unsuitable), Stacked())


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Stacked(along="rows"), r"along: the model has no symbolic size 'rows'; its names are: 'batch', 'length'"),
        (Padded(dims=("width",)), r"dims: the model has no symbolic size 'width'"),
        (Padded(mask="mask"), r"mask: the model has no input 'mask'; its names are: 'input_ids', 'attention_mask'"),
        (Padded(values={"ids": 0}), r"values: the model has no input 'ids'"),
        (Ragged(along="batch", offsets=("x",)), r"offsets: the model has no input or result 'x'"),
        (Ragged(along="batch", offsets=("input_ids",)), r"'input_ids' must have integers and one dim"),
    ],
)
def test_policies_that_do_not_fit_the_model(policy, message, embeddings):
    with pytest.raises(ArgumentValueError, match=message):
        JoinedCalls(ServedModel(embeddings), policy)


def test_policies_are_checked():
    for arguments, kind in (({"requests": 0}, ArgumentValueError), ({"wait_s": -1}, ArgumentValueError)):
        with pytest.raises(kind, match=next(iter(arguments))):
            Stacked(**arguments)
    with pytest.raises(ArgumentTypeError, match="dims: expected names"):
        Padded(dims="length")
    with pytest.raises(ArgumentValueError, match="at least one size"):
        Padded(dims=())
    with pytest.raises(ArgumentTypeError, match="requests: expected a number, got True"):
        Stacked(requests=True)


def test_without_ray_an_error_names_the_extra(embeddings, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r'disc\.serve\.ray needs Ray .*; run: pip install "disc-compiler\[ray\]"'
    with pytest.raises(ImportError, match=message):
        disc.serve.ray.deployment(embeddings)
    with pytest.raises(ImportError, match=message):
        disc.serve.ray.map_files(embeddings, "in", "out", batching=PADDED)


def test_sources(embeddings, model, tmp_path, monkeypatch):
    model.save(tmp_path / "embedder.disc")
    monkeypatch.chdir(tmp_path)
    ids = torch.ones(1, 4, dtype=torch.int64)
    expected = model(ids, ids)
    sources = {
        "libembedder.disc": None,
        "embedder.disc": "embedder",
        embeddings: "embedder",
        model: "model",
        compiled: "compiled",
    }
    for source, name in sources.items():
        held = portable(source)
        if name is None:
            with pytest.raises(FileNotFoundError, match=r"libembedder\.disc"):
                held.open(1)
            continue
        assert held.name == name
        served = held.open(2)
        assert served.model.threads == 2
        assert [spec.name for spec in served.interface.inputs] == ["input_ids", "attention_mask"]
        found = served.call((ids, ids), {})
        assert_close(found["tokens"], expected["tokens"])
        assert [tuple(x.shape) for x in served.leaves(found)] == [(1, 6), (1, 4, 6)]
    with pytest.raises(ArgumentTypeError, match=r"got a torch\.nn\.Module; pass disc\.compile\(module"):
        portable(embedder())
    with pytest.raises(ArgumentTypeError, match="expected the path of a library"):
        portable(7)
    with pytest.raises(ArgumentTypeError, match=r"the function must return .* got int"):
        portable(lambda threads: 1).open(1)
