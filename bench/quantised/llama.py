"""Measures a language model from a GGUF file against llama.cpp, which runs the same file: tokens for each second.

python -m bench.quantised.llama model.gguf                  # one thread
python -m bench.quantised.llama model.gguf --threads 2 --past 0 1024 --prompt 32 512
python -m bench.quantised.llama --write Q4_0 model.gguf     # a random model of 1.1 billion parameters first

Both engines run in one process, in turns; the lowest time of several rounds counts. Needs the extra `gguf`, and
llama-cpp-python, built for this machine (CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import disc
import disc.gguf

from .__main__ import lowest

ROUNDS = 3
LAYERS, WIDTH, INNER, HEADS, KEYS, VOCABULARY = 22, 2048, 5632, 32, 4, 32000


def write(path: Path, name: str) -> None:
    """A random model like Llama, with 1.1 billion parameters, in a format that the gguf package writes."""
    import gguf

    kind, rng = gguf.GGMLQuantizationType[name], np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random")
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{name}"])
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    writer.add_token_list([*special, *(f"t{i}" for i in range(VOCABULARY - len(special)))])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (VOCABULARY - len(special)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = rng.standard_normal((rows, columns), dtype=np.float32) * 0.02
        writer.add_tensor(f"{name}.weight", gguf.quantize(values, kind), raw_dtype=kind)

    matrix("token_embd", VOCABULARY, WIDTH)
    matrix("output", VOCABULARY, WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    keys = KEYS * WIDTH // HEADS
    shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (keys, WIDTH), "attn_v": (keys, WIDTH), "attn_output": (WIDTH, WIDTH)}
    shapes |= {"ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            matrix(f"blk.{layer}.{name}", *shape)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def in_turns(engines: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The lowest time of each, in seconds."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, run in engines.items():
            best[name] = min(best.get(name, float("inf")), lowest(run, seconds / ROUNDS))
    return best


def line(title: str, tokens: int, times: dict[str, float]) -> str:
    """A row of the table: tokens for each second of both, and how much faster DISC is."""
    rates = " | ".join(f"{tokens / t:.1f}" for t in times.values())
    return f"| {title} | {rates} | {times['llama.cpp'] / times['DISC']:.2f} |"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.quantised.llama",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--write", metavar="FORMAT", help="writes a random model first: Q4_0, Q8_0, ...")
    parser.add_argument("--threads", type=int, default=1, help="of both engines (default: 1)")
    parser.add_argument("--past", type=int, nargs="*", default=[0, 128, 1024, 4096], help="tokens before a step")
    parser.add_argument("--prompt", type=int, nargs="*", default=[32, 128, 512], help="tokens of prompts")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each engine for each row (default: 3)")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="of DISC (default: f32)")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.write:
        write(options.path, options.write)
    from llama_cpp import Llama
    from transformers.cache_utils import DynamicCache

    longest = max([1, *options.past, *options.prompt]) + 64
    peer = Llama(
        str(options.path),
        n_ctx=longest,
        n_threads=options.threads,
        n_threads_batch=options.threads,
        verbose=False,
    )
    model: Any = disc.gguf.load(options.path)
    lm = disc.hf.compile_causal_lm(model, options=disc.Options(threads=options.threads, precision=options.precision))
    rng = np.random.default_rng(0)

    def prompt(length: int) -> list[int]:
        numbers: list[int] = rng.integers(3, peer.n_vocab(), length).tolist()
        return numbers

    def step(cache: Any, past: int) -> Any:
        for layer in cache.layers:
            layer.filled = past
        return lm(torch.tensor([[17]]), past_key_values=cache if past else None, logits_to_keep=1)

    def peer_step(past: int) -> None:
        peer.n_tokens = past
        peer.eval([17])

    def peer_prompt(tokens: list[int]) -> None:
        peer.reset()
        peer.eval(tokens)

    print(f"| {options.path.name}, threads: {options.threads} | DISC tokens/s | llama.cpp tokens/s | ratio |")
    print("|---|--:|--:|--:|")
    with torch.inference_mode():
        for past in options.past:
            cache = DynamicCache(config=model.config)
            peer.reset()
            if past:
                tokens = prompt(past)
                lm(torch.tensor([tokens]), past_key_values=cache, logits_to_keep=1)
                peer.eval(tokens)
            engines = {"DISC": partial(step, cache, past), "llama.cpp": partial(peer_step, past)}
            print(line(f"a token after {past}", 1, in_turns(engines, options.seconds)), flush=True)
        for length in options.prompt:
            tokens = prompt(length)
            ours = partial(lm, torch.tensor([tokens]), logits_to_keep=1)
            engines = {"DISC": ours, "llama.cpp": partial(peer_prompt, tokens)}
            print(line(f"a prompt of {length}", length, in_turns(engines, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
