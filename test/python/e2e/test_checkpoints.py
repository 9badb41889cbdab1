"""Quantised models in folders of the Hub's form (GPTQ, AWQ, compressed-tensors): their weights stay codes."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import disc
import disc.checkpoints
from disc.coded import CodedLinear
from disc.errors import ArgumentValueError

transformers = pytest.importorskip("transformers")

VOCABULARY, WIDTH = 97, 128


def llama(**changes):
    sizes = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    return transformers.LlamaConfig(
        **sizes, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, **changes
    )


def qwen2():
    return transformers.Qwen2Config(
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=1,
        vocab_size=VOCABULARY,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )


def gpt2():
    return transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=WIDTH, n_layer=1, n_head=4)


def words(codes, bits):
    """Codes along the last axis as a string of bits, in words of 32: the lowest bit of the first code first."""
    codes = np.asarray(codes)
    bit = (codes[..., None].astype(np.int64) >> np.arange(bits) & 1).astype(np.uint8).reshape(*codes.shape[:-1], -1)
    bit = np.concatenate([bit, np.zeros((*bit.shape[:-1], -bit.shape[-1] % 32), np.uint8)], -1)
    return torch.from_numpy(np.packbits(bit, axis=-1, bitorder="little").view(np.int32).copy())


class Layer:
    """Random codes, scales and zero points of a weight, all [rows, columns or groups], and the group of each column."""

    def __init__(self, rng, rows, columns, bits, size, same_zero=False, shuffled=False):
        size = columns if size == -1 else size
        groups = -(-columns // size)
        self.bits = bits
        self.codes = rng.integers(0, 1 << bits, (rows, columns))
        self.scales = (rng.uniform(0.5, 1.5, (rows, groups)) * 0.3 / (1 << bits)).astype(np.float16)
        zero = np.full((rows, groups), 1 << (bits - 1))
        self.zeros = zero if same_zero else rng.integers(0, 1 << bits, (rows, groups))
        self.group = np.arange(columns) // size
        if shuffled:
            rng.shuffle(self.group)

    def weight(self):
        scales = self.scales.astype(np.float64)
        return torch.from_numpy((self.codes - self.zeros[:, self.group]) * scales[:, self.group])

    def gptq(self, version=1, ordered=False):
        zeros = self.zeros - 1 & (1 << self.bits) - 1 if version == 1 else self.zeros
        tensors = {
            "qweight": words(self.codes, self.bits).T,
            "qzeros": words(zeros.T, self.bits),
            "scales": torch.from_numpy(self.scales.T.copy()),
            "bias": torch.zeros(len(self.codes), dtype=torch.float16),
        }
        return tensors if ordered else tensors | {"g_idx": torch.from_numpy(self.group.astype(np.int32))}

    def awq(self):
        order = [0, 2, 4, 6, 1, 3, 5, 7]

        def packed(codes):
            return words(codes.reshape(len(codes), -1, 8)[..., order].reshape(len(codes), -1), 4)

        return {
            "qweight": packed(self.codes.T),
            "qzeros": packed(self.zeros.T),
            "scales": torch.from_numpy(self.scales.T.copy()),
        }

    def compressed(self, symmetric, as_words=True):
        half = 1 << (self.bits - 1)
        tensors = {"weight_scale": torch.from_numpy(self.scales).bfloat16()}
        # bf16 has fewer bits than f16.
        self.scales = tensors["weight_scale"].float().numpy()
        if as_words:
            tensors["weight_packed"] = words(self.codes, self.bits)
            tensors["weight_shape"] = torch.tensor(self.codes.shape)
        else:
            tensors["weight"] = torch.from_numpy((self.codes - half).astype(np.int8))
        if not symmetric:
            signed = torch.from_numpy((self.zeros - half).astype(np.int8))
            tensors["weight_zero_point"] = words(self.zeros.T, self.bits).T if as_words else signed
        return tensors


def write(folder, config, settings, store, pick=lambda name: True, **kind):
    """A folder with a random model, whose linear layers ``store`` writes; the same model with their floats."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    floats = transformers.AutoModelForCausalLM.from_config(config).eval().double()
    tensors, coded = {}, set()
    for name, module in floats.named_modules():
        conv = isinstance(module, transformers.pytorch_utils.Conv1D)
        if (isinstance(module, nn.Linear) or conv) and name != "lm_head" and pick(name):
            shape = module.weight.shape[::-1] if conv else module.weight.shape
            layer = Layer(rng, *shape, **kind)
            stored = store(layer)
            coded.add(name)
            with torch.no_grad():
                module.weight.copy_(layer.weight().T if conv else layer.weight())
            if module.bias is not None:
                nn.init.normal_(module.bias)
                with torch.no_grad():
                    module.bias.copy_(module.bias.half())
                stored["bias"] = module.bias.half()
            tensors |= {f"{name}.{key}": value.contiguous() for key, value in stored.items()}
    for name, value in floats.state_dict().items():
        base = name.rpartition(".")[0]
        if (base == "lm_head" and config.tie_word_embeddings) or base in coded:
            continue
        tensors[name] = value.float().contiguous()
    save_file({k: v.clone() for k, v in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    config = {**config.to_dict(), "quantization_config": settings, "architectures": [type(floats).__name__]}
    (folder / "config.json").write_text(json.dumps(config))
    return floats


def group(bits, size, symmetric, inputs=None):
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": size}
    if size == -1:
        weights |= {"strategy": "channel", "group_size": None}
    return {"targets": ["Linear"], "weights": weights, "input_activations": inputs}


def compressed(*groups, written="pack-quantized"):
    named = {f"group_{i}": group for i, group in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "format": written, "config_groups": named, "ignore": ["lm_head"]}


def gptq(bits, size, **changes):
    return {"quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": False, "sym": True, **changes}


V2 = {"checkpoint_format": "gptq_v2"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
ROUND = {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4, "group_size": 32}

# What the files say, what stores a layer, and what layers are like.
CASES = {
    "gptq": (gptq(4, 128), Layer.gptq, {"bits": 4, "size": 128, "same_zero": True}),
    "gptq in another order": (gptq(4, 32, desc_act=True), Layer.gptq, {"bits": 4, "size": 32, "shuffled": True}),
    "gptq of 3 bits": (gptq(3, 32, **V2), lambda layer: layer.gptq(2), {"bits": 3, "size": 32}),
    "gptq of 8 bits": (gptq(8, -1), lambda layer: layer.gptq(1, True), {"bits": 8, "size": -1, "same_zero": True}),
    "gptq of 2 bits": (gptq(2, 64), Layer.gptq, {"bits": 2, "size": 64}),
    "auto-round": (ROUND, Layer.gptq, {"bits": 4, "size": 32, "same_zero": True}),
    "uneven groups": (gptq(4, 96), Layer.gptq, {"bits": 4, "size": 96, "shuffled": True}),
    "awq": (AWQ, Layer.awq, {"bits": 4, "size": 32}),
    "compressed": (
        compressed(group(4, 32, True)),
        lambda layer: layer.compressed(True),
        {"bits": 4, "size": 32, "same_zero": True},
    ),
    "compressed with zero points": (
        compressed(group(4, 64, False)),
        lambda layer: layer.compressed(False),
        {"bits": 4, "size": 64},
    ),
    "compressed of 8 bits": (
        compressed(group(8, -1, True), written="int-quantized"),
        lambda layer: layer.compressed(True, False),
        {"bits": 8, "size": -1, "same_zero": True},
    ),
}


def close(got, want, exact):
    """As far from float64 as eager f32 is, some times over: sums have another order, and factors are rounded anew."""
    error = (want.double() - exact).abs().max()
    return (got.double() - exact).abs().max() <= 8 * error + 1e-6 * exact.abs().max()


@pytest.mark.parametrize("name", CASES)
def test_layers_are_those_of_the_files(tmp_path, name):
    settings, store, kind = CASES[name]
    exact = write(tmp_path, llama(), settings, store, **kind)
    model = disc.checkpoints.load(tmp_path)
    layers = {at: m for at, m in model.named_modules() if isinstance(m, CodedLinear)}
    assert len(layers) == 14
    for at, layer in layers.items():
        assert layer.bits == (8 if kind["bits"] == 8 else 4)
        assert layer.bias is None
        assert (layer.zeros is None) == kind.get("same_zero", False)
        torch.testing.assert_close(layer.weight, exact.get_submodule(at).weight.float(), rtol=1e-7, atol=1e-8)
    ids = torch.randint(3, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits.double(), exact(ids).logits, rtol=1e-5, atol=1e-5)


SOME = ["gptq in another order", "compressed of 8 bits"]


@pytest.mark.parametrize("name", [*SOME, *(pytest.param(n, marks=pytest.mark.nightly) for n in CASES if n not in SOME)])
def test_logits_and_tokens_are_those_of_floats(tmp_path, name):
    settings, store, kind = CASES[name]
    exact = write(tmp_path, llama(), settings, store, **kind)
    model = disc.checkpoints.load(tmp_path)
    lm = disc.hf.compile_causal_lm(model)
    with torch.no_grad():
        for rows, length in [(1, 1), (1, 2), (3, 1), (2, 7), (5, 3), (1, 33), (13, 1)]:
            ids = torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(rows + length))
            assert close(lm(ids).logits, model(ids).logits, exact(ids).logits), (rows, length)
    ids = torch.randint(3, VOCABULARY, (2, 5), generator=torch.Generator().manual_seed(0))
    options = {"max_new_tokens": 6, "do_sample": False, "attention_mask": torch.ones_like(ids), "pad_token_id": 0}
    assert torch.equal(lm.generate(ids, **options), exact.generate(ids, **options))


@pytest.mark.parametrize("config", [pytest.param(qwen2, marks=pytest.mark.nightly), gpt2], ids=["qwen2", "gpt2"])
def test_other_models(tmp_path, config):
    """With biases, tied embeddings and transposed layers; some layers stay floats."""
    kind = {"bits": 4, "size": 32}
    exact = write(tmp_path, config(), gptq(4, 32, **V2), lambda layer: layer.gptq(2), lambda n: "down" not in n, **kind)
    model = disc.checkpoints.load(tmp_path)
    assert any(isinstance(m, CodedLinear) and m.bias is not None for m in model.modules())
    ids = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits.double(), exact(ids).logits, rtol=1e-5, atol=1e-5)
        lm = disc.hf.compile_causal_lm(model)
        torch.testing.assert_close(lm(ids).logits.double(), exact(ids).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.nightly)])
