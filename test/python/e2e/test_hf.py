"""Causal language models of transformers: one compilation for prompts and steps, transformers' own ``generate``."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import torch

import disc
from disc.errors import ArgumentTypeError, ArgumentValueError, CallError, InputTypeError

pytestmark = pytest.mark.share(2)

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
    "opt": lambda: transformers.OPTForCausalLM(
        transformers.OPTConfig(**COMMON, **SMALL, ffn_dim=64, word_embed_proj_dim=32)
    ),
}
_compiled = {}


def compile_once(model, **settings):
    """The compiled model, after exactly one call of disc.compile, without warnings."""
    compile = mock.Mock(wraps=disc.compile)
    with mock.patch.object(disc.hf, "compile", compile), warnings.catch_warnings():
        warnings.filterwarnings("error", message="the model works for some sizes")
        lm = disc.hf.compile_causal_lm(model, **settings)
    assert compile.call_count == 1
    return lm


@pytest.fixture(params=["llama", "gpt2", pytest.param("opt", marks=pytest.mark.nightly)])
def pair(request):
    """The original model and the compiled one, which is compiled once for all tests of this file."""
    if request.param not in _compiled:
        torch.manual_seed(0)
        model = MODELS[request.param]().eval()
        _compiled[request.param] = model, compile_once(model)
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
    for rows in (1, 2, 3, 7):
        for length in (1, 2, 17, 31, 33, 64):
            ids, mask = prompt(rows, length, padded=rows > 1)
            options = {"attention_mask": mask, "max_new_tokens": 3, "do_sample": False}
            assert torch.equal(lm.generate(ids, **options), model.generate(ids, **options)), (rows, length)


def test_a_prompt_of_the_largest_length_and_the_last_token(pair):
    model, lm = pair
    ids, mask = prompt(2, LONGEST - 1, padded=True)
    options = {"attention_mask": mask, "max_new_tokens": 1, "do_sample": False}
    assert torch.equal(lm.generate(ids, **options), model.generate(ids, **options))
    # The caches grow several times on the way.
    ids, _ = prompt(1, 1)
    options = {"max_new_tokens": LONGEST - 1, "do_sample": False}
    assert torch.equal(lm.generate(ids, **options), model.generate(ids, **options))
    ids, mask = prompt(1, LONGEST)
    with torch.no_grad():
        torch.testing.assert_close(lm(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentValueError, match=f"1 tokens after {LONGEST} others"):
        lm(ids[:, :1], past_key_values=lm(ids).past_key_values)


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


def test_caches_are_written_in_place(pair):
    model, lm = pair
    ids, _ = prompt(2, 9)
    with torch.no_grad():
        cache = lm(ids).past_key_values
        before = [tensor.data_ptr() for layer in cache.layers for tensor in layer.tensors]
        kept = cache.layers[0].keys.clone()
        lm(ids[:, :1], past_key_values=cache)
        assert [tensor.data_ptr() for layer in cache.layers for tensor in layer.tensors] == before
        assert torch.equal(cache.layers[0].keys[:, :, :9], kept) and cache.get_seq_length() == 10
        # Cropped and continued by the original; a cache of the original continued by the compiled model.
        cache.crop(-1)
        want = model(ids).past_key_values
        more = ids[:, 3:5]
        first, second = model(more, past_key_values=cache).logits, lm(more, past_key_values=want).logits
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(cache.layers[1].values, want.layers[1].values, rtol=1e-4, atol=1e-5)


def test_streamers_and_stopping(pair):
    model, lm = pair
    ids, _ = prompt(1, 5)
    end = model.generate(ids, max_new_tokens=6, do_sample=False)[0, -1].item()
    pieces = []
    streamer = mock.Mock(put=lambda value: pieces.append(value.flatten()), end=lambda: None)
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": end}
    got = lm.generate(ids, streamer=streamer, **options)
    assert torch.equal(got, model.generate(ids, **options))
    assert torch.equal(torch.cat(pieces), got[0])


def test_what_is_refused(pair):
    _, lm = pair
    ids, mask = prompt(1, 3)
    with pytest.raises(ArgumentValueError, match=f"97 tokens after 0 others are more than max_length={LONGEST}"):
        lm(torch.ones(1, LONGEST + 1, dtype=torch.int64))
    with pytest.raises(CallError, match="'output_attentions'"):
        lm(ids, output_attentions=True)
    with pytest.raises(InputTypeError, match=r"'input_ids': expected int64 or int32, got torch.float32"):
        lm(ids.float())
    with pytest.raises(ArgumentValueError, match=r"token 97 is not in the model's vocabulary of 97"):
        lm(ids + (VOCABULARY - ids))
    with pytest.raises(disc.ShapeError, match=r"'attention_mask'.* \[1, 3\], got \[1, 2\]"):
        lm(ids, mask[:, :2])
    with pytest.raises(ArgumentTypeError, match="past_key_values: expected a DynamicCache, got a StaticCache"):
        lm.generate(ids, attention_mask=mask, max_new_tokens=2, cache_implementation="static")
    with pytest.raises(disc.ShapeError, match="past_key_values: expected the 1 sequences of input_ids, got 2"):
        lm(ids, past_key_values=lm(prompt(2, 4)[0]).past_key_values)


def test_what_cannot_be_compiled():
    model = MODELS["gpt2"]()
    with pytest.raises(ArgumentTypeError, match="expected a causal language model of transformers, got Linear"):
        disc.hf.compile_causal_lm(torch.nn.Linear(2, 2))
    with pytest.raises(ArgumentValueError, match="max_length: expected a number of tokens, at least 2, got 0"):
        disc.hf.compile_causal_lm(model, max_length=0)
    with pytest.raises(ArgumentValueError, match="max_length: 97 is more than"):
        disc.hf.compile_causal_lm(model, max_length=LONGEST + 1)
    with pytest.raises(ArgumentValueError, match=r"batch: expected .*, got \(2, 1\)"):
        disc.hf.compile_causal_lm(model, batch=(2, 1))


def test_sliding_windows_are_refused():
    config = transformers.MistralConfig(
        **COMMON, **SMALL, intermediate_size=64, num_key_value_heads=2, sliding_window=8
    )
    with pytest.raises(ArgumentTypeError, match="layer 0 of MistralForCausalLM keeps a DynamicSlidingWindowLayer"):
        disc.hf.compile_causal_lm(transformers.MistralForCausalLM(config).eval())


def test_models_that_need_a_mask_of_two_dims_are_refused():
    config = transformers.BloomConfig(**COMMON, hidden_size=32, n_layer=2, n_head=4)
    with pytest.raises(ArgumentTypeError, match="BloomForCausalLM does not give its own logits with an attention mask"):
        disc.hf.compile_causal_lm(transformers.BloomForCausalLM(config).eval(), max_length=64)


def test_attention_that_adds_its_mask():
    torch.manual_seed(0)
    model = MODELS["llama"]().eval()
    model.set_attn_implementation("eager")
    lm = compile_once(model)
    for rows, length in ((1, 1), (2, 9), (3, 33)):
        ids, mask = prompt(rows, length, padded=rows > 1)
        with torch.no_grad():
            want, got = model(ids, attention_mask=mask).logits, lm(ids, mask).logits
        torch.testing.assert_close(got[mask.bool()], want[mask.bool()], rtol=1e-4, atol=1e-5)
        options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False}
        assert torch.equal(lm.generate(ids, **options), model.generate(ids, **options))
    model.set_attn_implementation("flex_attention")
    with pytest.raises(
        ArgumentTypeError, match="expected attention of the kind 'sdpa' or 'eager', got 'flex_attention'"
    ):
        disc.hf.compile_causal_lm(model)


def test_bfloat16_and_a_fixed_batch():
    torch.manual_seed(0)
    model = MODELS["llama"]().eval().to(torch.bfloat16)
    lm = compile_once(model, batch=1, max_length=40)
    with torch.no_grad():
        for length in (1, 6, 33):
            ids, _ = prompt(1, length)
            want, got = model(ids), lm(ids)
            torch.testing.assert_close(got.logits, want.logits, rtol=5e-2, atol=2e-2)
            want = model(ids[:, :1], past_key_values=want.past_key_values)
            got = lm(ids[:, :1], past_key_values=got.past_key_values)
            torch.testing.assert_close(got.logits, want.logits, rtol=5e-2, atol=2e-2)
    assert got.logits.dtype == torch.bfloat16
    assert lm.generate(prompt(1, 6)[0], max_new_tokens=20, do_sample=False).shape == (1, 26)
    with pytest.raises(disc.ShapeError, match="input_ids"):
        lm(prompt(2, 3)[0])


def test_saved_and_loaded(pair, tmp_path):
    model, lm = pair
    model.generation_config.max_new_tokens = 7
    lm.save(tmp_path / "lm")
    ids, mask = prompt(2, 6, padded=True)
    want = model.generate(ids, attention_mask=mask, do_sample=False)
    for other in (disc.hf.load_causal_lm(tmp_path / "lm"), pickle.loads(pickle.dumps(lm))):
        assert torch.equal(other.generate(ids, attention_mask=mask, do_sample=False), want)
        assert other.config.vocab_size == VOCABULARY and other.generation_config.max_new_tokens == 7
        assert other.device == lm.device and other.dtype == lm.dtype and other.eval() is other
        assert other.state_dict().keys() == model.state_dict().keys()
        values = {key: torch.zeros_like(value) for key, value in model.state_dict().items()}
        other.load_state_dict(values)
        assert not other(ids).logits.any()
    assert torch.equal(lm.generate(ids, attention_mask=mask, do_sample=False), want)


def test_a_folder_without_a_saved_model(tmp_path):
    with pytest.raises(OSError, match=r"causal_lm.json"):
        disc.hf.load_causal_lm(tmp_path)
    for name in ("NoSuchLM", "pipeline", "AutoConfig"):
        (tmp_path / "causal_lm.json").write_text(f'{{"architecture": "{name}", "max_length": 9, "layers": []}}')
        text = rf"causal_lm.json: not the description of a causal language model .*{name}"
        with pytest.raises(disc.LibraryError, match=text):
            disc.hf.load_causal_lm(tmp_path)
