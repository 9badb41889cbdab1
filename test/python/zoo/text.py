"""Encoders, decoders and encoder-decoders of text."""

from __future__ import annotations

from typing import Any

from .architecture import Architecture, Range, mask, tokens

_BATCH, _LENGTH = Range(1, 6), Range(1, 40)

# The names most configurations agree on.
_COMMON: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def _encoder(name: str, length: Range = _LENGTH, drop: tuple[str, ...] = (), **config: Any) -> Architecture:
    """Ids and a padding mask in; batch and length dynamic."""
    common = {k: v for k, v in _COMMON.items() if k not in drop}
    return Architecture(
        name,
        "encoder",
        {**common, "max_position_embeddings": 64, **config}
        if "max_position_embeddings" not in drop
        else {**common, **config},
        {"input_ids": tokens("batch", "length"), "attention_mask": mask("batch", "length")},
        {"batch": _BATCH, "length": length},
    )


def _decoder(
    name: str,
    drop: tuple[str, ...] = (),
    auto: str = "AutoModelForCausalLM",
    length: Range = _LENGTH,
    **config: Any,
) -> Architecture:
    """Ids and a padding mask in, logits out; batch and length dynamic."""
    common = {k: v for k, v in _COMMON.items() if k not in drop}
    return Architecture(
        name,
        "decoder",
        {**common, "use_cache": False, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, **config},
        {"input_ids": tokens("batch", "length"), "attention_mask": mask("batch", "length")},
        {"batch": _BATCH, "length": length},
        auto=auto,
    )


def _grouped(name: str, **config: Any) -> Architecture:
    """A decoder of the Llama family, with fewer heads of keys than of queries."""
    return _decoder(name, **{"num_key_value_heads": 2, "max_position_embeddings": 64, **config})


def _seq2seq(name: str, source: Range = _LENGTH, auto: str = "AutoModelForSeq2SeqLM", **config: Any) -> Architecture:
    return Architecture(
        name,
        "encoder-decoder",
        {"use_cache": False, "vocab_size": 99, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, **config},
        {
            "input_ids": tokens("batch", "source"),
            "attention_mask": mask("batch", "source"),
            "decoder_input_ids": tokens("batch", "target"),
        },
        {"batch": _BATCH, "source": source, "target": Range(1, 30)},
        auto=auto,
    )


_BART = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4}

