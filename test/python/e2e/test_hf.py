"""Causal language models of transformers: one compilation for prompts and steps, transformers' own ``generate``."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import disc
from disc.errors import ArgumentTypeError, ArgumentValueError, CallError

transformers = pytest.importorskip("transformers")

VOCABULARY, LONGEST = 97, 96
COMMON = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": LONGEST}
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**COMMON, **SMALL, intermediate_size=64, num_key_value_heads=2)
    ),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**COMMON, n_embd=32, n_layer=2, n_head=4, n_positions=LONGEST)
    ),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**COMMON, **SMALL, intermediate_size=64, num_key_value_heads=1)
    ),
}
_compiled = {}


@pytest.fixture(params=MODELS)
def pair(request):
    """The original model and the compiled one, which is compiled once for all tests of this file."""
    from disc.hf import compile_causal_lm

    if request.param not in _compiled:
        torch.manual_seed(0)
        model = MODELS[request.param]().eval()
        _compiled[request.param] = model, compile_causal_lm(model)
    return _compiled[request.param]


def prompt(rows, length, padded=False, seed=0):
    generator = torch.Generator().manual_seed(seed + 100 * rows + length)
    ids = torch.randint(2, VOCABULARY, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, : length // 2] = 0
    return ids, mask


def test_generates_what_the_original_does(pair):
    model, lm = pair
    for rows, length in ((1, 1), (2, 2), (3, 7), (7, 17), (1, 31), (2, 33), (1, 64), (2, 5)):
        ids, mask = prompt(rows, length, padded=rows > 1)
        options = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": False}
        assert torch.equal(lm.generate(ids, **options), model.generate(ids, **options)), (rows, length)
    assert lm.compiled.compilations == 1


def test_other_ways_to_generate(pair):
    model, lm = pair
    ids, mask = prompt(2, 9)
    for options in (
        {"do_sample": True, "top_k": 5, "temperature": 0.7},
        {"num_beams": 3, "do_sample": False},
        {"do_sample": False, "repetition_penalty": 1.3, "return_dict_in_generate": True, "output_scores": True},
    ):
        results = []
        for which in (model, lm):
            torch.manual_seed(3)
            results.append(which.generate(ids, attention_mask=mask, max_new_tokens=8, **options))
        want, got = (getattr(r, "sequences", r) for r in results)
        assert torch.equal(got, want), options


def test_logits_and_caches(pair):
    model, lm = pair
    ids, mask = prompt(3, 19, padded=True)
    with torch.no_grad():
        want, got = model(ids, attention_mask=mask), lm(ids, mask)
        real = mask.bool()
        torch.testing.assert_close(got.logits[real], want.logits[real], rtol=1e-4, atol=1e-5)
        assert got.past_key_values.get_seq_length() == 19
        for length in (1, 4, 1):
            more, _ = prompt(3, length, seed=9)
            mask = torch.cat((mask, torch.ones_like(more)), 1)
            want = model(more, attention_mask=mask, past_key_values=want.past_key_values)
            got = lm(more, mask, past_key_values=got.past_key_values)
            torch.testing.assert_close(got.logits, want.logits, rtol=1e-4, atol=1e-5)
        last = lm(ids, logits_to_keep=1).logits
        torch.testing.assert_close(last, model(ids, logits_to_keep=1).logits, rtol=1e-4, atol=1e-5)


def test_two_threads(pair):
    model, lm = pair
    prompts = [prompt(1, length) for length in (3, 21, 8, 40)]

    def run(which, given):
        return which.generate(given[0], attention_mask=given[1], max_new_tokens=10, do_sample=False)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda given: run(lm, given), prompts))
    assert all(torch.equal(got, run(model, given)) for got, given in zip(results, prompts, strict=True))


def test_what_is_refused(pair):
    from disc.hf import compile_causal_lm

    model, lm = pair
    with pytest.raises(ArgumentValueError, match=f"97 tokens behind 0 others are more than max_length={LONGEST}"):
        lm(torch.ones(1, LONGEST + 1, dtype=torch.int64))
    with pytest.raises(CallError, match="'output_attentions'"):
        lm(prompt(1, 3)[0], output_attentions=True)
    with pytest.raises(ArgumentTypeError, match="expected a causal language model of transformers, got Linear"):
        compile_causal_lm(torch.nn.Linear(2, 2))
    for wrong in ({"max_length": 0}, {"batch": 0}, {"batch": (3, 2)}):
        with pytest.raises(ArgumentValueError, match=f"^{next(iter(wrong))}: expected"):
            compile_causal_lm(model, **wrong)
    with pytest.raises(ArgumentValueError, match=r"input_ids: expected a tensor \[batch, length\]"):
        lm(torch.ones(3, dtype=torch.int64))
    static = transformers.cache_utils.StaticCache(config=model.config, max_cache_len=16)
    with pytest.raises(ArgumentTypeError, match="expected a DynamicCache, got StaticCache"):
        lm(prompt(1, 3)[0], past_key_values=static)


def test_sliding_windows_are_refused():
    from disc.hf import compile_causal_lm

    config = transformers.MistralConfig(
        **COMMON, **SMALL, intermediate_size=64, num_key_value_heads=2, sliding_window=8
    )
    with pytest.raises(ArgumentTypeError, match="layer 0 of MistralForCausalLM keeps a DynamicSlidingWindowLayer"):
        compile_causal_lm(transformers.MistralForCausalLM(config).eval())


def test_attention_that_adds_its_mask():
    from disc.hf import compile_causal_lm

    torch.manual_seed(0)
    model = MODELS["llama"]().eval()
    model.set_attn_implementation("eager")
    lm = compile_causal_lm(model)
    for rows, length in ((1, 1), (2, 9), (3, 33)):
        ids, mask = prompt(rows, length, padded=rows > 1)
        with torch.no_grad():
            want, got = model(ids, attention_mask=mask).logits, lm(ids, mask).logits
        torch.testing.assert_close(got[mask.bool()], want[mask.bool()], rtol=1e-4, atol=1e-5)
        options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False}
        assert torch.equal(lm.generate(ids, **options), model.generate(ids, **options))


def test_fixed_batches():
    from disc.hf import compile_causal_lm

    torch.manual_seed(0)
    model = MODELS["llama"]().eval()
    lm = compile_causal_lm(model, batch=1, max_length=40)
    ids, _ = prompt(1, 6)
    want = model.generate(ids, max_new_tokens=20, do_sample=False)
    assert torch.equal(lm.generate(ids, max_new_tokens=20, do_sample=False), want)
    with pytest.raises(disc.ShapeError, match="input_ids"):
        lm(prompt(2, 3)[0])
