"""Language models that see images, and models that find things in images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .architecture import Architecture, Range, Tensor, mask, normal, tokens
from .media import _BATCH, _EYE, _LENGTH, _VIT
from .text import _BART, _COMMON

_IMAGE, _BEGIN, _END = 98, 95, 96
"""The tokens that stand for a part of an image, and those around them."""
_LANGUAGE: dict[str, Any] = {
    **_COMMON,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "use_cache": False,
}
_LLAMA = {"model_type": "llama", **_LANGUAGE}
_CLIP = {"model_type": "clip_vision_model", **_VIT}
_SIGLIP = {"model_type": "siglip_vision_model", **_VIT, "vision_use_head": False}


def _with_image(count: int) -> Tensor:
    """Texts with an image in each, which has so many tokens."""

    def fill(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        ids = torch.randint(3, 90, tuple(shape), generator=generator)
        ids[:, 1], ids[:, 2 : 2 + count], ids[:, 2 + count] = _BEGIN, _IMAGE, _END
        return ids

    return Tensor(("batch", "length"), fill)


def _kinds(count: int) -> Tensor:
    """1 for the tokens of the image."""

    def fill(shape: Sequence[int], _: torch.Generator) -> torch.Tensor:
        place = torch.arange(shape[1])
        return ((place > 1) & (place < 2 + count)).long().expand(*shape).clone()

    return Tensor(("batch", "length"), fill)


def _padded_behind(count: int) -> Tensor:
    """A mask of rows of different lengths: the image is in all of them."""

    def fill(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        lengths = torch.randint(count + 3, shape[1] + 1, (shape[0], 1), generator=generator)
        return (torch.arange(shape[1]) < lengths).long()

    return Tensor(("batch", "length"), fill)


def _pair(
    name: str,
    count: int,
    pixels: Tensor | None = None,
    auto: str = "AutoModelForImageTextToText",
    extra: dict[str, Tensor] | None = None,
    **config: Any,
) -> Architecture:
    """An image and a text of any length in each row of a batch of any size."""
    return Architecture(
        name,
        "vision-language",
        config,
        {
            "input_ids": _with_image(count),
            "attention_mask": _padded_behind(count),
            "pixel_values": pixels or normal("batch", 3, 32, 32),
            **(extra or {}),
        },
        {"batch": _BATCH, "length": Range(24, 40)},
        auto=auto,
    )


def _qwen(name: str, text: dict[str, Any], **vision: Any) -> Architecture:
    """Images as sequences of patches, each of its own height and width."""
    grids = [[1, 4, 6], [1, 6, 4], [1, 2, 12]]
    patches, count = 24, 6
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0, **text.pop("rope", {})}

    def sizes(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
        return torch.tensor(grids)[torch.randint(0, 3, (shape[0],), generator=generator)]

    return _pair(
        name,
        count,
        normal((patches, "batch"), 3 * 2 * 8 * 8),
        extra={"image_grid_thw": Tensor(("batch", 3), sizes), "mm_token_type_ids": _kinds(count)},
        text_config={"model_type": f"{name}_text", **_LANGUAGE, "rope_parameters": rope, **text},
        vision_config={
            "depth": 2,
            "num_heads": 2,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "hidden_size": 32,
            **vision,
        },
        image_token_id=_IMAGE,
        video_token_id=94,
        vision_start_token_id=_BEGIN,
        vision_end_token_id=_END,
    )


def _sizes_of_images(shape: Sequence[int], _: torch.Generator) -> torch.Tensor:
    return torch.tensor([[[32, 32], [32, 16], [16, 32]][n % 3] for n in range(shape[0])])


def _with_images_of_sizes(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    ids = torch.randint(3, 90, tuple(shape), generator=generator)
    for row, (height, width) in enumerate(_sizes_of_images(shape, generator).tolist()):
        ids[row, 1 : 1 + height * width // 256] = _IMAGE
    return ids


_QWEN_2_5 = {"out_hidden_size": 32, "intermediate_size": 64, "window_size": 32, "fullatt_block_indexes": [1]}
_QWEN_3 = {
    "out_hidden_size": 32,
    "intermediate_size": 64,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
}
_PIXTRAL = {"model_type": "pixtral", **_VIT, "head_dim": 8}

VISION_LANGUAGE = [
    _pair("llava", 16, text_config=_LLAMA, vision_config=_CLIP, image_token_index=_IMAGE, vision_feature_layer=-1),
    _pair(
        "vipllava",
        16,
        text_config=_LLAMA,
        vision_config=_CLIP,
        image_token_index=_IMAGE,
        vision_feature_layers=[-1, -2],
    ),
    _pair(
        "paligemma",
        16,
        # Without the kinds its causal mask depends on whether there is padding.
        extra={"token_type_ids": Tensor(("batch", "length"), lambda s, g: torch.randint(0, 2, tuple(s), generator=g))},
        text_config={"model_type": "gemma", **_LANGUAGE, "head_dim": 8},
        vision_config={**_SIGLIP, "projection_dim": 32},
        image_token_index=_IMAGE,
        projection_dim=32,
    ),
    _pair(
        "gemma3",
        4,
        text_config={
            "model_type": "gemma3_text",
            **_LANGUAGE,
            "head_dim": 8,
            "sliding_window": 8,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        vision_config=_SIGLIP,
        image_token_index=_IMAGE,
        mm_tokens_per_image=4,
    ),
    _pair(
        "internvl",
        4,
        text_config={"model_type": "qwen2", **_LANGUAGE},
        vision_config={"model_type": "internvl_vision", **_VIT, "image_size": [32, 32], "patch_size": [8, 8]},
        image_token_id=_IMAGE,
        downsample_ratio=0.5,
        vision_feature_layer=-1,
    ),
    _pair(
        "idefics3",
        4,
        normal("batch", 1, 3, 32, 32),
        text_config=_LLAMA,
        vision_config={"model_type": "idefics3_vision", **_VIT},
        image_token_id=_IMAGE,
        scale_factor=2,
        pad_token_id=2,
    ),
    _qwen("qwen2_vl", {}, embed_dim=32, mlp_ratio=2),
    _qwen("qwen2_5_vl", {}, **_QWEN_2_5),
    _qwen("qwen3_vl", {"head_dim": 8, "rope": {"mrope_interleaved": True}}, **_QWEN_3),
    Architecture(
        "mistral3",
        "vision-language",
        {
            "text_config": {"model_type": "mistral", **_LANGUAGE, "head_dim": 8},
            "vision_config": _PIXTRAL,
            "image_token_index": _IMAGE,
            "spatial_merge_size": 2,
            "vision_feature_layer": -1,
        },
        {
            "input_ids": Tensor(("batch", "length"), _with_images_of_sizes),
            "attention_mask": mask("batch", "length"),
            "pixel_values": normal("batch", 3, 32, 32),
            "image_sizes": Tensor(("batch", 2), _sizes_of_images),
        },
        {"batch": _BATCH, "length": Range(24, 40)},
        auto="AutoModelForImageTextToText",
    ),
    _pair(
        "blip-2",
        4,
        auto="Blip2ForConditionalGeneration",
        vision_config=_VIT,
        qformer_config={**_COMMON, "encoder_hidden_size": 32},
        text_config={
            "model_type": "opt",
            "vocab_size": 99,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "word_embed_proj_dim": 32,
            "max_position_embeddings": 64,
            "use_cache": False,
        },
        num_query_tokens=4,
        image_token_index=_IMAGE,
    ),
    Architecture(
        "florence2",
        "vision-language",
        {
            "vision_config": {
                "embed_dim": [16] * 4,
                "depths": [1] * 4,
                "num_heads": [2] * 4,
                "num_groups": [2] * 4,
                "window_size": 4,
                "projection_dim": 32,
                "drop_path_rate": 0.0,
            },
            "text_config": {"model_type": "bart", **_BART, "vocab_size": 99, "use_cache": False},
            "image_token_id": _IMAGE,
        },
        {
            "input_ids": _with_image(5),
            "pixel_values": normal("batch", 3, 64, 64),
            "decoder_input_ids": tokens("batch", "target"),
        },
        {"batch": _BATCH, "length": Range(24, 40), "target": _LENGTH},
        auto="AutoModelForImageTextToText",
    ),
]

_DETECTOR: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_queries": 5,
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
}

DETECTION = [
    Architecture(
        "deformable_detr",
        "vision",
        {
            **_DETECTOR,
            "num_feature_levels": 2,
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 16,
                "hidden_sizes": [16, 32],
                "depths": [1, 1],
                "out_features": ["stage1", "stage2"],
            },
        },
        {"pixel_values": normal("batch", 3, "height", "width")},
        {"batch": _BATCH, "height": Range(64, 96), "width": Range(64, 96)},
        auto="AutoModelForObjectDetection",
    ),
    Architecture(
        "grounding-dino",
        "vision-language",
        {
            **_DETECTOR,
            "num_feature_levels": 3,
            "fusion_dim": 32,
            "max_text_len": 32,
            "backbone_config": {
                "model_type": "swin",
                "image_size": 64,
                "patch_size": 4,
                "embed_dim": 16,
                "depths": [1, 1, 1],
                "num_heads": [2, 2, 2],
                "window_size": 4,
                "out_features": ["stage2", "stage3"],
            },
            "text_config": {"model_type": "bert", **_COMMON, "max_position_embeddings": 64},
        },
        {
            "pixel_values": normal("batch", 3, 64, 64),
            "input_ids": tokens("batch", "length"),
            "attention_mask": mask("batch", "length"),
        },
        {"batch": _BATCH, "length": Range(3, 20)},
        auto="AutoModelForZeroShotObjectDetection",
    ),
    Architecture(
        "sam",
        "vision",
        {
            "vision_config": {
                **_EYE,
                "num_hidden_layers": 2,
                "image_size": 64,
                "output_channels": 16,
                "window_size": 2,
                "global_attn_indexes": [1],
                "mlp_dim": 64,
                "num_pos_feats": 8,
            },
            "prompt_encoder_config": {
                "hidden_size": 16,
                "image_size": 64,
                "patch_size": 8,
                "mask_input_channels": 4,
            },
            "mask_decoder_config": {
                "hidden_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "mlp_dim": 32,
                "iou_head_hidden_dim": 16,
            },
        },
        {
            "pixel_values": normal("batch", 3, 64, 64),
            "input_points": Tensor(("batch", 1, "points", 2), lambda s, g: torch.rand(*s, generator=g) * 64),
        },
        {"batch": _BATCH, "points": Range(1, 5)},
    ),
]