def test_activations_of_8_bits(tmp_path, dtype):
    """Products of integers: as near to the model of floats as 8 bits allow, and to eager up to codes at a border."""
    tokens = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token"}
    settings = compressed(group(8, -1, True, tokens), written="int-quantized")
    kind = {"bits": 8, "size": -1, "same_zero": True}
    exact = write(tmp_path, qwen2(), settings, lambda layer: layer.compressed(True, False), **kind)
    model = disc.checkpoints.load(tmp_path, dtype=dtype)
    lm = disc.hf.compile_causal_lm(model)
    assert lm.compiled.ir("fusion").count("xi8>, tensor<") >= 5
    for rows, length in [(1, 1), (2, 9), (1, 33)]:
        ids = torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            got, best = lm(ids).logits, exact(ids).logits
            size = best.abs().max()
            assert (got - model(ids).logits).abs().max() <= 0.02 * size
            assert (got - best).abs().max() <= 0.05 * size


def test_several_groups_of_settings(tmp_path):
    """A layer has those of the group that names it."""
    small, large = group(4, 32, True), group(8, 32, True)
    large["targets"] = ["re:.*down_proj"]
    settings = compressed(large, small)
    write(tmp_path, llama(), settings, lambda layer: layer.compressed(True), bits=4, size=32, same_zero=True)
    with pytest.raises(ArgumentValueError, match=r"down_proj: .* codes of 8 bits are not a weight of 256 columns"):
        disc.checkpoints.load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.nightly)])
