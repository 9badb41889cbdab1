"""Dataclasses and enums as arguments and results, without registering them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc


class Pooling(enum.Enum):
    MEAN = "mean"
    FIRST = "first"


@dataclass
class Tokens:
    ids: torch.Tensor
    mask: torch.Tensor | None = None
    language: str = "en"


@dataclass
class Sentences:
    vectors: torch.Tensor
    count: int
    tokens: Tokens | None = None


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)

    def forward(self, tokens, pooling=Pooling.MEAN):
        x = self.embed(tokens.ids)
        if tokens.mask is not None:
            x = x * tokens.mask[..., None]
        x = x.mean(1) if pooling is Pooling.MEAN else x[:, 0]
        return Sentences(x, tokens.ids.shape[0], Tokens(tokens.ids + 1))


def make_tokens(batch, length):
    return Tokens(torch.randint(50, (batch, length)), torch.rand(batch, length))


BY_FIELD = {"ids": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}
BY_CLASS = Tokens({0: "batch", 1: "length"}, {0: "batch", 1: "length"}, None)


@pytest.mark.parametrize("shapes", ["auto", {"tokens": BY_FIELD}, {"tokens": BY_CLASS}, (BY_FIELD,)])
def test_dataclasses(shapes, tmp_path):
    module = Encoder()
    model = disc.compile(module, (make_tokens(3, 6),), dynamic_shapes=shapes)
    model.save(tmp_path / "encoder.disc")
    for compiled in (model, disc.load(tmp_path / "encoder.disc")):
        for batch, length in ((1, 2), (5, 9)):
            tokens = make_tokens(batch, length)
            result, expected = compiled(tokens), module(tokens)
            assert type(result) is Sentences and result.count == batch
            assert result.tokens.mask is None and result.tokens.language == "en"
            assert torch.equal(result.tokens.ids, expected.tokens.ids)
            torch.testing.assert_close(result.vectors, expected.vectors)


def test_what_differs_from_the_example():
    model = disc.compile(Encoder(), (make_tokens(3, 6), Pooling.FIRST), dynamic_shapes="auto")
    with pytest.raises(disc.errors.ConstantError, match=r"'pooling'.*expected <Pooling.FIRST.*got <Pooling.MEAN"):
        model(make_tokens(3, 6), Pooling.MEAN)
    with pytest.raises(disc.errors.ConstantError, match=r"'tokens.language'.*expected 'en'.*got 'de'"):
        model(Tokens(torch.ones(3, 6, dtype=torch.int64), torch.ones(3, 6), "de"), Pooling.FIRST)
    with pytest.raises(
        disc.errors.CallError, match=r"a Tokens with 'ids', 'mask', 'language'; got a Tokens with 'ids', 'l"
    ):
        model(Tokens(torch.ones(3, 6, dtype=torch.int64)), Pooling.FIRST)


def test_specs_of_fields_that_do_not_exist():
    with pytest.raises(ValueError, match="tokens has no field 'id'; its fields: ids, mask, language"):
        disc.compile(Encoder(), (make_tokens(3, 6),), dynamic_shapes={"tokens": {"id": {0: "batch"}}})


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


@pytest.mark.parametrize(
    "shapes",
    [
        "auto",
        (Pair({0: "n"}, {0: "n"}),),
        ([{0: "n"}, {0: "n"}],),
        (({0: "n"}, {0: "n"}),),
        {"pair": {"a": {0: "n"}, "b": {0: "n"}}},
        {"pair": Pair({0: Dim("n")}, {0: Dim("n")})},
    ],
)
def test_named_tuples_as_arguments(shapes):
    def total(pair):
        return Pair(pair.a + pair.b, pair.b.sum())

    model = disc.compile(total, (Pair(torch.randn(2, 4), torch.randn(2, 4)),), dynamic_shapes=shapes)
    for n in (1, 5, 3):
        pair = Pair(torch.randn(n, 4), torch.randn(n, 4))
        got = model(pair)
        assert type(got) is Pair
        torch.testing.assert_close(got, total(pair))


def test_named_tuples_in_examples():
    examples = [(Pair(torch.randn(n, 4), torch.randn(n, 4)),) for n in (2, 3)]
    model = disc.compile(lambda pair: pair.a * pair.b, examples=examples)
    pair = Pair(torch.randn(7, 4), torch.randn(7, 4))
    torch.testing.assert_close(model(pair), pair.a * pair.b)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"c": {0: "n"}}, "pair has no field 'c'; its fields: a, b"),
        ([{0: "n"}], r"pair: expected 2 specs \(a, b\), got 1"),
    ],
)
def test_specs_that_do_not_fit_a_named_tuple(spec, text):
    with pytest.raises(ValueError, match=text):
        disc.compile(lambda pair: pair.a, (Pair(torch.randn(2), torch.randn(2)),), dynamic_shapes={"pair": spec})


def test_a_size_as_an_argument():
    model = disc.compile(lambda x, size: x.reshape(size), (torch.randn(8), torch.Size([2, 4])), dynamic_shapes=None)
    assert model(torch.randn(8), torch.Size([2, 4])).shape == (2, 4)
    assert model(torch.randn(8), (2, 4)).shape == (2, 4)
