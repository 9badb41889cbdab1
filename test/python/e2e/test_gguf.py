"""Language models from GGUF files: their weights stay codes, and logits are those of transformers' own loading."""

import numpy as np
import pytest
import torch

import disc
import disc.gguf
from disc.coded import CodedEmbedding, CodedLinear
from disc.errors import ArgumentTypeError, ArgumentValueError

gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")

VOCABULARY, LONGEST = 97, 64
SIZES = {"vocab_size": VOCABULARY, "max_position_embeddings": LONGEST, "bos_token_id": 1, "eos_token_id": 2}


def llama(width=256, tied=False):
    return transformers.LlamaConfig(
        **SIZES,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
    )


def qwen2():
    return transformers.Qwen2Config(
        **SIZES,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )


def gpt2():
    # transformers takes the number of positions from elsewhere than the file.
    return transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=1024, n_embd=64, n_layer=1, n_head=4, bos_token_id=1, eos_token_id=2
    )


def qwen2_moe():
    return transformers.Qwen2MoeConfig(
        **SIZES,
        hidden_size=64,
        intermediate_size=64,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=64,
        num_experts=4,
        num_experts_per_tok=2,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )


def data_of(kind, shape, rng):
    """A random tensor of a format; of those that the package cannot write, random bytes with small scales."""
    if kind.name[-2:] != "_K":
        return gguf.quantize(rng.standard_normal(shape, dtype=np.float32) * 0.1, kind)
    width, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // width, size), dtype=np.uint8)
    first = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208}.get(kind.name, 0)
    scale = np.array([2e-4], np.float16).view(np.uint8)
    for at in range(first, first + (2 if kind.name in ("Q3_K", "Q6_K") else 4), 2):
        blocks[..., at : at + 2] = scale
    return blocks.reshape(*shape[:-1], -1)