def test_half_precision(tmp_path, dtype):
    settings, store, kind = CASES["gptq in another order"]
    exact = write(tmp_path, llama(), settings, store, **kind)
    model = disc.checkpoints.load(tmp_path, dtype=dtype)
    assert model.lm_head.weight.dtype == dtype
    ids = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        want, best = model(ids).logits, exact(ids).logits
        got = disc.hf.compile_causal_lm(model)(ids).logits
    assert got.dtype == dtype
    assert (got - best).abs().max() <= 2 * (want - best).abs().max()


def test_errors(tmp_path):
    settings, store, kind = CASES["gptq"]
    write(tmp_path, llama(), settings, store, **kind)
    config = json.loads((tmp_path / "config.json").read_text())

    def fails(message, **changes):
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(ArgumentValueError, match=message):
            disc.checkpoints.load(tmp_path)

    fails("is not quantised", quantization_config=None)
    fails("'hqq' is not read", quantization_config={"quant_method": "hqq"})
    fails("'marlin'", quantization_config=gptq(4, 128, checkpoint_format="marlin"))
    fails("version 'gemv'", quantization_config=AWQ | {"version": "GEMV"})
    fails("'nvfp4", quantization_config=compressed(group(4, 32, True), written="nvfp4-pack-quantized"))
    fails(r"lacks model\.layers\.2", num_hidden_layers=3)
    fails(r"no linear layer for model\.layers\.1\.", num_hidden_layers=1)
    with pytest.raises(ArgumentValueError, match="dtype"):
        disc.checkpoints.load(tmp_path, dtype=torch.float64)
    with pytest.raises(OSError, match="nowhere"):
        disc.checkpoints.load(tmp_path / "nowhere")
