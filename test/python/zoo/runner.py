"""Compiles an architecture once and compares it with eager at several shapes."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import dataclass, field

import torch
import transformers
from torch.utils._pytree import keystr, tree_flatten_with_path

import disc

from .architecture import Architecture


@dataclass
class Outcome:
    """What became of one architecture."""

    name: str
    kind: str
    reasons: list[str] = field(default_factory=list)
    """Why it failed, all of it; empty if it passed."""
    compile_seconds: float = 0.0
    shapes: int = 0
    worst: float = 0.0
    """Largest error, relative to the tolerance's scale."""
    dims: str = ""

    @property
    def passed(self) -> bool:
        return not self.reasons


def check(architecture: Architecture) -> Outcome:
    """Compiles and compares; never raises for what the model or the compiler does."""
    transformers.logging.set_verbosity_error()
    outcome = Outcome(architecture.name, architecture.kind, dims=", ".join(architecture.sizes))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        try:
            module = architecture.make()
            model = disc.compile(
                module,
                (),
                architecture.arguments(architecture.export_sizes()),
                dynamic_shapes=architecture.dynamic_shapes(),
            )
        except disc.UnsupportedOpError as error:
            counts: dict[str, int] = {}
            for op in error.ops:
                text = f"{op.name}: {op.reason}"
                counts[text] = counts.get(text, 0) + 1
            outcome.reasons = list(counts)
            return outcome
        except disc.CompileError as error:
            outcome.reasons = [str(error)]
            return outcome
        except Exception as error:
            outcome.reasons = [f"{type(error).__name__}: {error}"]
            return outcome
        outcome.compile_seconds = time.perf_counter() - start
        for seed, sizes in enumerate(architecture.points()):
            outcome.reasons += _compare(architecture, model, module, sizes, seed, outcome)
    return outcome


def _is_eagers(module, inputs, path, want: torch.Tensor, got: torch.Tensor) -> bool:
    """Whether a difference is eager's own error in f32, as in a scalar product of nearly orthogonal vectors."""
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    results = tree_flatten_with_path(copy.deepcopy(module).double()(**inputs))[0]
    exact = dict(results).get(path)
    return exact is not None and bool((got - exact).abs().max() <= (want - exact).abs().max())


def _compare(architecture: Architecture, model, module, sizes, seed, outcome: Outcome) -> list[str]:
    where = ", ".join(f"{k} {v}" for k, v in sizes.items())
    inputs = architecture.arguments(sizes, seed)
    try:
        expected = module(**inputs)
    except Exception as error:
        return [f"at {where}: eager fails: {type(error).__name__}: {error}"]
    try:
        actual = model(**inputs)
    except Exception as error:
        return [f"at {where}: {type(error).__name__}: {error}"]
    outcome.shapes += 1
    wants, spec = tree_flatten_with_path(expected)
    gots, got_spec = tree_flatten_with_path(actual)
    if spec != got_spec:
        return [f"at {where}: the result is structured as {got_spec}, not {spec}"]
    reasons = []
    if all(isinstance(w, torch.Tensor) and w.numel() > 1 and bool((w == w.flatten()[0]).all()) for _, w in wants):
        return [f"at {where}: eager gives one number everywhere, so that nothing is compared"]
    for (path, want), (_, got) in zip(wants, gots, strict=True):
        if not isinstance(want, torch.Tensor):
            if want != got:
                reasons.append(f"at {where}: {keystr(path)} is {got!r}, not {want!r}")
            continue
        if want.shape != got.shape or want.dtype != got.dtype:
            reasons.append(
                f"at {where}: {keystr(path)} is {got.dtype} {list(got.shape)}, not {want.dtype} {list(want.shape)}"
            )
            continue
        if not want.numel():
            continue
        if not want.is_floating_point():
            if not torch.equal(want, got):
                reasons.append(f"at {where}: {keystr(path)} differs in {int((want != got).sum())} of {want.numel()}")
            continue
        finite = torch.isfinite(want)
        if not torch.allclose(torch.where(finite, 0.0, want), torch.where(finite, 0.0, got), equal_nan=True):
            reasons.append(f"at {where}: {keystr(path)}: infinities or NaNs differ")
            continue
        want, got = torch.where(finite, want, 0.0), torch.where(finite, got, 0.0)
        error = float((want - got).abs().max() / max(1e-3, float(want.abs().max())))
        if not error <= architecture.tolerance and not _is_eagers(module, inputs, path, want, got):
            reasons.append(f"at {where}: {keystr(path)} differs by {error:.1e}")
        outcome.worst = max(outcome.worst, error)
    return reasons
