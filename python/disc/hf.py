"""Causal language models of transformers, compiled for generation: ``disc.hf.compile_causal_lm(model)``.

One compiled model serves the prompt and every step after it, at any batch size, prompt length and cache length. It
writes new keys and values in place, so a step does not copy the cache. ``generate`` is transformers' own, so its
sampling, stopping criteria and streamers work as with the original model.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.export import Dim
from transformers import cache_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from . import saved
from .compiler import compile
from .errors import ArgumentTypeError, ArgumentValueError, CallError, InputTypeError, LibraryError, ShapeError
from .model import Model
from .options import Options

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "use_cache": (None, True),
    "return_dict": (None, True),
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
    "output_router_logits": (None, False),
}
"""Arguments of the original model that a call may repeat with these values, which change nothing; of others None."""

_ATTENTION = ("sdpa", "eager")
"""The attention functions of transformers that the compiled step works with."""

_MODEL_FILE, _CONTENT_FILE = "model.disc", "causal_lm.json"
"""Files in the folder of a saved model, beside the configuration files of transformers."""

_PREFIX = "model."
"""In front of the original's names of parameters, in the module that is compiled."""

_LEAST_ROOM = 64
"""The number of tokens that a new cache has room for, at least."""


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
            It is put into evaluation mode.
        max_length: the largest number of tokens in a sequence, including the prompt. None means
            ``config.max_position_embeddings``, which is also the limit.
        batch: the batch size, or its minimum and maximum. None means any size.
        target: see :func:`disc.compile`.
        options: see :func:`disc.compile`.

    Returns:
        A :class:`CausalLM`, which uses the original model's weights.

    Raises:
        ArgumentTypeError: ``model`` is not a causal language model of transformers, or its cache, attention or mask is
            not supported.
        ArgumentValueError: ``max_length`` or ``batch`` is out of range.
        CompileError: see :func:`disc.compile`.
    """
    if not callable(getattr(model, "generate", None)) or not hasattr(model, "config"):
        raise ArgumentTypeError(
            f"model: expected a causal language model of transformers, got {type(model).__name__}; compile other models"
            " with disc.compile"
        )
    longest = _longest(model, max_length)
    least, most = _batch_range(batch)
    attention = getattr(model.config, "_attn_implementation", None)
    if attention not in _ATTENTION:
        raise ArgumentTypeError(
            f"model: expected attention of the kind {' or '.join(map(repr, _ATTENTION))}, got {attention!r}; load the"
            " model with attn_implementation='sdpa'"
        )
    step = _Step(model).eval()
    layers = step.find_layers()
    step.check(layers)
    # Sizes that no two dims share; the batch is in its range.
    rows, length, past, room = max(least, min(most or 3, 3)), min(5, longest), min(7, longest - 1), min(23, 2 * longest)
    ids = torch.zeros(rows, length, dtype=torch.int64, device=model.device)
    positions = torch.arange(length, device=model.device).expand(rows, -1).contiguous()
    tensors = [t for layer in layers for t in layer.example(rows, room)]
    args = (ids, torch.ones_like(ids), ids.new_ones(rows, past), positions, min(3, length), *tensors)
    size = {} if least == most else {0: Dim("batch", min=least, max=most) if most else Dim("batch", min=least)}
    tokens = {**size, 1: Dim("length", min=1, max=longest)}
    # As much as length and past together, so that the room restricts neither of them.
    space = Dim("room", min=1, max=2 * longest)
    shapes = {
        "input_ids": tokens,
        "attention_mask": tokens,
        "past_mask": {**size, 1: Dim("past", min=0, max=longest - 1)},
        "position_ids": tokens,
        "keep": Dim.DYNAMIC,
        "cache": tuple({**size, 2: space} for _ in tensors),
    }
    with torch.no_grad(), _one_attention():
        compiled = compile(step, args, dynamic_shapes=shapes, target=target, options=options)
    return CausalLM(model, compiled, longest, layers)


def load_causal_lm(path: str | os.PathLike[str], *, threads: int | None = None, trust_files: bool = False) -> CausalLM:
    """Reads a causal language model from a folder that :meth:`CausalLM.save` wrote; nothing is compiled.

    Args:
        path: the folder.
        threads: see :func:`disc.load`.
        trust_files: see :func:`disc.load`.

    Raises:
        LibraryError: the folder has no such model, or one of a class that transformers does not have.
        OSError: a file cannot be read.
    """
    folder = Path(path)
    try:
        content = json.loads((folder / _CONTENT_FILE).read_text())
        max_length, kind = content["max_length"], getattr(transformers, content["architecture"])
        if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
            raise ValueError(f"{content['architecture']} is not a model of transformers")
        shapes = [[(part["shape"], getattr(torch, part["dtype"])) for part in layer] for layer in content["layers"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LibraryError(
            f"{folder / _CONTENT_FILE}: not the description of a causal language model of the installed transformers:"
            f" {error}"
        ) from error
    compiled = saved.load(folder / _MODEL_FILE, threads=threads, trust_files=trust_files)
    config = transformers.AutoConfig.from_pretrained(folder)
    # For transformers' own loop: its weights are those of the compiled model, and its code does not run.
    with torch.device("meta"):
        model = kind(config).eval()
    weights = {key.removeprefix(_PREFIX): value for key, value in compiled.state_dict().items()}
    # The file has what the compiled code uses: no unused parameters, and codes of quantised ones.
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    if (folder / "generation_config.json").exists():
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    layers = [
        _LayerShape.of([torch.empty(shape, dtype=dtype, device=compiled.device) for shape, dtype in layer])
        for layer in shapes
    ]
    return CausalLM(model, compiled, max_length, layers)


def _longest(model: Any, max_length: Any) -> int:
    known = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    longest = known if max_length is None else max_length
    if type(longest) is not int or longest < 2:
        raise ArgumentValueError(f"max_length: expected a number of tokens, at least 2, got {longest!r}")
    if isinstance(known, int) and longest > known:
        raise ArgumentValueError(
            f"max_length: {longest} is more than the model's config.max_position_embeddings, {known}; pass at most that"
        )
    return longest


def _batch_range(batch: Any) -> tuple[int, int | None]:
    if batch is None:
        return 1, None
    limits = (batch, batch) if isinstance(batch, int) else batch
    if isinstance(limits, tuple) and len(limits) == 2:
        least, most = limits
        if type(least) is int and type(most) is int and 1 <= least <= most:
            return least, most
    raise ArgumentValueError(f"batch: expected None, a size from 1 on or a pair (minimum, maximum), got {batch!r}")


@contextmanager
def _one_attention() -> Iterator[None]:
    """Replaces transformers' attention function, which asks whether there is one token, by one for all lengths."""
    # The user's own replacement, if there is one; it hides the function that transformers registers.
    local = ALL_ATTENTION_FUNCTIONS._local_mapping
    before = local.get("sdpa")
    local["sdpa"] = _attention
    try:
        yield
    finally:
        del local["sdpa"]
        if before is not None:
            local["sdpa"] = before