ENCODERS = [
    _encoder("bert"),
    _encoder("roberta", pad_token_id=1),
    _encoder(
        "distilbert",
        dim=32,
        hidden_dim=64,
        n_layers=2,
        n_heads=4,
        drop=("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    ),
    _encoder("electra", embedding_size=24),
    _encoder("albert", embedding_size=16),
    _encoder("mpnet"),
    _encoder("deberta", relative_attention=True, pos_att_type=["c2p", "p2c"], position_biased_input=False),
    _encoder(
        "deberta-v2",
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
    ),
    _encoder("modernbert", global_attn_every_n_layers=2, local_attention=8, pad_token_id=2),
    _encoder("roformer", embedding_size=32),
    _encoder(
        "squeezebert",
        embedding_size=32,
        q_groups=2,
        k_groups=2,
        v_groups=2,
        post_attention_groups=1,
        intermediate_groups=2,
        output_groups=2,
    ),
    Architecture(
        "fnet",
        "encoder",
        {**_COMMON, "max_position_embeddings": 64},
        {"input_ids": tokens("batch", "length")},
        {"batch": _BATCH, "length": _LENGTH},
    ),
    _encoder("convbert", embedding_size=32, conv_kernel_size=3, head_ratio=2),
    _encoder(
        "mobilebert", embedding_size=32, intra_bottleneck_size=16, true_hidden_size=16, num_feedforward_networks=2
    ),
    _encoder("esm", pad_token_id=1, mask_token_id=4, position_embedding_type="rotary", token_dropout=True),
    _encoder(
        "xlnet",
        # The relative positions of one token alone are an exception in its code.
        Range(2, 40),
        d_model=32,
        n_layer=2,
        n_head=4,
        d_inner=64,
        drop=(
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
        ),
    ),
    _encoder("nystromformer", num_landmarks=64, segment_means_seq_len=64),
    _encoder("longformer", attention_window=8, pad_token_id=1),
    _encoder(
        "reformer",
        Range(8, 32, 8),
        is_decoder=False,
        axial_pos_embds=False,
        attn_layers=["local"],
        local_attn_chunk_length=4,
        attention_head_size=8,
        feed_forward_size=64,
        pad_token_id=2,
        use_cache=False,
        drop=("num_hidden_layers", "intermediate_size"),
    ),
    _encoder("big_bird", block_size=4, num_random_blocks=1, attention_type="original_full"),
    _encoder("ibert"),
    _encoder("eurobert", num_key_value_heads=2, pad_token_id=2),
    _encoder("splinter"),
]

DECODERS = [
    _decoder(
        "gpt2",
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        drop=("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    ),
    _decoder(
        "gpt_neo",
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=8,
        max_position_embeddings=64,
        drop=("num_hidden_layers", "num_attention_heads"),
    ),
    _decoder(
        "gptj",
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        rotary_dim=4,
        drop=("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    ),
    _decoder("gpt_neox", max_position_embeddings=64),
    _decoder(
        "codegen",
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        rotary_dim=4,
        drop=("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    ),
    _decoder("opt", ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=64, drop=("intermediate_size",)),
    _decoder("bloom", n_layer=2, n_head=4, drop=("num_hidden_layers", "num_attention_heads", "intermediate_size")),
    _decoder(
        "mpt",
        d_model=32,
        n_layers=2,
        n_heads=4,
        max_seq_len=64,
        drop=("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    ),
    _decoder("falcon", new_decoder_architecture=True, num_kv_heads=2, drop=("intermediate_size",)),
    _grouped("llama"),
    _grouped("mistral", sliding_window=8),
    _grouped("qwen2"),
    _grouped("qwen3", head_dim=8),
    _grouped("gemma", head_dim=8),
    _grouped("gemma2", head_dim=8, sliding_window=8, query_pre_attn_scalar=8),
    _grouped(
        "gemma3_text",
        head_dim=8,
        sliding_window=8,
        query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention"],
    ),
    _grouped("phi", partial_rotary_factor=0.5),
    _grouped("phi3", original_max_position_embeddings=64),
    _grouped("stablelm"),
    _grouped("starcoder2", sliding_window=8),
    _grouped("olmo2"),
    _grouped("cohere"),
    _grouped("granite"),
    _grouped("nemotron"),
    _grouped("glm", head_dim=8),
    _grouped("smollm3"),
    _grouped(
        "deepseek_v3",
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=32,
        first_k_dense_replace=1,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        num_key_value_heads=4,
    ),
    _grouped("mixtral", num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    _grouped(
        "qwen2_moe",
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        decoder_sparse_step=1,
    ),
    _grouped("qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, head_dim=8),
    _grouped("olmoe", num_experts=4, num_experts_per_tok=2),
    _grouped("gpt_oss", num_local_experts=4, num_experts_per_tok=2, head_dim=8, sliding_window=8),
    _grouped(
        "minimax",
        head_dim=8,
        num_local_experts=4,
        num_experts_per_tok=2,
        block_size=8,
        layer_types=["linear_attention", "full_attention"],
    ),
    _decoder("mamba", state_size=8, drop=("num_attention_heads", "intermediate_size")),
    _decoder(
        "mamba2",
        state_size=8,
        num_heads=8,
        head_dim=8,
        expand=2,
        n_groups=2,
        chunk_size=16,
        drop=("num_attention_heads", "intermediate_size"),
    ),
    _grouped(
        "zamba",
        num_hidden_layers=4,
        attn_layer_period=2,
        attn_layer_offset=1,
        n_mamba_heads=2,
        mamba_d_state=8,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
        layers_block_type=["mamba", "hybrid"] * 2,
        num_key_value_heads=4,
    ),
    _grouped(
        "zamba2",
        num_hidden_layers=4,
        layers_block_type=["mamba", "hybrid"] * 2,
        mamba_d_state=8,
        mamba_ngroups=1,
        n_mamba_heads=4,
        num_mem_blocks=1,
        hybrid_layer_ids=[1, 3],
        num_key_value_heads=4,
        chunk_size=16,
        use_mamba_kernels=False,
        mamba_headdim=16,
    ),
    _decoder("rwkv", attention_hidden_size=32, context_length=64, drop=("num_attention_heads",)),
    _grouped("recurrent_gemma", lru_width=32, attention_window_size=8, block_types=["recurrent", "attention"]),
    # Of one token it makes no mask: None is no other kind of tensor.
    _grouped("lfm2", length=Range(2, 40), layer_types=["conv", "full_attention"]),
]

SEQ2SEQ = [
    _seq2seq("t5", **_T5),
    _seq2seq("mt5", **_T5, feed_forward_proj="gated-gelu"),
    # Whole blocks of local attention: it pads others, which is another path through its code.
    _seq2seq("longt5", Range(5, 40, 5), **_T5, local_radius=4, encoder_attention_type="local"),
    _seq2seq("switch_transformers", **_T5, num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1),
    _seq2seq("nllb-moe", **_BART, num_experts=4, encoder_sparse_step=1, decoder_sparse_step=1),
    _seq2seq("bart", **_BART),
    _seq2seq("mbart", **_BART),
    _seq2seq("pegasus", **_BART),
    _seq2seq("marian", **_BART, decoder_vocab_size=99),
    _seq2seq("blenderbot", **_BART),
    _seq2seq("m2m_100", **_BART),
    _seq2seq(
        "prophetnet",
        hidden_size=32,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        ngram=2,
        decoder_start_token_id=2,
    ),
]
