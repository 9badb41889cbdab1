"""torch.compile(backend="disc") of what text generation consists of: constants, grouped attention, caches."""

import os

import pytest
import torch
import torch._dynamo
from torch import nn

import disc
import disc.dynamo
from disc.dynamo import Explanation

pytestmark = pytest.mark.share(3)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled_whole(function, *args, dynamic=True):
    """The compiled function's results, after a check that PyTorch runs no operation of it."""
    with disc.dynamo._listening() as reports:
        results = torch.compile(function, backend="disc", dynamic=dynamic)(*args)
    assert reports and Explanation(reports).fallbacks == [], str(Explanation(reports))
    return results


def test_tensors_made_inside():
    def call(x):
        weights = torch.tensor([1.0, 2.0, 3.0])
        weights += x[0]
        number = torch.tensor(0)
        for i in range(3):
            number = number + i
        sizes = torch.tensor([[x.shape[0], x.shape[1], 1]])
        return x[:, [0, 2]], x[[0, 1]] * weights + number, sizes + x, torch.where(x > 2, torch.tensor(1.0), x)

    x = torch.arange(6.0).reshape(2, 3)
    torch.testing.assert_close(compiled_whole(call, x), call(x))


@pytest.mark.parametrize("kind", ["none", "float", "heads", "bool", "row", "causal"])
def test_grouped_attention(kind):
    q, k, v = torch.randn(2, 8, 5, 16), torch.randn(2, 2, 7, 16), torch.randn(2, 2, 7, 16)
    mask = {
        "float": torch.randn(5, 7),
        "heads": torch.randn(2, 8, 5, 7),
        "bool": torch.ones(2, 1, 5, 7).tril(2).bool(),
        "row": torch.randn(2, 1, 1, 7),
    }.get(kind)

    def call(q, k, v, mask):
        return nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "causal", enable_gqa=True)

    with torch.no_grad():
        torch.testing.assert_close(compiled_whole(call, q, k, v, mask), call(q, k, v, mask))


@pytest.mark.parametrize("shape", [(1, 1, 16), (3, 1, 16), (1, 5, 16)])
def test_gated_unit_of_a_normalized_row(shape):
    """Two products read equal views of one tensor."""
    gate, up, weight = torch.randn(44, 16), torch.randn(44, 16), torch.rand(16)

    def call(x):
        x = weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return nn.functional.silu(nn.functional.linear(x, gate)) * nn.functional.linear(x, up)

    x = torch.randn(shape)
    torch.testing.assert_close(compiled_whole(call, x, dynamic=False), call(x))


FAMILIES = ("Llama", "Qwen2", "Gemma", "Mistral", "GPT2", "T5", "Whisper")
CACHES = ("dynamic", "static")
QUICK = (("Llama", "dynamic"), ("GPT2", "static"))
"""Those that run with all other tests; the others with DISC_ALL_MODELS=1 in the environment."""
HEADS = {"GPT2": "GPT2LMHeadModel", "T5": "T5ForConditionalGeneration", "Whisper": "WhisperForConditionalGeneration"}
WHISPER = {
    "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 40, "decoder_start_token_id": 1,
    "suppress_tokens": None, "begin_suppress_tokens": None,
    **{f"{side}_{key}": size for side in ("encoder", "decoder") for key, size in
       {"layers": 1, "attention_heads": 4, "ffn_dim": 48}.items()},
}  # fmt: skip
SIZES = {
    "GPT2": {"n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 4},
    "T5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4, "decoder_start_token_id": 0},
    "Whisper": {"d_model": 32, **WHISPER},
}
DECODER = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def tiny(family):
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    sizes = dict(SIZES.get(family, DECODER))
    if family == "Gemma":
        sizes["head_dim"] = 8
    if family == "Mistral":
        sizes["sliding_window"] = 8
    config = getattr(transformers, f"{family}Config")(
        vocab_size=97, pad_token_id=0, bos_token_id=1, eos_token_id=2, **sizes
    )
    model = getattr(transformers, HEADS.get(family, f"{family}ForCausalLM"))(config).eval()
    # Every sequence gets its full length.
    model.generation_config.eos_token_id = None
    return model


@pytest.mark.parametrize(("family", "cache"), [
    pytest.param(f, c, marks=pytest.mark.skipif(
        (f, c) not in QUICK and "DISC_ALL_MODELS" not in os.environ, reason="DISC_ALL_MODELS is not set"))
    for f in FAMILIES for c in CACHES
])  # fmt: skip
def test_generate(family, cache):
    """Tokens equal eager's; one graph for the prompt and one or two for the steps, however long the text becomes."""
    model = tiny(family)
    eager = model.forward
    options = {"fallback": "error", "opt_level": 0, "threads": 1}
    compiled = torch.compile(eager, backend="disc", dynamic=True, options=options)
    with torch.no_grad(), disc.dynamo._listening() as reports:
        for length, steps, ways in ((7, 12, {}), (9, 8, {"do_sample": True}), (9, 5, {"num_beams": 2})):
            prompt = torch.randn(2, 8, 40) if family == "Whisper" else torch.randint(3, 97, (2, length))
            given = {"max_new_tokens": steps, "disable_compile": True, **ways}
            if family != "Whisper":
                given["attention_mask"] = torch.ones_like(prompt)
            if cache == "static":
                given["cache_implementation"] = "static"
            tokens = []
            for forward in (eager, compiled):
                model.forward = forward
                torch.manual_seed(5)
                tokens.append(model.generate(prompt, **given))
            assert torch.equal(*tokens)
    assert Explanation(reports).fallbacks == []
    # A window of attention adds one graph where it begins to slide.
    assert len(reports) <= (6 if family == "Mistral" else 4)