def write(path, config, kind, factors=False):
    """A file of random weights for a model of transformers: matrices as ``kind``, others in f32."""
    rng = np.random.default_rng(0)
    name = config.model_type
    model = transformers.AutoModelForCausalLM.from_config(config)
    writer = gguf.GGUFWriter(path, name.replace("_", ""))
    writer.add_name("random")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_vocab_size(VOCABULARY)
    if name == "gpt2":
        writer.add_layer_norm_eps(1e-5)
        writer.add_feed_forward_length(4 * config.hidden_size)
    else:
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_rope_freq_base(10000.0)
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if name == "qwen2_moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    name = name.replace("_", "")
    arch = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tied = config.tie_word_embeddings
    for key, tensor in model.state_dict().items():
        base, _, suffix = key.rpartition(".")
        if tied and base == "lm_head":
            continue
        shape = tuple(tensor.shape)
        if base.endswith(".experts"):
            # The file has the two parts of gate_up_proj apart.
            parts = {"gate_up_proj": ["gate", "up"], "down_proj": ["down"]}[suffix]
            shape = (shape[0], shape[1] // len(parts), shape[2])
            for part in parts:
                writer.add_tensor(f"blk.0.ffn_{part}_exps.weight", data_of(kind, shape, rng), raw_dtype=kind)
            continue
        if base.endswith("shared_expert_gate"):
            shape = shape[1:]
        if isinstance(model.get_submodule(base), transformers.pytorch_utils.Conv1D):
            shape = shape[::-1]
        if len(shape) == 2 and "wpe" not in key:
            writer.add_tensor(f"{names.get_name(base)}.{suffix}", data_of(kind, shape, rng), raw_dtype=kind)
        else:
            data = 1 + 0.1 * rng.standard_normal(shape, dtype=np.float32)
            writer.add_tensor(f"{names.get_name(base)}.{suffix}", data)
    if factors:
        writer.add_tensor("rope_freqs.weight", np.linspace(1, 8, config.hidden_size // 8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def of_floats(path, model):
    """The model with transformers' own weights of the file, in f32."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    floats = transformers.AutoModelForCausalLM.from_config(model.config).eval()
    # Layers of codes have no names of weights: the map is asked of the model of floats.
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=floats)["tensors"]
    missing = floats.load_state_dict(tensors, strict=False).missing_keys
    floats.tie_weights()
    assert set(missing) <= {"lm_head.weight"}
    return floats


def close(got, want, exact):
    """As far from float64 as eager f32 is, some times over: sums have another order, and factors are rounded anew."""
    error = (want.double() - exact).abs().max()
    return (got.double() - exact).abs().max() <= 8 * error + 1e-6 * exact.abs().max()


SOME = ["Q4_0", "Q4_K"]
OTHERS = ["Q8_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q5_K", "Q6_K"]


@pytest.mark.parametrize("name", [*SOME, *(pytest.param(n, marks=pytest.mark.nightly) for n in OTHERS)])
def test_logits_and_tokens_are_those_of_floats(tmp_path, name):
    path = write(tmp_path / "m.gguf", llama(), gguf.GGMLQuantizationType[name])
    model = disc.gguf.load(path)
    layers = [m for m in model.modules() if isinstance(m, CodedLinear)]
    assert len(layers) == 15
    assert {layer.bits for layer in layers} == {4 if name in ("Q4_0", "Q4_1", "Q2_K", "Q3_K", "Q4_K") else 8}
    assert isinstance(model.model.embed_tokens, CodedEmbedding)
    floats = of_floats(path, model)
    exact = of_floats(path, model).double()
    lm = disc.hf.compile_causal_lm(model)
    for rows, length in [(1, 1), (1, 2), (3, 1), (2, 7), (4, 1), (5, 3), (1, 33), (13, 1)]:
        ids = torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(rows + length))
        with torch.no_grad():
            want, best = floats(ids).logits, exact(ids).logits
            assert close(model(ids).logits, want, best)
        assert close(lm(ids).logits, want, best), (rows, length)
    ids = torch.randint(3, VOCABULARY, (2, 5), generator=torch.Generator().manual_seed(0))
    options = {"max_new_tokens": 6, "do_sample": False, "attention_mask": torch.ones_like(ids), "pad_token_id": 0}
    assert torch.equal(lm.generate(ids, **options), floats.generate(ids, **options))


@pytest.mark.parametrize(
    "config", [qwen2, gpt2, qwen2_moe, lambda: llama(64, tied=True)], ids=["qwen2", "gpt2", "moe", "tied"]
)
def test_other_models(tmp_path, config):
    path = write(tmp_path / "m.gguf", config(), gguf.GGMLQuantizationType.Q4_0)
    # transformers does not read the size of experts from files.
    model = disc.gguf.load(
        path, transformers.AutoModelForCausalLM.from_config(config()) if config is qwen2_moe else None
    )
    # Of the layers only the gate of shared experts is a vector in the file.
    floats = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    assert all(name.endswith("shared_expert_gate") for name in floats)
    assert model.lm_head.codes is model.get_input_embeddings().codes
    ids = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        floats = of_floats(path, model)
        want = floats(ids).logits
        if config is qwen2_moe:  # PyTorch has no grouped products in float64.
            torch.testing.assert_close(model(ids).logits, want, rtol=1e-5, atol=1e-5)
        else:
            assert close(model(ids).logits, want, floats.double()(ids).logits)


def test_weights_for_a_given_model_and_factors_of_frequencies(tmp_path):
    path = write(tmp_path / "m.gguf", llama(64), gguf.GGMLQuantizationType.Q8_0, factors=True)
    plain = transformers.LlamaForCausalLM(llama(64))
    frequencies = plain.model.rotary_emb.inv_freq.clone()
    assert disc.gguf.load(path, plain) is plain
    torch.testing.assert_close(plain.model.rotary_emb.inv_freq, frequencies / torch.linspace(1, 8, 8))


def test_errors(tmp_path):
    path = write(tmp_path / "m.gguf", llama(64), gguf.GGMLQuantizationType.Q8_0)
    with pytest.raises(ArgumentValueError, match="there is no file"):
        disc.gguf.load(tmp_path / "other.gguf")
    (tmp_path / "text.gguf").write_text("no weights")
    with pytest.raises(ArgumentValueError, match="not a GGUF file"):
        disc.gguf.load(tmp_path / "text.gguf")
    (tmp_path / "cut.gguf").write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ArgumentValueError, match=r"cut\.gguf"):
        disc.gguf.load(tmp_path / "cut.gguf")
    with pytest.raises(ArgumentTypeError, match="a model of transformers"):
        disc.gguf.load(path, torch.nn.Linear(2, 2))
    with pytest.raises(ArgumentValueError, match=r"is \[97, 64\], and the model's .* is \[97, 128\]"):
        disc.gguf.load(path, transformers.LlamaForCausalLM(llama(128)))
    deep = llama(64)
    deep.num_hidden_layers = 3
    with pytest.raises(ArgumentValueError, match=r"lacks model\.layers\.2"):
        disc.gguf.load(path, transformers.LlamaForCausalLM(deep))
