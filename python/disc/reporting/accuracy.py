"""The differences between a compiled model's results and those of PyTorch."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..torch_compat import pytree
from .calls import Call
from .measurement import run, state_restored


@dataclass(frozen=True)
class OutputError:
    """The error of one output at one shape."""

    shape: str
    """The sizes of the dynamic dims."""
    output: str
    dtype: str
    dims: tuple[int, ...]
    largest: float | None
    """The largest difference from the reference; None for an output of integers or without elements."""
    mean: float | None
    eager_largest: float | None
    """The same of eager PyTorch in the model's own dtype; None if that is the reference."""
    eager_mean: float | None
    mismatches: int
    """Elements of integers that differ, or that only one of the two has as NaN or as an infinity."""


@dataclass(frozen=True)
class Accuracy:
    """The errors of all outputs."""

    reference: str
    """What the results were compared with: ``"eager PyTorch in float64"``, ``"eager PyTorch"``; "" if nothing."""
    outputs: tuple[OutputError, ...] = ()
    note: str = ""
    """Why there is no comparison, or why not with float64."""

    @property
    def largest(self) -> float | None:
        """The largest error of all outputs."""
        return max((o.largest for o in self.outputs if o.largest is not None), default=None)

    @property
    def mismatches(self) -> int:
        """Elements that differ where they must be equal."""
        return sum(output.mismatches for output in self.outputs)


def compare(model: Any, reference: Callable[..., Any] | None, calls: Sequence[Call], *, further: int = 0) -> Accuracy:
    """Compares a model with the module that it was compiled from, in float64 where the module allows it.

    The module is copied: its state and its training mode stay as they are. ``further``: how many results of the model,
    the last ones, the module does not have.
    """
    if reference is None:
        return Accuracy("", note="the original module is not available")
    if calls and not _repeatable(model, calls[0]):
        return Accuracy("", note="two calls with the same inputs differ, as random numbers do")
    wide, note = _widened(reference, calls)
    found: list[OutputError] = []
    name = "eager PyTorch in float64" if wide is not None else "eager PyTorch"
    names = list(model._program.output_names)
    for call in calls:
        try:
            with state_restored(model), torch.no_grad():
                got = _tensors(run(model, call))
            got = got[: len(got) - further]
            with _own_state(reference), torch.no_grad():
                eager = _tensors(run(reference, call))
            expected = eager if wide is None else _wide_results(wide, call)
        except Exception as error:  # Whatever the module's own code raises at these sizes.
            return Accuracy("", note=f"at {call.name}: {type(error).__name__}: {_first_line(error)}")
        if not len(got) == len(eager) == len(expected):
            return Accuracy("", note=f"at {call.name}: {len(got)} results, eager PyTorch has {len(eager)}")
        for i, (ours, theirs, exact) in enumerate(zip(got, eager, expected, strict=True)):
            label = names[i] if len(names) == len(got) + further else f"output {i}"
            found.append(_error(call, label, ours, theirs, exact, wide is not None))
    return Accuracy(name, tuple(found), note)


def _repeatable(model: Any, call: Call) -> bool:
    """Whether two calls with the same arguments have the same results."""
    results = []
    for _ in range(2):
        with state_restored(model), torch.no_grad():
            results.append([tensor.clone() for tensor in _tensors(run(model, call))])
    return all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*results, strict=True)
    )


def _error(
    call: Call, name: str, got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, wide: bool
) -> OutputError:
    dtype, dims = str(got.dtype).removeprefix("torch."), tuple(got.shape)
    if got.shape != exact.shape:
        return OutputError(call.name, name, dtype, dims, None, None, None, None, max(got.numel(), exact.numel()))
    if not (got.is_floating_point() or got.is_complex()):
        wrong = int((got.cpu() != exact.to(got.dtype).cpu()).sum()) if got.numel() else 0
        return OutputError(call.name, name, dtype, dims, None, None, None, None, wrong)
    largest, mean, wrong = _differences(got, exact)
    eager_largest, eager_mean, _ = _differences(eager, exact) if wide else (None, None, 0)
    return OutputError(call.name, name, dtype, dims, largest, mean, eager_largest, eager_mean, wrong)


def _differences(got: torch.Tensor, exact: torch.Tensor) -> tuple[float | None, float | None, int]:
    """The largest and the mean difference of finite elements, and how many others are not the same."""
    kind = torch.complex128 if got.is_complex() else torch.float64
    a, b = got.cpu().to(kind), exact.cpu().to(kind)
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    finite = a.isfinite() & b.isfinite()
    same = (a == b) | (a.isnan() & b.isnan())
    wrong = int((~finite & ~same).sum())
    differences = (a - b)[finite].abs()
    if not differences.numel():
        return None, None, wrong
    return differences.max().item(), differences.mean().item(), wrong


def _widened(reference: Callable[..., Any], calls: Sequence[Call]) -> tuple[torch.nn.Module | None, str]:
    """A copy of a module in float64, and why there is none."""
    if not isinstance(reference, torch.nn.Module):
        return None, "only a module can be converted to float64"
    floats = {t.dtype for t in [*reference.parameters(), *reference.buffers()] if t.is_floating_point()}
    floats |= {
        leaf.dtype
        for call in calls
        for leaf in pytree.tree_leaves((call.args, dict(call.kwargs)))
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    }
    if floats == {torch.float64}:
        return None, ""
    try:
        wide = copy.deepcopy(reference).double()
        for call in calls:
            _wide_results(wide, call)
    except Exception as error:  # Code that names a dtype, and custom operators without float64.
        return None, f"the module does not run in float64: {type(error).__name__}: {_first_line(error)}"
    return wide, ""


def _wide_results(wide: torch.nn.Module, call: Call) -> list[torch.Tensor]:
    def widened(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(torch.complex128)
        return tensor.double() if tensor.is_floating_point() else tensor

    inputs = call.copy()
    args, kwargs = pytree.tree_map_only(torch.Tensor, widened, (inputs.args, dict(inputs.kwargs)))
    # PyTorch's fused attention of a CPU reads a mask of float32 as if it were the float64 of the other arguments.
    with _own_state(wide), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        return _tensors(wide(*args, **kwargs))


@contextlib.contextmanager
def _own_state(reference: Any) -> Iterator[None]:
    """Restores the values of a module's buffers afterwards."""
    if not isinstance(reference, torch.nn.Module):
        yield
        return
    before = [(buffer, buffer.detach().clone()) for buffer in reference.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
