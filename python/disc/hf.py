"""Language models of the transformers package, compiled for generation: ``disc.hf.compile_causal_lm(model)``.

One compiled model serves the prompt and every step after it, at any batch size, prompt length and cache length.
``generate`` is transformers' own, so its sampling, stopping criteria and streamers work as with the original model.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import Dim

from .compiler import compile
from .errors import ArgumentTypeError, ArgumentValueError, CallError
from .model import Model
from .options import Options

# What a call may have beside the compiled model's own inputs, with the values that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "use_cache": (None, True),
    "return_dict": (None, True),
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
    "output_router_logits": (None, False),
    "token_type_ids": (None,),
    "inputs_embeds": (None,),
    "labels": (None,),
    "head_mask": (None,),
}
_ATTENTION = ("sdpa", "eager")


def compile_causal_lm(
    model: Any,
    *,
    max_length: int | None = None,
    batch: int | tuple[int, int] | None = None,
    target: str | None = None,
    options: Options | None = None,
) -> CausalLM:
    """Compiles a causal language model of transformers once, for prompts and steps.

    >>> lm = disc.hf.compile_causal_lm(AutoModelForCausalLM.from_pretrained(name))
    >>> lm.generate(**tokenizer("Once upon a time", return_tensors="pt"), max_new_tokens=50)

    Args:
        model: a ``...ForCausalLM`` whose layers keep all keys and values (a ``DynamicCache`` without sliding windows).
        max_length: the most tokens of a sequence, the prompt included; None means what the model's configuration says.
        batch: the number of sequences of a call, or its least and greatest value; None means any size.
        target: as for :func:`disc.compile`.
        options: as for :func:`disc.compile`.

    Returns:
        a :class:`CausalLM`. It uses the original model's weights, and puts that model into evaluation mode.

    Raises:
        ArgumentTypeError: the model is not a causal language model of transformers, or its cache or attention is of
            another kind.
        ArgumentValueError: a limit is out of range.
        CompileError: as :func:`disc.compile`.
    """
    if not callable(getattr(model, "generate", None)) or not hasattr(model, "config"):
        raise ArgumentTypeError(
            f"model: expected a causal language model of transformers, got {type(model).__name__}; compile other models"
            " with disc.compile"
        )
    known = getattr(model.config, "max_position_embeddings", None)
    longest = max_length if max_length is not None else known
    if not isinstance(longest, int) or longest < 2:
        raise ArgumentValueError(f"max_length: expected a number of tokens, at least 2, got {longest!r}")
    least, most = batch if isinstance(batch, tuple) else (1 if batch is None else batch, batch)
    if not isinstance(least, int) or least < 1 or (most is not None and (not isinstance(most, int) or most < least)):
        raise ArgumentValueError(f"batch: expected a number from 1 on, or a minimum and a maximum, got {batch!r}")
    attention = getattr(model.config, "_attn_implementation", None)
    if attention not in _ATTENTION:
        raise ArgumentTypeError(
            f"model: expected attention of the kind {' or '.join(map(repr, _ATTENTION))}, got {attention!r}; load the"
            " model with attn_implementation='sdpa'"
        )
    step = _Step(model).eval()
    cache = step.empty_cache()
    size = least if least == most else Dim("batch", min=least, max=most) if most else Dim("batch", min=least)
    rows = {} if isinstance(size, int) else {0: size}
    example_rows = least if isinstance(size, int) else max(least, min(most or 3, 3))
    length, past = Dim("length", min=1, max=longest), Dim("past", min=0, max=longest - 1)
    args = _example(step, cache, example_rows)
    shapes = {
        "input_ids": {**rows, 1: length},
        "mask": {**rows, 1: length},
        "past_mask": {**rows, 1: past},
        "position_ids": {**rows, 1: length},
        "cache": {**rows, 2: past},
        "kept": {0: Dim("kept", min=1, max=longest)},
    }
    with torch.no_grad():
        compiled = compile(step, args, dynamic_shapes=shapes, target=target, options=options)
    return CausalLM(model, compiled, cache, longest)


class _Step(torch.nn.Module):
    """What is compiled: some tokens behind a cache of keys and values."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def forward(
        self,
        input_ids: torch.Tensor,
        mask: torch.Tensor,
        past_mask: torch.Tensor,
        position_ids: torch.Tensor,
        cache: Any,
        kept: torch.Tensor,
    ) -> Any:
        """Logits of the tokens whose numbers are ``kept``, and the cache with all tokens."""
        given = {"position_ids": position_ids} if self.takes_positions else {}
        past, length = past_mask.shape[1], mask.shape[1]
        keys, queries = torch.arange(past + length, device=mask.device), torch.arange(length, device=mask.device)
        causal = keys <= past + queries[:, None]
        # Padding attends to itself: a row without any key would be NaN, and spread by its key in the next layer.
        itself = keys == past + queries[:, None]
        allowed = torch.cat((past_mask, mask), dim=1)[:, None, None, :].bool() & causal | itself
        if self.model.config._attn_implementation == "eager":
            # It adds the mask to the scores.
            dtype = self.model.dtype
            allowed = torch.zeros_like(allowed, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)
        result = self.model(
            input_ids=input_ids,
            attention_mask=allowed,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=kept,
            return_dict=True,
            **given,
        )
        return result.logits, result.past_key_values

    def empty_cache(self) -> Any:
        """A cache without tokens; ArgumentTypeError if the model's is of a kind that does not grow token by token."""
        from transformers import cache_utils

        given = cache_utils.DynamicCache(config=self.model.config)
        token = torch.zeros(1, 1, dtype=torch.int64, device=self.model.device)
        with torch.no_grad():
            result = self.model(input_ids=token, past_key_values=given, use_cache=True, return_dict=True)
        cache: Any = getattr(result, "past_key_values", None)
        layers = getattr(cache, "layers", None)
        if type(cache) is not cache_utils.DynamicCache or not layers:
            raise ArgumentTypeError(
                f"model: {type(self.model).__name__} keeps a {type(cache).__name__}, not a DynamicCache; compile it"
                " with disc.compile and pass its cache as an argument"
            )
        for place, layer in enumerate(layers):
            if type(layer) is not cache_utils.DynamicLayer:
                raise ArgumentTypeError(
                    f"model: layer {place} of {type(self.model).__name__} keeps a {type(layer).__name__}, not a"
                    " DynamicLayer; compile it with disc.compile and pass its cache as an argument"
                )
        return _emptied(cache)


