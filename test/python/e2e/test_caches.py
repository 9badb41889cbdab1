"""Key-value caches of transformers as arguments and results of compiled models, over many steps."""

import copy

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc

transformers = pytest.importorskip("transformers")
cache_utils = pytest.importorskip("transformers.cache_utils")

LAYERS, HEADS, SIZE = 2, 2, 8
B, T, P = Dim("B", min=1, max=8), Dim("T", min=1, max=64), Dim("P", min=0, max=128)


def configuration(**more):
    return transformers.LlamaConfig(
        hidden_size=HEADS * SIZE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        **more,
    )


class Decoder(nn.Module):
    """Two layers of causal attention to a cache."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(HEADS * SIZE, 3 * HEADS * SIZE) for _ in range(LAYERS))

    def heads(self, x):
        return x.unflatten(-1, (-1, SIZE)).transpose(1, 2)

    def forward(self, x, cache):
        past = cache.get_seq_length()
        for i, layer in enumerate(self.layers):
            query, key, value = (self.heads(part) for part in layer(x).chunk(3, dim=-1))
            key, value = cache.update(key, value, i)
            allowed = torch.arange(key.shape[2]) <= past + torch.arange(x.shape[1])[:, None]
            found = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
            x = x + found.transpose(1, 2).flatten(2)
        return x, cache


def filled(batch, length):
    cache = cache_utils.DynamicCache(config=configuration())
    for i in range(LAYERS):
        cache.update(torch.randn(batch, HEADS, length, SIZE), torch.randn(batch, HEADS, length, SIZE), i)
    return cache


def same_tensors(left, right):
    for a, b in zip(left.layers, right.layers, strict=True):
        torch.testing.assert_close(a.keys, b.keys, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(a.values, b.values, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def decoder():
    torch.manual_seed(0)
    return Decoder().eval()


def test_a_dynamic_cache_grows(decoder):
    """One compiled model for the prompt and each step after it; the result is the caller's own cache."""
    shapes = ({0: B, 1: T}, {0: B, 2: P})
    model = disc.compile(decoder, (torch.randn(2, 3, HEADS * SIZE), filled(2, 5)), dynamic_shapes=shapes)
    for batch, past, steps in ((2, 5, 12), (1, 1, 3), (3, 0, 4)):
        cache = filled(batch, past)
        eager = copy.deepcopy(cache)
        length = 4
        for step in range(steps):
            x = torch.randn(batch, length, HEADS * SIZE)
            with torch.no_grad():
                expected, _ = decoder(x, eager)
            result, returned = model(x, cache)
            assert returned is cache
            assert cache.get_seq_length() == eager.get_seq_length() == past + 4 + step
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
            same_tensors(cache, eager)
            length = 1


def test_a_cache_made_inside(decoder):
    """The prompt's model makes the cache, which another model then extends."""

    class Prompt(nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = decoder

        def forward(self, x):
            return self.decoder(x, cache_utils.DynamicCache(config=configuration()))

    x = torch.randn(2, 3, HEADS * SIZE)
    prompt = disc.compile(Prompt(), (x,), dynamic_shapes=({0: B, 1: T},))
    for batch, length in ((2, 3), (1, 1), (4, 19)):
        x = torch.randn(batch, length, HEADS * SIZE)
        with torch.no_grad():
            expected, eager = Prompt()(x)
        result, cache = prompt(x)
        assert type(cache) is cache_utils.DynamicCache and cache.get_seq_length() == length
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
        same_tensors(cache, eager)


def test_a_static_cache_is_written_in_place():
    torch.manual_seed(1)
    linear = nn.Linear(HEADS * SIZE, 2 * HEADS * SIZE)

    class Write(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def forward(self, x, cache):
            key, value = (part.unflatten(-1, (-1, SIZE)).transpose(1, 2) for part in self.linear(x).chunk(2, dim=-1))
            total = 0
            for i in range(LAYERS):
                keys, values = cache.update(key * (i + 1), value, i)
                total = total + (keys * values).sum((2, 3))
            return total, cache

    def started():
        cache = cache_utils.StaticCache(config=configuration(), max_cache_len=16)
        with torch.no_grad():
            Write()(torch.randn(2, 2, HEADS * SIZE, generator=torch.Generator().manual_seed(0)), cache)
        return cache

    cache, eager = started(), started()
    # The compiled model writes to the tensors of the cache that it is given.
    model = disc.compile(Write(), (torch.randn(2, 3, HEADS * SIZE), started()), dynamic_shapes=({1: T}, None))
    memory = cache.layers[0].keys.data_ptr()
    for length in (3, 1, 1, 4):
        x = torch.randn(2, length, HEADS * SIZE)
        with torch.no_grad():
            expected, _ = Write()(x, eager)
        result, returned = model(x, cache)
        assert returned is cache and cache.layers[0].keys.data_ptr() == memory
        torch.testing.assert_close(result, expected)
        same_tensors(cache, eager)


def test_an_encoder_decoder_cache():
    """The part for the encoder's output is computed at the first step and read at the others."""
    torch.manual_seed(2)
    linear = nn.Linear(HEADS * SIZE, 2 * HEADS * SIZE)

    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def split(self, x):
            return [part.unflatten(-1, (-1, SIZE)).transpose(1, 2) for part in self.linear(x).chunk(2, dim=-1)]

        def forward(self, x, encoded, cache):
            keys, values = cache.self_attention_cache.update(*self.split(x), 0)
            if cache.is_updated.get(0):
                layer = cache.cross_attention_cache.layers[0]
                others = layer.keys, layer.values
            else:
                others = cache.cross_attention_cache.update(*self.split(encoded), 0)
                cache.is_updated[0] = True
            return (keys * values).sum((1, 2)) + (others[0] - others[1]).sum((1, 2)), cache

    def empty():
        return cache_utils.EncoderDecoderCache(cache_utils.DynamicCache(), cache_utils.DynamicCache())

    def inputs(batch, length, source):
        return torch.randn(batch, length, HEADS * SIZE), torch.randn(batch, source, HEADS * SIZE)

    S = Dim("S", min=1, max=64)
    x, encoded = inputs(2, 1, 5)
    with torch.no_grad():
        started = Cross()(x, encoded, empty())[1]
    step = disc.compile(
        Cross(),
        (x, encoded, started),
        dynamic_shapes=({0: B, 1: T}, {0: B, 1: S}, [{0: B, 2: S}] * 2 + [{0: B, 2: P}] * 2),
    )
    for batch, source in ((2, 5), (1, 1), (3, 40)):
        x, encoded = inputs(batch, 3, source)
        with torch.no_grad():
            cache = Cross()(x, encoded, empty())[1]
        eager = copy.deepcopy(cache)
        for length in (1, 1, 2, 1):
            x = torch.randn(batch, length, HEADS * SIZE)
            with torch.no_grad():
                expected, _ = Cross()(x, encoded, eager)
            result, returned = step(x, encoded, cache)
            assert returned is cache and type(cache) is cache_utils.EncoderDecoderCache
            torch.testing.assert_close(result, expected)
            same_tensors(cache.self_attention_cache, eager.self_attention_cache)
            same_tensors(cache.cross_attention_cache, eager.cross_attention_cache)
