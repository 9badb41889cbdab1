"""Models of images, of sound, and of several kinds of input."""

from __future__ import annotations

from typing import Any

import torch

from .architecture import Architecture, Range, Tensor, boxes, mask, normal, tokens

_BATCH, _LENGTH = Range(1, 5), Range(1, 20)
_VIT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def _square(name: str, size: int = 32, auto: str = "AutoModel", **config: Any) -> Architecture:
    """An image of the size that its position embeddings have; the batch is dynamic."""
    return Architecture(
        name,
        "vision",
        config,
        {"pixel_values": normal("batch", 3, size, size)},
        {"batch": _BATCH},
        auto=auto,
        fixed="height and width: transformers refuses all but the configured image size",
    )


def _image(name: str, size: Range, auto: str = "AutoModel", **config: Any) -> Architecture:
    """An image of any size; batch, height and width are dynamic."""
    return Architecture(
        name,
        "vision",
        config,
        {"pixel_values": normal("batch", 3, "height", "width")},
        {"batch": _BATCH, "height": size, "width": size},
        auto=auto,
    )


_WAVE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": [16, 16, 16],
    "conv_stride": [5, 2, 2],
    "conv_kernel": [10, 3, 2],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 32,
}


def _wave(name: str, **config: Any) -> Architecture:
    """Samples of sound; batch and number of samples are dynamic."""
    return Architecture(
        name,
        "audio",
        {**_WAVE, **config},
        {"input_values": normal("batch", "samples")},
        {"batch": _BATCH, "samples": Range(200, 1200)},
        example={"samples": 700},
    )


VISION = [
    _square("vit", **_VIT),
    _square("deit", **_VIT),
    _square("beit", **_VIT, use_relative_position_bias=True, use_absolute_position_embeddings=False),
    _image("dinov2", Range(16, 64, 8), **{k: v for k, v in _VIT.items() if k != "intermediate_size"}),
    _image("dinov3_vit", Range(16, 64, 8), **_VIT, num_register_tokens=2),
    _image(
        "swin",
        Range(16, 96, 16),
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 4],
        window_size=4,
    ),
    _square("swinv2", image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4),
    _image("convnext", Range(32, 96), hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1]),
    _image("convnextv2", Range(32, 96), hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1]),
    _image("resnet", Range(16, 96), embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="bottleneck"),
    _image("regnet", Range(16, 96), embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8),
    _image("mobilenet_v1", Range(32, 96), depth_multiplier=0.25, min_depth=8, tf_padding=False),
    _image("mobilenet_v2", Range(32, 96), depth_multiplier=0.25, depth_divisible_by=8, min_depth=8, tf_padding=False),
    _image("efficientnet", Range(32, 128, 32), width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320),
    # It rounds height and width to patches with int(), which fixes them.
    _square(
        "mobilevit",
        64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 40],
        num_attention_heads=2,
        image_size=64,
    ),
    _image(
        "segformer",
        Range(32, 96),
        auto="AutoModelForSemanticSegmentation",
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[4, 2],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=32,
    ),
    _image("poolformer", Range(32, 96), hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1]),
    _square(
        "pvt_v2", hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], image_size=32
    ),
    _square(
        "levit",
        64,
        image_size=64,
        hidden_sizes=[16, 32, 48],
        num_attention_heads=[2, 2, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    ),
    _image(
        "detr",
        Range(64, 96),
        auto="AutoModelForObjectDetection",
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        num_queries=5,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config={
            "model_type": "resnet",
            "embedding_size": 16,
            "hidden_sizes": [16, 32],
            "depths": [1, 1],
            "out_features": ["stage2"],
        },
    ),
    _square("yolos", auto="AutoModelForObjectDetection", **{**_VIT, "image_size": [32, 32]}, num_detection_tokens=5),
    _square(
        "dpt",
        auto="AutoModelForDepthEstimation",
        **{**_VIT, "num_hidden_layers": 4},
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 16, 24, 32],
        fusion_hidden_size=24,
        reassemble_factors=[4, 2, 1, 0.5],
    ),
    _square(
        "hiera",
        image_size=[64, 64],
        size=64,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[1, 2],
        patch_stride=[4, 4],
        query_stride=[2, 2],
        masked_unit_size=[4, 4],
        num_query_pool=1,
    ),
    Architecture(
        "vit_mae",
        "vision",
        {**_VIT, "mask_ratio": 0.0},
        {"pixel_values": normal("batch", 3, 32, 32), "noise": normal("batch", 16)},
        {"batch": _BATCH},
        fixed="height and width: transformers refuses all but the configured image size",
    ),
    Architecture(
        "imagegpt",
        "vision",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 99, "use_cache": False},
        {"input_ids": tokens("batch", "length")},
        {"batch": _BATCH, "length": Range(1, 40)},
    ),
]

