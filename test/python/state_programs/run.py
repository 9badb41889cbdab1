"""Compiles a model with state, calls it several times, and compares results and state with eager PyTorch."""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim
from torch.utils import _pytree as pytree

import disc

from .generate import Model

SIZES = (2, 5, 1, 3, 8)
BAD = ("wrong", "state", "left", "raw", "crash")
"""Outcomes that are failures."""
# Texts of PyTorch or Python that say nothing to a user, and errors whose code says that nobody expected them.
_RAW = re.compile(r"Pls|DISC0002|torch\.export failed|FakeTensor|NoneType|SymInt|object has no attribute|lifted_tensor")
_STANDARD = frozenset(torch.nn.Module().__dict__) - {"_buffers", "_parameters", "_modules"}


@dataclass
class Outcome:
    """What happened: "pass", "warned", "refused" (an error of DISC), "eager" (PyTorch fails), or one of ``BAD``."""

    model: Model
    kind: str
    text: str = ""


def load(model: Model, folder: str) -> types.ModuleType:
    """The module of Python, executed anew: the compiler reads its file."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir=folder, prefix="state_", delete=False) as handle:
        handle.write(model.source)
    path = Path(handle.name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def leaves(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The tensors and numbers that can be reached, with where they are."""
    if isinstance(value, (torch.Tensor, int, float, str, type(None), torch.SymInt, torch.SymFloat)):
        yield path, value
        return
    if id(value) in seen:
        yield path, "again"
        return
    seen.add(id(value))
    if isinstance(value, dict):
        parts = [(f"{path}[{key!r}]", x) for key, x in sorted(value.items(), key=lambda x: str(x[0]))]
    elif hasattr(value, "_fields") or isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        parts = [(f"{path}[{n}]", x) for n, x in enumerate(value)]
    elif isinstance(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        parts = [(f"{path}.{name}", cell.cell_contents) for name, cell in cells]
        parts.append((f"{path}.defaults", value.__defaults__))
    elif isinstance(value, torch.nn.Module):
        own = {name: x for name, x in vars(value).items() if name not in _STANDARD}
        groups = [own.pop(group) for group in ("_buffers", "_parameters", "_modules")]
        found = [(f"{path}.{name}", x) for group in (*groups, own) for name, x in group.items()]
        parts = sorted(found, key=lambda part: part[0])
    else:
        names = [*getattr(type(value), "__slots__", ()), *sorted(vars(value) if hasattr(value, "__dict__") else ())]
        parts = [(f"{path}.{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    for name, part in parts:
        yield from leaves(part, name, seen)


def state(space: types.ModuleType, module: torch.nn.Module) -> dict[str, Any]:
    """Everything that a call may have changed."""
    roots = {
        "self": module,
        "GLOBAL": space.GLOBAL,
        "COUNT": space.COUNT,
        "Space.t": space.Space.t,
        "Model.shared": space.Model.shared,
        "Model.count": space.Model.count,
        "remember": space.remember,
    }
    seen: set[int] = set()
    return {path: value for name, root in roots.items() for path, value in leaves(root, name, seen)}


def _difference(got: Any, want: Any) -> str | None:
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        try:
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())[:200]
        return None
    same = type(got) is type(want) and (got == want if isinstance(want, (int, float, str)) else True)
    return None if same else f"{got!r} instead of {want!r}"


def _differences(got: dict[str, Any], want: dict[str, Any]) -> list[str]:
    keys = [*want, *(key for key in got if key not in want)]
    found = []
    for key in keys:
        text = _difference(got.get(key, "missing"), want.get(key, "missing"))
        if text is not None:
            found.append(f"{key}: {text}")
    return found


def _traced(found: dict[str, Any]) -> list[str]:
    """The places where a tensor or a number of the trace is left."""
    kinds = (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
    plain = (torch.Tensor, torch.nn.Parameter)
    return [
        path
        for path, x in found.items()
        if isinstance(x, kinds) or (isinstance(x, torch.Tensor) and type(x) not in plain)
    ]


def compiled(module: torch.nn.Module, args: Any, shapes: Any) -> Callable[..., Any]:
    """As users compile."""
    options = disc.Options(threads=1, code_cache=False, opt_level=1)
    return disc.compile(module, args, dynamic_shapes=shapes, options=options)


def _tensors(found: dict[str, Any]) -> dict[str, Any]:
    return {path: x for path, x in found.items() if isinstance(x, torch.Tensor)}


def _flat(result: Any) -> dict[str, Any]:
    return {pytree.keystr(path): value for path, value in pytree.tree_flatten_with_path(result)[0]}


def _reasonable(found: dict[str, Any]) -> bool:
    """Whether numbers are of a size at which rounding says little."""
    tensors = [x for x in found.values() if isinstance(x, torch.Tensor) and x.numel()]
    return all(bool(x.isfinite().all()) and float(x.abs().max()) < 1e4 for x in tensors)


def check(model: Model, seed: int = 0) -> Outcome:
    """What happens to a model."""
    with tempfile.TemporaryDirectory(prefix="state-programs-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = set(sys.modules)
        try:
            return _check(model, seed, folder)
        finally:
            for name in set(sys.modules) - before:
                if name.startswith("state_"):
                    del sys.modules[name]


def _check(model: Model, seed: int, folder: str) -> Outcome:
    generator = torch.Generator().manual_seed(seed * 1000 + len(model.statements))
    inputs = [torch.randn(n, 3, generator=generator) for n in SIZES]
    example = torch.randn(4, 3, generator=generator)
    try:
        eager_space = load(model, folder)
        eager = eager_space.Model()
        first = load(model, folder)
        first.Model()(example.clone())
        wanted = []
        for x in inputs:
            result = _flat(eager(x.clone()))
            wanted.append((_kept(result), _kept(state(eager_space, eager))))
    except Exception as error:
        return Outcome(model, "eager", f"{type(error).__name__}: {error}")
    space = load(model, folder)
    module = space.Model()
    start = _kept(state(space, module))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run = compiled(module, (example,), ({0: Dim("n", min=1)},))
        except disc.CompileError as error:
            left = _traced(state(space, module)) or _differences(state(space, module), start)
            if left:
                return Outcome(model, "left", f"after an error: {'; '.join(left)}; {error}")
            text = str(error)
            return Outcome(model, "raw" if _RAW.search(text) or "DISC" not in text else "refused", text)
        except Exception as error:
            return Outcome(model, "crash", f"{type(error).__name__}: {error}")
    notes = " ".join(str(w.message) for w in caught if "which a compiled model does not" in str(w.message))
    now = state(space, module)
    if left := _traced(now):
        return Outcome(model, "left", "; ".join(left))
    changed = _differences(now, start)
    if changed and not all(_is_named(text.split(":")[0], notes) for text in changed):
        return Outcome(model, "left", f"compiling changed {'; '.join(changed)} {notes}")
    for call, (x, (want, after)) in enumerate(zip(inputs, wanted, strict=True)):
        given = x.clone()
        try:
            got = _flat(run(given))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            return Outcome(model, "refused" if "DISC" in text else "crash", f"call {call}: {text}")
        if not _reasonable(want) or not _reasonable(after):
            break
        if found := _differences(got, want):
            if notes and call:
                return Outcome(model, "warned", notes)
            return Outcome(model, "wrong", f"call {call}: {'; '.join(found)} {notes}")
        if left := _traced(state(space, module)):
            return Outcome(model, "left", "; ".join(left))
        # Numbers that each call sets before it reads them are not state: results show if they are read.
        found = _differences(*(_tensors(x) for x in (state(space, module), after)))
        if found and not notes:
            return Outcome(model, "state", f"call {call}: {'; '.join(found)}")
        if notes and any(not _is_named(text.split(":")[0], notes) for text in found) and call == 0:
            return Outcome(model, "state", f"call {call}: {'; '.join(found)} {notes}")
    return Outcome(model, "warned" if notes else "pass", notes)


def _kept(found: dict[str, Any]) -> dict[str, Any]:
    return {k: x.detach().clone() if isinstance(x, torch.Tensor) else x for k, x in found.items()}


def _is_named(path: str, notes: str) -> bool:
    """Whether a warning names a place, or the container that it is in."""
    last = re.split(r"[.\[]", path)
    names = [path, *(path[: m.start()] for m in re.finditer(r"[.\[]", path)), last[-1]]
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", notes) for name in names if name != "self")
