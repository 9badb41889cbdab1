"""GGUF files, llama.cpp's, as weights of language models of transformers: ``disc.gguf.load(path)``.

transformers reads the configuration and knows which tensor of the file is which weight; it makes floats of all of
them. Here weights of ``nn.Linear`` and ``nn.Embedding`` stay the codes that they are in the file.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .coded import CodedEmbedding, CodedLinear, Codes
from .errors import ArgumentTypeError, ArgumentValueError
from .gguf_blocks import FORMATS, codes_of

_LOG = logging.getLogger(__name__)

_FACTORS = "rope_freqs.weight"
"""By what the frequencies of the rotary embedding are divided (Llama 3.1 and later)."""


def load(path: str | Path, model: nn.Module | None = None) -> nn.Module:
    """A language model of transformers with the weights of a GGUF file, for ``disc.hf.compile_causal_lm``.

    >>> model = disc.gguf.load("llama-3.2-1b-q4_k_m.gguf")
    >>> lm = disc.hf.compile_causal_lm(model)

    Weights of linear layers and embeddings in the formats Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K and Q6_K
    stay codes, in memory and in compiled libraries: of 4 bits up to Q4_K, of 8 bits the others. Other weights, and
    formats with tables (``IQ...``), become f32. Activations are f32. The tokenizer is that of
    ``AutoTokenizer.from_pretrained(folder, gguf_file=name)``.

    Args:
        path: the file.
        model: what to load the weights into, a ``...ForCausalLM`` of the file's architecture. None means the one that
            the file's metadata describe.

    Returns:
        ``model``, changed: its linear layers and embeddings are :class:`disc.coded.CodedLinear` and ``CodedEmbedding``.

    Raises:
        ArgumentTypeError: ``model`` is not a model of transformers.
        ArgumentValueError: the file does not exist or is not a GGUF file; transformers does not know its architecture;
            a weight of the model is missing or has another shape.
        ImportError: ``gguf`` or ``transformers`` is not installed.
    """
    file = _File(Path(path))
    if model is None:
        model = file.new_model()
    elif not hasattr(model, "config") or not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"model: expected a model of transformers, got {type(model).__name__}")
    _Loading(file, model).run()
    return model.eval()


class _File:
    """The contents of the file."""

    def __init__(self, path: Path) -> None:
        try:
            import gguf
            from transformers import modeling_gguf_pytorch_utils as library
        except ImportError as error:
            raise ImportError("disc.gguf needs gguf and transformers; run: pip install gguf transformers") from error
        self.path, self.gguf, self.library = path, gguf, library
        if not path.is_file():
            raise ArgumentValueError(f"path: there is no file {path}")
        with path.open("rb") as data:
            if data.read(4) != b"GGUF":
                raise ArgumentValueError(f"path: {path} is not a GGUF file")
        try:
            self.reader = gguf.GGUFReader(path)
            self.architecture = library.read_field(self.reader, "general.architecture")[0]
            self.config = library.load_gguf_checkpoint(str(path))["config"]
        except (ValueError, KeyError, IndexError) as error:
            raise ArgumentValueError(f"path: {path}: {error}") from error
        self.tensors: dict[str, Any] = {tensor.name: tensor for tensor in self.reader.tensors}
        self.processor = library.TENSOR_PROCESSORS.get(self.architecture, library.TensorProcessor)(config=self.config)

    def new_model(self) -> nn.Module:
        """The model that the metadata describe, with weights that are not set."""
        from transformers import AutoConfig, AutoModelForCausalLM
        from transformers.initialization import no_init_weights

        config = AutoConfig.from_pretrained(str(self.path.parent), gguf_file=self.path.name)
        with no_init_weights():
            model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.tie_weights()  # type: ignore[operator]
        return model

    def process(self, name: str, weights: Any, names: dict[str, str], joined: dict[str, Any]) -> Any:
        """The weight that transformers converts an array to; None if it has no own name in the model.

        ``joined`` gets the weights that several tensors of the file are parts of, as far as they are known.
        """
        own = {"tensors": joined}
        result = self.processor.process(weights=weights, name=name, tensor_key_mapping=names, parsed_parameters=own)
        return result.weights if result.name in names else None

    def floats(self, tensor: Any) -> Any:
        """The tensor as an array of f32."""
        return self.gguf.dequantize(tensor.data, tensor.tensor_type)

    def codes(self, tensor: Any) -> Codes | None:
        """The tensor as codes; None if it is not quantised, or not a matrix."""
        name = tensor.tensor_type.name
        if name not in FORMATS or tensor.data.ndim != 2:
            return None
        return codes_of(tensor.data, name, self.gguf.GGML_QUANT_SIZES[tensor.tensor_type][1])


_Make = Callable[[Codes, Any], nn.Module]
"""Makes a coded layer with a bias."""


class _Loading:
    """Fills a model."""

    def __init__(self, file: _File, model: nn.Module) -> None:
        self.file, self.model = file, model
        self.names: dict[str, str] = file.library.get_gguf_hf_weights_map(model, file.processor)
        self.layers = dict(model.named_modules())
        self.users: dict[int, list[tuple[nn.Module, str, _Make, nn.Parameter | None]]] = defaultdict(list)
        """By parameter, the layers that become coded ones with it: where they are."""
        for module in self.layers.values():
            for name, child in module.named_children():
                if make := _like(child):
                    bias = getattr(child, "bias", None)
                    self.users[id(child.weight)].append((module, name, make, bias))
        self.set: set[int] = set()
        """The parameters that have their values, by identity."""

    def run(self) -> None:
        """Sets all weights."""
        joined: dict[str, Any] = {}
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        unknown = []
        for name, tensor in self.file.tensors.items():
            if name == _FACTORS:
                self._divide_frequencies(torch.from_numpy(np.array(self.file.floats(tensor), np.float32)))
            elif not self._keep_codes(name, tensor, parameters):
                before = len(joined)
                values = self.file.process(name, self.file.floats(tensor), self.names, joined)
                if values is not None:
                    self._copy(self.names[name], values, parameters)
                elif name not in self.names and len(joined) == before:
                    unknown.append(name)
        for key, values in joined.items():
            self._copy(key, values, parameters)
        if unknown:
            _LOG.warning("%s: the model has no place for %s", self.file.path, ", ".join(unknown))
        missing = [name for name, p in parameters.items() if id(p) not in self.set]
        if missing:
            raise ArgumentValueError(f"path: {self.file.path} lacks {', '.join(missing[:5])}")

    def _keep_codes(self, name: str, tensor: Any, parameters: dict[str, nn.Parameter]) -> bool:
        """Whether the tensor became coded layers: of one weight whose rows the file has, in some order."""
        key = self.names.get(name)
        layer = self.layers.get(key.rpartition(".")[0]) if key else None
        if key is None or not key.endswith(".weight") or _like(layer) is None or tensor.data.ndim != 2:
            return False
        order = self._row_order(name, len(tensor.data))
        codes = None if order is None else self.file.codes(tensor)
        if codes is None or order is None:
            return False
        if not torch.equal(order, torch.arange(len(order))):
            codes = codes.take_rows(order)
        weight = parameters[key]
        shape = [codes.rows, codes.columns]
        expected = list(weight.shape) if isinstance(layer, nn.Linear | nn.Embedding) else list(weight.shape)[::-1]
        if shape != expected:
            raise ArgumentValueError(f"path: {self.file.path}: {name} is {shape}, and the model's {key} is {expected}")
        self.set.add(id(weight))
        # Layers that share a weight share its codes.
        for owner, attribute, make, bias in self.users[id(weight)]:
            setattr(owner, attribute, make(codes, bias))
        return True

    def _row_order(self, name: str, rows: int) -> Tensor | None:
        """The row of the tensor for each row of the weight of transformers; None if it changes more than the order."""
        probe = np.repeat(np.arange(rows, dtype=np.float32)[:, None], 2, axis=1)
        try:
            result = self.file.process(name, probe, self.names, {})
        except (ValueError, TypeError, IndexError):
            return None
        if result is None:
            return None
        order = torch.as_tensor(np.asarray(result))
        if tuple(order.shape) == (2, rows):
            order = order.T
        if tuple(order.shape) != (rows, 2) or not torch.equal(order[:, 0], order[:, 1]):
            return None
        order = order[:, 0].long()
        return order if torch.equal(order.sort().values, torch.arange(rows)) else None

    def _copy(self, key: str, values: Any, parameters: dict[str, nn.Parameter]) -> None:
        target = parameters.get(key)
        values = torch.as_tensor(np.array(values) if isinstance(values, np.ndarray) else values)
        if target is None:
            buffer = dict(self.model.named_buffers()).get(key)
            if buffer is not None:
                buffer.copy_(values)
            return
        if target.shape != values.shape:
            raise ArgumentValueError(
                f"path: {self.file.path}: {key} is {list(values.shape)}, and the model's is {list(target.shape)}"
            )
        with torch.no_grad():
            target.copy_(values)
        self.set.add(id(target))

    def _divide_frequencies(self, factors: Tensor) -> None:
        for module in self.model.modules():
            frequencies = getattr(module, "inv_freq", None)
            if isinstance(frequencies, Tensor) and frequencies.shape == factors.shape:
                frequencies.div_(factors)


def _like(layer: nn.Module | None) -> _Make | None:
    """The function that creates the coded layer for a layer of floats."""
    from transformers.pytorch_utils import Conv1D

    if isinstance(layer, nn.Embedding):
        # Subclasses do more than look rows up.
        return (lambda codes, _: CodedEmbedding(codes)) if type(layer) is nn.Embedding else None
    if type(layer) in (nn.Linear, Conv1D):
        return lambda codes, bias: CodedLinear(codes, None if bias is None else bias.detach())
    return None