def _emptied(cache: Any) -> Any:
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, :0].contiguous(), layer.values[:, :, :0].contiguous()
    return cache


def _example(step: _Step, empty: Any, rows: int) -> tuple[Any, ...]:
    """Arguments for the compilation, with sizes that no two dims share."""
    length, past = 5, 7
    device = step.model.device
    cache = copy.deepcopy(empty)
    for layer in cache.layers:
        for name in ("keys", "values"):
            tensor = getattr(layer, name)
            setattr(layer, name, tensor.new_zeros(rows, tensor.shape[1], past, tensor.shape[3]))
    ids = torch.zeros(rows, length, dtype=torch.int64, device=device)
    positions = torch.arange(past, past + length, device=device).expand(rows, -1).contiguous()
    return ids, torch.ones_like(ids), ids.new_ones(rows, past), positions, cache, torch.arange(2, length, device=device)


class CausalLM:
    """A compiled causal language model: call it, or ``generate``, as the original.

    Attributes:
        model: the original model, whose weights are used.
        compiled: the :class:`disc.Model`, for :meth:`~disc.Model.profile`, :meth:`~disc.Model.memory` and others.
        max_length: the most tokens of a sequence.
    """

    def __init__(self, model: Any, compiled: Model, empty: Any, max_length: int) -> None:
        """``empty``: a cache without tokens. :func:`compile_causal_lm` makes these objects."""
        self.model, self.compiled, self.max_length = model, compiled, max_length
        self._empty = empty
        # transformers' own loop, which calls this object's forward.
        self._runner = copy.copy(model)

        @functools.wraps(model.forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return self(*args, **kwargs)

        self._runner.__dict__["forward"] = forward

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """``model.generate`` of transformers, with its arguments and results."""
        return self._runner.generate(*args, **kwargs)

    def __call__(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        logits_to_keep: int = 0,
        **kwargs: Any,
    ) -> Any:
        """The logits of some tokens, and the cache behind them, as the original model returns them.

        Args:
            input_ids: tokens, int64 [batch, length].
            attention_mask: 1 for tokens, 0 for padding, [batch, past + length]; None means no padding.
            position_ids: int64 [batch, length]; None counts all tokens before, padding included, as the original does.
            past_key_values: a ``DynamicCache`` of the tokens before, which gets the new ones; None means no tokens yet.
            logits_to_keep: how many of the last tokens have logits; 0 means all.
            **kwargs: other arguments of the original, with their default values.

        Returns:
            transformers' ``CausalLMOutputWithPast``.

        Raises:
            ArgumentValueError: more tokens than ``max_length``.
            CallError: an argument that the compiled model does not have.
            ShapeError: a batch size out of range.
        """
        from transformers import cache_utils
        from transformers.modeling_outputs import CausalLMOutputWithPast

        for name, value in kwargs.items():
            # The position in the cache follows from the cache itself.
            if name == "cache_position" or any(value is neutral for neutral in _NEUTRAL.get(name, (None,))):
                continue
            raise CallError(
                f"argument {name!r}: the compiled model does not have it, got {value!r}; call the original model"
            )
        if input_ids.dim() != 2:
            raise ArgumentValueError(
                f"input_ids: expected a tensor [batch, length], got one of the shape {list(input_ids.shape)}"
            )
        rows, length = input_ids.shape
        cache = cache_utils.DynamicCache(config=self.model.config) if past_key_values is None else past_key_values
        if type(cache) is not cache_utils.DynamicCache:
            raise ArgumentTypeError(
                f"past_key_values: expected a DynamicCache, got {type(cache).__name__}; do not set cache_implementation"
            )
        past = cache.get_seq_length()
        if past + length > self.max_length:
            raise ArgumentValueError(
                f"input_ids: {length} tokens behind {past} others are more than max_length={self.max_length}; compile"
                " with a larger max_length, or generate fewer"
            )
        if past == 0:
            self._start(cache, rows)
        if attention_mask is None:
            attention_mask = input_ids.new_ones(rows, past + length)
        mask = attention_mask.to(torch.int64)
        if position_ids is None:
            position_ids = torch.arange(past, past + length, device=input_ids.device)[None]
        first = 0 if logits_to_keep == 0 else max(0, length - logits_to_keep)
        kept = torch.arange(first, length, device=input_ids.device)
        positions = position_ids.expand(rows, -1)
        logits, cache = self.compiled(input_ids, mask[:, past:], mask[:, :past], positions, cache, kept)
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def _start(self, cache: Any, rows: int) -> None:
        """Gives a cache without tokens its tensors."""
        for layer, empty in zip(cache.layers, self._empty.layers, strict=True):
            layer.lazy_initialization(empty.keys, empty.values)
            layer.keys = empty.keys.new_empty(rows, *empty.keys.shape[1:])
            layer.values = empty.values.new_empty(rows, *empty.values.shape[1:])

    def __repr__(self) -> str:
        return f"disc.hf.CausalLM({type(self.model).__name__}, max_length={self.max_length})"