AUDIO = [
    _wave("wav2vec2"),
    _wave(
        "wav2vec2-conformer",
        position_embeddings_type="relative",
        conv_depthwise_kernel_size=7,
        max_source_positions=400,
    ),
    _wave("wav2vec2-conformer/rotary", position_embeddings_type="rotary", conv_depthwise_kernel_size=7),
    _wave("hubert"),
    _wave("wavlm"),
    _wave("unispeech"),
    _wave("data2vec-audio", conv_pos_kernel_size=7, num_conv_pos_embeddings=2),
    _wave("sew", squeeze_factor=2),
    Architecture(
        "audio-spectrogram-transformer",
        "audio",
        {
            **{k: v for k, v in _VIT.items() if k != "image_size"},
            "max_length": 64,
            "num_mel_bins": 32,
            "frequency_stride": 8,
            "time_stride": 8,
        },
        {"input_values": normal("batch", 64, 32)},
        {"batch": _BATCH},
        fixed="frames: position embeddings of the configured length are added",
    ),
    Architecture(
        "whisper",
        "encoder-decoder",
        {
            "vocab_size": 99,
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_source_positions": 20,
            "max_target_positions": 40,
            "num_mel_bins": 16,
            "use_cache": False,
            "pad_token_id": 2,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "decoder_start_token_id": 2,
        },
        {"input_features": normal("batch", 16, 40), "decoder_input_ids": tokens("batch", "target")},
        {"batch": _BATCH, "target": Range(1, 30)},
        auto="AutoModelForSpeechSeq2Seq",
        fixed="frames: transformers refuses all but the configured number",
    ),
    Architecture(
        "whisper/encoder",
        "audio",
        {
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_layers": 1,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 64,
            "vocab_size": 99,
            "pad_token_id": 2,
            "max_source_positions": 20,
            "num_mel_bins": 16,
        },
        {"input_features": normal("batch", 16, 40)},
        {"batch": _BATCH},
        part="encoder",
        fixed="frames: transformers refuses all but the configured number",
    ),
    Architecture(
        "speech_to_text",
        "encoder-decoder",
        {
            "vocab_size": 99,
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_source_positions": 100,
            "max_target_positions": 40,
            "input_feat_per_channel": 16,
            "conv_channels": 16,
            "use_cache": False,
            "pad_token_id": 2,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "decoder_start_token_id": 2,
        },
        {"input_features": normal("batch", "frames", 16), "decoder_input_ids": tokens("batch", "target")},
        {"batch": _BATCH, "frames": Range(8, 90), "target": Range(1, 30)},
        auto="AutoModelForSpeechSeq2Seq",
    ),
    Architecture(
        "wav2vec2-bert",
        "audio",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "feature_projection_input_dim": 16,
            "conv_depthwise_kernel_size": 7,
            "vocab_size": 32,
        },
        {"input_features": normal("batch", "frames", 16)},
        {"batch": _BATCH, "frames": Range(2, 60)},
    ),
    Architecture(
        "encodec",
        "audio",
        {
            "num_filters": 4,
            "upsampling_ratios": [4, 2],
            "codebook_size": 16,
            "codebook_dim": 16,
            "hidden_size": 16,
            "num_residual_layers": 1,
            "kernel_size": 3,
        },
        {"hidden_states": normal("batch", 1, "samples")},
        {"batch": _BATCH, "samples": Range(64, 320, 8)},
        part="encoder",
    ),
]

_TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
    "bos_token_id": 0,
    "eos_token_id": 98,
    "pad_token_id": 1,
    "projection_dim": 32,
}
_EYE = {**_VIT, "num_hidden_layers": 1, "projection_dim": 32}
_PAIR: dict[str, Tensor] = {
    "input_ids": tokens("texts", "length"),
    "pixel_values": normal("images", 3, 32, 32),
    "attention_mask": mask("texts", "length"),
}
_BOXED = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "max_2d_position_embeddings": 1024,
}