def _attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *args: Any, **kwargs: Any) -> Any:
    # Other threads may run other models meanwhile.
    plain = not args and not kwargs.get("dropout") and kwargs.get("position_bias") is None and not kwargs.get("softcap")
    if not (torch.compiler.is_exporting() and attention_mask is not None and plain):
        return sdpa_attention_forward(module, query, key, value, attention_mask, *args, **kwargs)
    groups = getattr(module, "num_key_value_groups", 1)
    result = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=kwargs.get("scaling"), enable_gqa=groups > 1
    )
    return result.transpose(1, 2).contiguous(), None


class _Written(cache_utils.DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer: the first ``filled`` places of two tensors that new ones are written into."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, filled: Any) -> None:
        self.tensors = [keys, values]
        self.filled = filled
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes after the filled part, in place, and returns it with the new keys and values."""
        start, count = self.filled, key_states.shape[2]
        for tensor, new in zip(self.tensors, (key_states, value_states), strict=True):
            tensor.narrow(2, start, count).copy_(new)
        self.filled = start + count
        return self.keys, self.values

    def get_seq_length(self) -> Any:
        """The number of tokens."""
        return self.filled

    @property
    def keys(self) -> Any:
        """The keys of the tokens so far: a view."""
        return self._view(0)

    @keys.setter
    def keys(self, value: Any) -> None:
        self._replace(0, value)

    @property
    def values(self) -> Any:
        """The values of the tokens so far: a view."""
        return self._view(1)

    @values.setter
    def values(self, value: Any) -> None:
        self._replace(1, value)

    def _view(self, which: int) -> Any:
        tensor = self.tensors[which]
        return None if tensor is None else tensor.narrow(2, 0, self.filled)

    def _replace(self, which: int, value: Any) -> None:
        self.tensors[which] = value
        self.filled = 0 if value is None else value.shape[2]


class _Growing(_Written):
    """A layer of the caches that a :class:`CausalLM` fills, whose tensors are replaced by larger ones when needed."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends keys and values; used where the original model continues a cache."""
        self.reserve(self.filled + key_states.shape[2], like=(key_states, value_states))
        return super().update(key_states, value_states)

    def reserve(self, count: int, most: int | None = None, like: Any = None) -> None:
        """Makes room for ``count`` tokens. Doubling makes the total of what is copied proportional to the length."""
        for which, tensor in enumerate(self.tensors):
            # Cropping and beam search of transformers may leave a view.
            if tensor is not None and tensor.shape[2] >= count and tensor.is_contiguous():
                continue
            room = max(2 * count, _LEAST_ROOM)
            source = like[which] if tensor is None else tensor
            size = (*source.shape[:2], room if most is None else max(count, min(room, most)), *source.shape[3:])
            larger = source.new_empty(size)
            if self.filled:
                larger.narrow(2, 0, self.filled).copy_(tensor.narrow(2, 0, self.filled))
            self.tensors[which] = larger
        self.is_initialized = True

    def crop(self, tokens_to_remove: int) -> None:
        """Forgets the last tokens, whose number is given as a negative number (assisted generation)."""
        if tokens_to_remove > 0:
            super().crop(tokens_to_remove)
        self.filled = max(0, self.filled + tokens_to_remove)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Selects sequences (beam search). The free space after the tokens remains."""
        self.tensors = [tensor.index_select(0, beam_idx.to(tensor.device)) for tensor in self.tensors]


class _LayerShape:
    """The heads, sizes and dtypes of one layer's keys and values."""

    def __init__(self, layer: Any) -> None:
        self.tensors = [t[:1, :, :0].detach().clone() for t in (layer.keys, layer.values)]

    @classmethod
    def of(cls, tensors: list[torch.Tensor]) -> _LayerShape:
        """Of empty keys and values, [1, heads, 0, size]."""
        layer = cls.__new__(cls)
        layer.tensors = tensors
        return layer

    def example(self, rows: int, room: int) -> list[torch.Tensor]:
        """Keys and values with room for so many tokens."""
        return [t.new_zeros(rows, t.shape[1], room, *t.shape[3:]) for t in self.tensors]

    def empty(self, rows: int) -> _Growing:
        """A layer without tokens."""
        keys, values = (t.new_empty(rows, *t.shape[1:]) for t in self.tensors)
        return _Growing(keys, values, 0)


class _Step(torch.nn.Module):
    """The compiled module: some tokens after a cache of keys and values."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        past_mask: torch.Tensor,
        position_ids: torch.Tensor,
        keep: int,
        *cache: torch.Tensor,
    ) -> torch.Tensor:
        """The logits of the last ``keep`` tokens. The tensors of the cache get the keys and values of all tokens."""
        past, length = past_mask.shape[1], attention_mask.shape[1]
        total = past + length
        # The cache is written and read up to here; the space after it does not matter.
        torch._check(total <= cache[0].shape[2])
        device = attention_mask.device
        keys, queries = torch.arange(total, device=device), past + torch.arange(length, device=device)[:, None]
        real = torch.cat((past_mask, attention_mask), dim=1)[:, None, None, :].bool()
        # Padding attends to itself: a row without any key would be NaN, and spread by its key in the next layer.
        allowed = real & (keys <= queries) | (keys == queries)
        if self.model.config._attn_implementation == "eager":
            # It adds the mask to the scores.
            dtype = self.model.dtype
            allowed = torch.zeros_like(allowed, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)
        layers = cache_utils.DynamicCache()
        layers.layers = [_Written(k, v, past) for k, v in zip(cache[::2], cache[1::2], strict=True)]
        positions = {"position_ids": position_ids} if self.takes_positions else {}
        result = self.model(
            input_ids=input_ids,
            attention_mask=allowed,
            past_key_values=layers,
            use_cache=True,
            # Numbers of tokens rather than a slice, which would ask whether all of them are kept.
            logits_to_keep=torch.arange(keep, device=device) + (length - keep),
            return_dict=True,
            **positions,
        )
        return result.logits  # type: ignore[no-any-return]

    def check(self, layers: list[_LayerShape]) -> None:
        """ArgumentTypeError if the model needs its mask in two dims, [batch, length], or means something else by it."""
        ids = torch.zeros(1, 2, dtype=torch.int64, device=self.model.device)
        positions = torch.arange(2, device=ids.device)[None]
        tensors = [t for layer in layers for t in layer.example(1, 2)]
        with torch.no_grad():
            want = self.model(input_ids=ids, use_cache=False, return_dict=True).logits
            try:
                got, why = self(ids, torch.ones_like(ids), ids[:, :0], positions, 2, *tensors), ""
            except Exception as error:
                got, why = None, f" ({type(error).__name__}: {error})"
        # Two orders of summation in the model's own dtype.
        near = {
            "rtol": torch.finfo(want.dtype).eps ** 0.5,
            "atol": torch.finfo(want.dtype).eps ** 0.5 * want.abs().max(),
        }
        if got is None or not torch.allclose(got, want, equal_nan=True, **near):
            raise ArgumentTypeError(
                f"model: {type(self.model).__name__} does not give its own logits with an attention mask of the shape"
                f" [batch, 1, tokens, keys]{why}; compile it with disc.compile, with the cache as an argument"
            )

    def find_layers(self) -> list[_LayerShape]:
        """The layers of the model's cache; ArgumentTypeError if one does not keep all keys and values."""
        name = type(self.model).__name__
        given = cache_utils.DynamicCache(config=self.model.config)
        token = torch.zeros(1, 1, dtype=torch.int64, device=self.model.device)
        with torch.no_grad():
            result = self.model(input_ids=token, past_key_values=given, use_cache=True, return_dict=True)
        cache: Any = getattr(result, "past_key_values", None)
        if type(cache) is not cache_utils.DynamicCache or not cache.layers:
            raise ArgumentTypeError(
                f"model: {name} returns {type(cache).__name__} as its cache, expected a DynamicCache; compile it with"
                " disc.compile, with the cache as an argument"
            )
        for place, layer in enumerate(cache.layers):
            if type(layer) is not cache_utils.DynamicLayer or not layer.is_initialized:
                kind = "no keys and values" if type(layer) is cache_utils.DynamicLayer else f"a {type(layer).__name__}"
                raise ArgumentTypeError(
                    f"model: layer {place} of {name} keeps {kind} in its cache, expected a DynamicLayer, which keeps"
                    " all keys and values; compile it with disc.compile, with the cache as an argument"
                )
        return [_LayerShape(layer) for layer in cache.layers]


class CausalLM:
    """A compiled causal language model, with the original's call and ``generate``.

    Attributes:
        model: the original model, whose weights are used.
        compiled: the :class:`disc.Model`, for :meth:`~disc.Model.profile`, :meth:`~disc.Model.memory` and others.
        max_length: the largest number of tokens in a sequence.
    """

    def __init__(self, model: Any, compiled: Model, max_length: int, layers: list[_LayerShape]) -> None:
        """Called by :func:`compile_causal_lm`."""
        self.model, self.compiled, self.max_length = model, compiled, max_length
        self._layers = layers
        # OPT and its relatives find the positions from the mask.
        self._skips_padding = any(
            isinstance(part, torch.nn.Embedding) and "attention_mask" in inspect.signature(part.forward).parameters
            for part in model.modules()
        )
        embeddings = model.get_input_embeddings()
        # The weight of one of codes would be computed for its shape.
        self._vocabulary: int = getattr(embeddings, "num_embeddings", None) or embeddings.weight.shape[0]
        # The original with another forward, for transformers' own loop.
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
    ) -> CausalLMOutputWithPast:
        """The logits of some tokens and the cache after them, as the original model returns them.

        Args:
            input_ids: tokens, [batch, length].
            attention_mask: 1 for tokens, 0 for padding, [batch, past + length]. None means no padding.
            position_ids: [batch, length]. None means the original's default: most models count padding, too.
            past_key_values: a ``DynamicCache`` of the earlier tokens, which the new ones are added to. None means a new
                one.
            logits_to_keep: the number of last tokens that get logits. 0 means all.
            **kwargs: other arguments of the original, with values that change nothing.

        Raises:
            ArgumentValueError: more than ``max_length`` tokens, or a token that is not in the vocabulary.
            ArgumentTypeError: a cache or an argument that the compiled model does not have.
            ShapeError: a batch size out of range, or an attention mask of the wrong size.
        """
        for name, value in kwargs.items():
            if not any(value is neutral for neutral in _NEUTRAL.get(name, (None,))):
                raise CallError(
                    f"argument {name!r}: the compiled model does not have it, got {value!r}; call the original model"
                )
        if type(logits_to_keep) is not int or logits_to_keep < 0:
            raise CallError(f"logits_to_keep: expected an int, at least 0, got {logits_to_keep!r}")
        input_ids = self._checked(input_ids)
        rows, length = input_ids.shape
        cache = self._cache(past_key_values)
        past = cache.get_seq_length() if cache.layers else 0
        if past + length > self.max_length:
            raise ArgumentValueError(
                f"input_ids: {length} tokens after {past} others are more than max_length={self.max_length}; generate"
                " fewer, or compile with a larger max_length"
            )
        if attention_mask is None:
            attention_mask = input_ids.new_ones(rows, past + length)
        elif attention_mask.shape != (rows, past + length):
            raise ShapeError(
                f"input 'attention_mask': expected [batch, earlier and new tokens], which is [{rows}, {past + length}],"
                f" got {list(attention_mask.shape)}",
                input="attention_mask",
            )
        mask = attention_mask.to(torch.int64)
        if position_ids is None and self._skips_padding:
            position_ids = (mask.cumsum(1) * mask - 1)[:, past:]
        elif position_ids is None:
            position_ids = torch.arange(past, past + length, device=input_ids.device)[None]
        tensors = self._room(cache, rows, past + length)
        keep = min(logits_to_keep or length, length)
        positions = position_ids.expand(rows, -1)
        logits = self.compiled(input_ids, mask[:, past:], mask[:, :past], positions, keep, *tensors)
        for layer in cache.layers:
            layer.filled = past + length
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def _checked(self, input_ids: Any) -> torch.Tensor:
        """The tokens as int64, or an error that says what is wrong with them."""
        if not isinstance(input_ids, torch.Tensor):
            raise InputTypeError(f"input 'input_ids': expected a tensor, got {type(input_ids).__name__}")
        if input_ids.dtype not in (torch.int64, torch.int32):
            raise InputTypeError(f"input 'input_ids': expected int64 or int32, got {input_ids.dtype}")
        if input_ids.dim() != 2 or not input_ids.numel():
            raise ShapeError(
                f"input 'input_ids': expected [batch, length] with at least one token, got {list(input_ids.shape)}",
                input="input_ids",
            )
        if input_ids.device.type == "cpu":  # Elsewhere the question would wait for the device.
            least, most = map(int, torch.aminmax(input_ids))
            if least < 0 or most >= self._vocabulary:
                raise ArgumentValueError(
                    f"input_ids: token {least if least < 0 else most} is not in the model's vocabulary of"
                    f" {self._vocabulary}; use the model's own tokenizer"
                )
        return input_ids.to(torch.int64)

    def _cache(self, given: Any) -> Any:
        if given is None:
            return cache_utils.DynamicCache(config=self.model.config)
        if type(given) is not cache_utils.DynamicCache or given.offloading:
            kind = "an offloaded one" if type(given) is cache_utils.DynamicCache else f"a {type(given).__name__}"
            raise ArgumentTypeError(
                f"past_key_values: expected a DynamicCache, got {kind}; leave past_key_values and cache_implementation"
                " out"
            )
        return given

    def _room(self, cache: Any, rows: int, total: int) -> list[torch.Tensor]:
        """The tensors of a cache, with room for all tokens. Layers of transformers are replaced by our own."""
        if len(cache.layers) < len(self._layers):
            cache.layers.extend([None] * (len(self._layers) - len(cache.layers)))
        tensors = []
        for place, shape in enumerate(self._layers):
            layer = cache.layers[place]
            if type(layer) is not _Growing or layer.tensors[0] is None:
                known = layer is not None and layer.get_seq_length()
                layer = _Growing(layer.keys, layer.values, layer.get_seq_length()) if known else shape.empty(rows)
                cache.layers[place] = layer
            if layer.tensors[0].shape[0] != rows:
                raise ShapeError(
                    f"past_key_values: expected the {rows} sequences of input_ids, got {layer.tensors[0].shape[0]}",
                    input="past_key_values",
                )
            layer.reserve(total, self.max_length)
            tensors += layer.tensors
        return tensors

    @property
    def config(self) -> Any:
        """The original model's configuration."""
        return self.model.config

    @property
    def generation_config(self) -> Any:
        """The defaults of ``generate``: those of the original model."""
        return self.model.generation_config

    @property
    def device(self) -> torch.device:
        """Where tokens must be."""
        return self.model.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the logits."""
        return self.model.dtype  # type: ignore[no-any-return]

    def eval(self) -> CausalLM:
        """The model itself: it is compiled for evaluation."""
        return self

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The parameters and buffers that the compiled model uses, by the original model's names; not copies."""
        return {key.removeprefix(_PREFIX): value for key, value in self.compiled.state_dict().items()}

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor], strict: bool = True) -> Any:
        """Copies values to the parameters and buffers, as :meth:`disc.Model.load_state_dict` does."""
        return self.compiled.load_state_dict({_PREFIX + key: value for key, value in state_dict.items()}, strict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled code, the weights and the configuration, for :func:`disc.hf.load_causal_lm`.

        Args:
            path: a folder, which is made if it does not exist.

        Raises:
            OSError: a file cannot be written.
        """
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.compiled.save(folder / _MODEL_FILE)
        # transformers writes the files of configurations, and reads them again.
        self.model.config.save_pretrained(folder)
        if self.model.can_generate():
            self.model.generation_config.save_pretrained(folder)
        content = {
            "architecture": type(self.model).__name__,
            "max_length": self.max_length,
            "layers": [
                [{"shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")} for t in layer.tensors]
                for layer in self._layers
            ],
        }
        (folder / _CONTENT_FILE).write_text(json.dumps(content))

    def __reduce__(self) -> Any:
        return CausalLM, (self.model, self.compiled, self.max_length, self._layers)

    def __repr__(self) -> str:
        return f"disc.hf.CausalLM({type(self.model).__name__}, max_length={self.max_length})"
