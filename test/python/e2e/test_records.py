"""Dataclasses and enums as arguments and results, without registering them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pytest
import torch
from torch import nn

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