MULTIMODAL = [
    Architecture(
        "clip",
        "multimodal",
        {"text_config": _TEXT, "vision_config": _EYE, "projection_dim": 32},
        _PAIR,
        {"texts": _BATCH, "images": _BATCH, "length": _LENGTH},
    ),
    Architecture(
        "siglip",
        "multimodal",
        {"text_config": {k: v for k, v in _TEXT.items() if k != "projection_dim"}, "vision_config": _EYE},
        {**_PAIR, "input_ids": tokens("texts", "length"), "attention_mask": mask("texts", "length")},
        {"texts": _BATCH, "images": _BATCH, "length": _LENGTH},
    ),
    Architecture(
        "blip",
        "multimodal",
        {"text_config": {**_TEXT, "encoder_hidden_size": 32}, "vision_config": _EYE, "projection_dim": 32},
        _PAIR,
        {"texts": _BATCH, "images": _BATCH, "length": _LENGTH},
    ),
    Architecture(
        "altclip",
        "multimodal",
        {"text_config": {**_TEXT, "project_dim": 32}, "vision_config": _EYE, "projection_dim": 32},
        _PAIR,
        {"texts": _BATCH, "images": _BATCH, "length": _LENGTH},
    ),
    Architecture(
        "clipseg",
        "multimodal",
        {"text_config": _TEXT, "vision_config": {**_EYE, "image_size": 32}, "projection_dim": 32},
        _PAIR,
        {"texts": _BATCH, "images": _BATCH, "length": _LENGTH},
    ),
    Architecture(
        "owlvit",
        "multimodal",
        {"text_config": {**_TEXT, "max_position_embeddings": 16}, "vision_config": _EYE, "projection_dim": 32},
        {
            "input_ids": tokens("batch", 16),
            "pixel_values": normal("batch", 3, 32, 32),
            "attention_mask": mask("batch", 16),
        },
        {"batch": _BATCH},
    ),
    Architecture(
        "layoutlm",
        "multimodal",
        _BOXED,
        {
            "input_ids": tokens("batch", "length"),
            "bbox": boxes("batch", "length", 4),
            "attention_mask": mask("batch", "length"),
        },
        {"batch": _BATCH, "length": Range(1, 40)},
    ),
    Architecture(
        "layoutlmv3",
        "multimodal",
        {
            **_BOXED,
            "coordinate_size": 5,
            "shape_size": 6,
            "input_size": 32,
            "patch_size": 8,
            "rel_pos_bins": 8,
            "rel_2d_pos_bins": 8,
            "max_rel_pos": 16,
            "max_rel_2d_pos": 16,
        },
        {
            "input_ids": tokens("batch", "length"),
            "bbox": boxes("batch", "length", 4),
            "attention_mask": mask("batch", "length"),
            "pixel_values": normal("batch", 3, 32, 32),
        },
        {"batch": _BATCH, "length": Range(1, 40)},
    ),
    Architecture(
        "vilt",
        "multimodal",
        {**_VIT, "vocab_size": 99, "max_position_embeddings": 40, "max_image_length": -1},
        {
            "input_ids": tokens("batch", "length"),
            "attention_mask": mask("batch", "length"),
            "pixel_values": normal("batch", 3, 32, 32),
        },
        {"batch": _BATCH, "length": _LENGTH},
    ),
    Architecture(
        "git",
        "multimodal",
        {**_TEXT, "num_hidden_layers": 2, "vision_config": _EYE, "use_cache": False},
        {
            "input_ids": tokens("batch", "length"),
            "attention_mask": mask("batch", "length"),
            "pixel_values": normal("batch", 3, 32, 32),
        },
        {"batch": _BATCH, "length": _LENGTH},
        auto="AutoModelForCausalLM",
    ),
    Architecture(
        "bridgetower",
        "multimodal",
        {
            "hidden_size": 32,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "text_config": {
                "vocab_size": 99,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "intermediate_size": 64,
                "max_position_embeddings": 64,
            },
            "vision_config": {"hidden_size": 64, "num_hidden_layers": 2, "patch_size": 8, "image_size": 32},
        },
        {
            "input_ids": tokens("batch", "length"),
            "attention_mask": mask("batch", "length"),
            "pixel_values": normal("batch", 3, 32, 32),
            "pixel_mask": Tensor(("batch", 32, 32), lambda s, g: torch.ones(*s, dtype=torch.int64)),
        },
        {"batch": _BATCH, "length": _LENGTH},
    ),
    Architecture(
        "lxmert",
        "multimodal",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "l_layers": 1,
            "x_layers": 1,
            "r_layers": 1,
            "visual_feat_dim": 16,
            "max_position_embeddings": 64,
        },
        {
            "input_ids": tokens("batch", "length"),
            "visual_feats": normal("batch", "regions", 16),
            "visual_pos": normal("batch", "regions", 4),
            "attention_mask": mask("batch", "length"),
        },
        {"batch": _BATCH, "length": _LENGTH, "regions": Range(1, 12)},
    ),
    Architecture(
        "visual_bert",
        "multimodal",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "visual_embedding_dim": 16,
            "max_position_embeddings": 64,
        },
        {
            "input_ids": tokens("batch", "length"),
            "attention_mask": mask("batch", "length"),
            "visual_embeds": normal("batch", "regions", 16),
        },
        {"batch": _BATCH, "length": _LENGTH, "regions": Range(1, 12)},
    ),
]

OTHER = [
    Architecture(
        "decision_transformer",
        "other",
        {
            "state_dim": 7,
            "act_dim": 3,
            "hidden_size": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 128,
            "max_ep_len": 64,
        },
        {
            "states": normal("batch", "length", 7),
            "actions": normal("batch", "length", 3),
            "rewards": normal("batch", "length", 1),
            "returns_to_go": normal("batch", "length", 1),
            "timesteps": tokens("batch", "length", low=0, count=64),
            "attention_mask": mask("batch", "length"),
        },
        {"batch": _BATCH, "length": _LENGTH},
    ),
    Architecture(
        "patchtst",
        "other",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "num_hidden_layers": 2,
            "d_model": 32,
            "num_attention_heads": 4,
            "ffn_dim": 64,
        },
        {"past_values": normal("batch", 32, 3)},
        {"batch": _BATCH},
    ),
]
