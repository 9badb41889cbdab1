"""Statements from PyTorch's operator database: its operators, with the arguments of its samples."""

from __future__ import annotations

import functools
import itertools
import random
import re
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, ReductionOpInfo, UnaryUfuncInfo

from .grammar import Template

# Random, uninitialised or not unique; PyTorch's f64 is not exact; eager crashes; sums in an order of the machine.
_SKIPPED = re.compile(
    r"_$|empty|rand|bernoulli|normal|multinomial|dropout|exponential|geometric|cauchy|uniform|rrelu|unsafe|segment|fractional|"
    r"as_strided|resize|set_|svd|eig|lowrank|qr|lstsq|linalg|cholesky|det$|inverse|lu|polynomial|special|item|tolist|"
    r"bessel|_like$|new_|to_sparse|jiterator|out_variants|ormqr|geqrf|fft|stft|mode$|topk|argsort|^sort|kthvalue|ctc|"
    r"embedding_bag|_softmax_backward|grid_sample|cdist|polygamma|erfinv|digamma|gamma|median|msort|quantile|histogram|"
    r"histc|rsqrt$|sparse|sampled|masked|unique|nonzero|argwhere|equal$|allclose|ctc|max_pool._with|_batch_norm|native|"
    r"view_as_complex|index_put|^put$|index_copy|^scatter$|index_reduce|pca|corrcoef|cov$|hash|_chunk_cat|_upsample|svd|triangular|matrix_exp|pinv|householder|ldl"
)


def _name(op: OpInfo) -> str | None:
    """What the operator is called in Python, if that is a function of torch."""
    if _SKIPPED.search(op.name) or op.variant_test_name:
        return None
    text = ("F." + op.name[14:]) if op.name.startswith("nn.functional.") else "torch." + op.name
    target: Any = torch.nn.functional if text.startswith("F.") else torch
    for part in text.split(".")[1:]:
        target = getattr(target, part, None)
    return text if callable(target) else None


@functools.cache
def simple() -> list[Template]:
    """Operators of one or two tensors, and reductions."""
    result = []
    for op in op_db:
        name = _name(op)
        if name is None:
            continue
        if isinstance(op, UnaryUfuncInfo):
            result.append(Template(f"{name}({{a}})"))
        elif isinstance(op, BinaryUfuncInfo):
            result.append(Template(f"{name}({{a}}, {{b}})" if "div" not in name else f"{name}({{a}}, {{b}}.abs() + 1)"))
        elif isinstance(op, ReductionOpInfo):
            result.append(Template(f"{name}({{a}}, {{d}})", kind="reduction"))
    return result


@functools.cache
def sampled() -> list[OpInfo]:
    """The other operators, of which samples give the arguments."""
    known = UnaryUfuncInfo | BinaryUfuncInfo | ReductionOpInfo
    return [op for op in op_db if _name(op) is not None and not isinstance(op, known)]


@functools.cache
def templates(place: int) -> list[tuple[int, Template]]:
    """(rank, statement) of some samples of an operator whose arguments can be written down."""
    op = sampled()[place]
    found = []
    try:
        state = torch.get_rng_state()
        samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=False), 24))
        torch.set_rng_state(state)
    except Exception:
        return []
    for sample in samples:
        text = _written(_name(op) or "", sample)
        first = sample.input[0] if isinstance(sample.input, list | tuple) and sample.input else sample.input
        if text is not None and isinstance(first, torch.Tensor):
            found.append((first.dim(), Template(text, like="any", kind="sample")))
    return found


def _written(name: str, sample: Any) -> str | None:
    """The call as text, with `{a}`, `{b}`, `{c}` for its tensors."""
    names = iter("abc")

    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return "{" + next(names) + "}"
        if isinstance(value, torch.Size):
            value = tuple(value)
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        if isinstance(value, tuple):
            return "(" + ", ".join(map(text, value)) + ("," if len(value) == 1 else "") + ")"
        if value is None or (
            isinstance(value, bool | int | float | str) and value == value and abs(_number(value)) < 1e9
        ):
            return repr(value)
        if isinstance(value, torch.dtype):
            return str(value)
        raise ValueError(value)

    try:
        parts = [text(sample.input), *(text(v) for v in sample.args)]
        parts += [f"{key}={text(value)}" for key, value in sample.kwargs.items()]
    except (ValueError, StopIteration, RuntimeError):
        return None
    return f"{name}({', '.join(parts)})"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def choose(rng: random.Random) -> tuple[int | None, Template] | None:
    """A statement, and the rank that its first operand must have."""
    if rng.random() < 0.5:
        return None, rng.choice(simple())
    found = templates(rng.randrange(len(sampled())))
    return rng.choice(found) if found else None
