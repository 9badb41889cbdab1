"""Calls of operators with unusual arguments, drawn from their schemas, and how compiling one may end.

`python -m property.odd_arguments` in `test/python` tries many; see `--help`.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import mmap
import os
import random
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import Dim

import disc
from disc.frontend import rules  # noqa: F401  (registers them)
from disc.frontend.registry import registered

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (
    *(torch.float32,) * 6,
    *FLOATS,
    torch.int64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
SCALARS = (0, 1, 2, -2, True, False, 0.5, -1.5, 2.0, 300, 1e10, float("inf"), float("nan"), 1 + 2j)
STRINGS = ("mean", "sum", "none", "floor", "trunc", "ij", "reflect", "constant", "tanh", "amax", "prod", "left", "fro")
# Results are random, uninitialised or not determined by the inputs; or eager PyTorch crashes on wrong arguments.
SKIPPED = re.compile(
    r"empty|rand|bernoulli|normal|multinomial|dropout|exponential|geometric|cauchy|uniform|rrelu|_unsafe_|segment|"
    r"fractional|embedding_bag|as_strided|resize|set_|svd|eig|_lstm|lstm|gru|rnn|_int_mm|_scaled|fake_quantize|ctc|"
    r"geqrf|householder|ormqr|ldl|qr|_trilinear|unfold_backward|_copy|grid_sampler|_adaptive_max|_index_put_impl|"
    # Repeated rows have no inverse; polynomials of any degree diverge; what is searched has to be in order.
    r"linalg|cholesky|det$|inverse|lu_|polynomial|bucketize|searchsorted|_aa$|_unique|Int|Float|_local_scalar"
)


_phase = mmap.mmap(-1, 1)
"""Shared with child processes: 1 while the compiler or a compiled model runs, 0 while eager PyTorch does."""


@dataclass(frozen=True)
class Symbolic:
    """A number computed from a dynamic extent: in the example it is ``value``."""

    tensor: int
    dim: int
    offset: int

    def of(self, tensors: Sequence[torch.Tensor]) -> Any:
        return tensors[self.tensor].size(self.dim) + self.offset


@dataclass(frozen=True)
class Place:
    """An input among the arguments."""

    index: int


@dataclass
class Call:
    """A call of an operator."""

    op: Any
    tensors: tuple[torch.Tensor, ...]
    args: list[Any]
    kwargs: dict[str, Any]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        def given(leaf: Any) -> Any:
            if isinstance(leaf, Place):
                return tensors[leaf.index]
            return leaf.of(tensors) if isinstance(leaf, Symbolic) else leaf

        args, kwargs = pytree.tree_map(given, (self.args, self.kwargs))
        return self.op(*args, **kwargs)

    def __str__(self) -> str:
        inputs = ", ".join(f"{str(t.dtype)[6:]}{list(t.shape)}" for t in self.tensors)
        return f"{self.op}(args={self.args}, kwargs={self.kwargs}) of {inputs}"


class Program(nn.Module):
    """Several calls as one program."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.calls = tuple(calls)

    def forward(self, *inputs: tuple[torch.Tensor, ...]) -> list[Any]:
        return [call(own) for call, own in zip(self.calls, inputs, strict=True)]


# -- drawing a call --------------------------------------------------------------------------------


def overloads() -> list[Any]:
    """The functional overloads of all operators with a rule that take a tensor."""
    found: dict[str, Any] = {}
    for name in registered():
        _, namespace, op, *overload = name.split(".")
        if namespace != "aten" or op.endswith("_") or SKIPPED.search(op):
            continue
        packet = getattr(getattr(torch.ops, namespace), op, None)
        for each in (overload or packet.overloads()) if packet is not None else ():
            # TorchScript's own (prim_dtype) crash eager PyTorch itself with unusual arguments.
            if each in ("out", "Dimname") or each.startswith("prim_") or not hasattr(packet, each):
                continue
            value = getattr(packet, each)
            kinds = [str(a.type) for a in value._schema.arguments]
            if any(a.alias_info and a.alias_info.is_write for a in value._schema.arguments):
                continue
            if any("Tensor" in kind for kind in kinds) and "Dimname" not in " ".join(kinds):
                found[str(value)] = value
    return [found[name] for name in sorted(found)]


class Drawing:
    """Draws the arguments of one call."""

    def __init__(self, op: Any, draw: random.Random) -> None:
        self.op = op
        self.draw = draw
        self.tensors: list[torch.Tensor] = []
        self.dtype = draw.choice(DTYPES)
        self.shape = tuple(
            draw.choice((0, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 7)) for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4)))
        )
        self.square = draw.random() < 0.15

    def call(self) -> Call:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in self.op._schema.arguments:
            if argument.has_default_value() and self.draw.random() < 0.45:
                if not argument.kwarg_only:
                    args.append(argument.default_value)
                continue
            value = self.value(str(argument.type), argument.name)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return Call(self.op, tuple(self.tensors), args, kwargs)

    def value(self, kind: str, name: str) -> Any:
        draw = self.draw
        if kind.startswith("Optional["):
            return None if draw.random() < 0.4 else self.value(kind[9:-1], name)
        if kind.startswith("List["):
            inner = kind[5:-1]
            count = draw.choice((0, 1, 1, 2, 2, 3))
            if "int" in inner.lower() and draw.random() < 0.5:
                count = len(self.shape)
            return [self.value(inner, name) for _ in range(count)]
        if kind == "Tensor":
            return self.tensor(name)
        if kind in ("int", "SymInt"):
            if name == "dtype" or name.endswith("dtype"):
                return draw.choice(DTYPES)
            if name == "layout":
                return torch.strided
            if name == "memory_format":
                return draw.choice((torch.contiguous_format, torch.preserve_format, torch.channels_last))
            value = draw.choice((-1, 0, 0, 1, 1, 2, 3, -2, 7))
            return self.symbolic(value) if draw.random() < 0.25 else value
        if kind in ("number", "Scalar"):
            value = draw.choice(SCALARS)
            return self.symbolic(value) if type(value) is int and draw.random() < 0.5 else value
        if kind == "float":
            value = draw.choice((0.0, 0.5, 1.0, -1.5, 2, 1e-5, 3))
            return self.symbolic(value) if type(value) is int and draw.random() < 0.5 else value
        if kind in ("bool", "SymBool"):
            return draw.random() < 0.5
        if kind == "str":
            return draw.choice(STRINGS)
        if kind == "Device":
            return torch.device("cpu")
        if kind == "complex":
            return 1 + 2j
        return {"ScalarType": lambda: draw.choice(DTYPES)}.get(kind, lambda: None)()

    def symbolic(self, value: int) -> Any:
        """``value``, computed from an extent if there is one."""
        dims = [(i, d) for i, t in enumerate(self.tensors) for d in range(t.dim()) if t.shape[d] > 1]
        if not dims:
            return value
        tensor, dim = self.draw.choice(dims)
        return Symbolic(tensor, dim, value - self.tensors[tensor].shape[dim])

    def tensor(self, name: str) -> Place:
        draw = self.draw
        shape, dtype = self.shape, self.dtype
        if self.square and len(shape) > 1:
            shape = (*shape[:-1], shape[-2])
        other = draw.random()
        if self.tensors:
            if other < 0.12:
                shape = tuple(1 if draw.random() < 0.5 else n for n in shape)
            elif other < 0.2:
                shape = shape[1:]
            elif other < 0.25:
                shape = ()
            elif other < 0.3 and shape:
                shape = tuple(reversed(shape))
            elif other < 0.35 and shape:
                shape = shape[-1:]
            if draw.random() < 0.15:
                dtype = draw.choice(DTYPES)
        if re.search(r"ind(ex|ices)|target|batch", name) and draw.random() < 0.8:
            dtype = torch.int64
        if re.search(r"mask|cond", name) and draw.random() < 0.8:
            dtype = torch.bool
        self.tensors.append(tensor_of(shape, dtype, draw))
        return Place(len(self.tensors) - 1)


def tensor_of(shape: Sequence[int], dtype: torch.dtype, draw: random.Random) -> torch.Tensor:
    """Small numbers of which no two are equal, in no order."""
    count = int(torch.Size(shape).numel())
    if dtype is torch.bool:
        return torch.tensor([draw.random() < 0.5 for _ in range(count)], dtype=dtype).reshape(tuple(shape))
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.tensor([draw.randint(0, 3) for _ in range(count)], dtype=dtype).reshape(tuple(shape))
    values = [draw.uniform(-2, 2) for _ in range(count)]
    result = torch.tensor(values, dtype=torch.float64)
    if dtype.is_complex:
        result = torch.complex(result, torch.tensor([draw.uniform(-2, 2) for _ in range(count)], dtype=torch.float64))
    return result.reshape(tuple(shape)).to(dtype)


def drawn(op: Any, draw: random.Random, accepted: int, refused: int, tries: int = 150) -> tuple[list[Call], list[Call]]:
    """Calls that eager PyTorch accepts, and calls that it refuses."""
    good: list[Call] = []
    bad: list[Call] = []
    for _i in range(tries):
        call = Drawing(op, draw).call()
        outcome = eager(call, call.tensors)
        if isinstance(outcome, Exception):
            if len(bad) < refused:
                bad.append(call)
        elif len(good) < accepted:
            good.append(call)
        if len(good) >= accepted:
            break
    return good, bad


def eager(call: Call, tensors: Sequence[torch.Tensor]) -> Any:
    """What eager PyTorch returns or raises."""
    ours, _phase[0] = _phase[0], 0
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return call([t.clone() for t in tensors])
        except Exception as error:
            return error
        finally:
            _phase[0] = ours


# -- judging ---------------------------------------------------------------------------------------

# Texts of exceptions that say nothing to a user.
_RAW = re.compile(
    r"internal error|incompatible function arguments|has no attribute|object is not|must be a string or|"
    r"unexpected keyword|positional argument|unsupported operand|not subscriptable|KeyError|nanobind|pybind|"
    r"not supported between|out of range$|StopIteration|AssertionError|mlir|linalg\.|arith\.|tensor\.|list index"
)


def fault_of(error: BaseException) -> str | None:
    """Why an exception out of the compiler is not a good one; None if it is."""
    text = str(error)
    if not isinstance(error, disc.CompileError):
        if isinstance(error, disc.errors.ArgumentError):
            return None
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"raw {type(error).__name__} ({frame.filename.rpartition('/')[2]}:{frame.lineno}): {text}"
    if "torch.export" not in text and "PyTorch" not in text and (found := _RAW.search(text)):
        return f"raw text {found[0]!r}: {text}"
    if error.source is None:
        return f"no line: {text}"
    return None


def check(calls: Sequence[Call]) -> Iterator[tuple[Call, str, str]]:
    """(call, kind, text) of each call that does not end well; ``kind``: "wrong", "fault", "refused"."""
    if not calls:
        return
    program = Program(calls)
    inputs = tuple(call.tensors for call in calls)
    shapes = (tuple(tuple((Dim.AUTO,) * t.dim() for t in own) for own in inputs),)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = disc.compile(program, inputs, dynamic_shapes=shapes)
    except Exception as error:
        if len(calls) > 1:
            for call in calls:
                yield from check([call])
            return
        fault = fault_of(error)
        yield (calls[0], "fault" if fault else "refused", fault or str(error))
        return
    for grow in (0, 1, 2):
        given = tuple(tuple(_grown(t, grow) for t in call.tensors) for call in calls)
        wanted = [eager(call, own) for call, own in zip(calls, given, strict=True)]
        # One call's error is the whole program's: those that eager refuses get the example.
        given = tuple(
            call.tensors if isinstance(want, Exception) else own
            for call, own, want in zip(calls, given, wanted, strict=True)
        )
        wanted = [eager(call, own) for call, own in zip(calls, given, strict=True)]
        try:
            got = model(*given)
        except Exception as error:
            if len(calls) > 1:
                for call in calls:
                    yield from check([call])
                return
            if not grow or not isinstance(error, disc.ShapeError):
                yield calls[0], "wrong", f"running: {type(error).__name__}: {error} at {_text(given)}"
            return
        for call, own, result, want in zip(calls, given, got, wanted, strict=True):
            why = difference(result, want)
            if why is not None and not _unstable(call, own, want):
                yield call, "wrong", f"{why} at {_text((own,))}"


def _text(given: Any) -> str:
    return str([tuple(t.shape) for own in given for t in own])


def _grown(tensor: torch.Tensor, by: int) -> torch.Tensor:
    """``tensor`` with longer dims, of repeated elements."""
    result = tensor
    for dim, size in enumerate(tensor.shape):
        if by and size > 1:
            result = result.index_select(dim, torch.arange(size + by) % size)
    return result.contiguous()


def difference(got: Any, want: Any) -> str | None:
    """What is wrong with ``got``; None if nothing is."""
    ours, theirs = pytree.tree_leaves(got), pytree.tree_leaves(want)
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    for g, w in zip(ours, theirs, strict=True):
        if not isinstance(w, torch.Tensor):
            same = g == w or (g != g and w != w)
            if not same and not (isinstance(w, float) and abs(g - w) <= 1e-5 * abs(w)):
                return f"got {g!r} instead of {w!r}"
            continue
        if not isinstance(g, torch.Tensor) or g.dtype != w.dtype or g.shape != w.shape:
            return f"got {getattr(g, 'dtype', g)}{list(getattr(g, 'shape', []))}, expected {w.dtype}{list(w.shape)}"
        rtol = {torch.float64: 1e-9, torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(w.dtype, 2e-5)
        if not torch.allclose(g, w, rtol=rtol, atol=rtol, equal_nan=True):
            if w.is_complex() and torch.equal(torch.isfinite(g), torch.isfinite(w)):
                finite = torch.isfinite(w)
                if torch.allclose(g[finite], w[finite], rtol=rtol, atol=rtol):
                    continue  # Which part of an infinite number is nan differs.
            return f"got {g.flatten()[:8].tolist()}, expected {w.flatten()[:8].tolist()} ({w.dtype})"
    return None


def _unstable(call: Call, tensors: Sequence[torch.Tensor], want: Any) -> bool:
    """Whether eager PyTorch itself returns something else when it computes in f64 (half types round in between)."""
    narrow = (torch.float16, torch.bfloat16)
    if not any(t.dtype in narrow for t in [*tensors, *(w for w in pytree.tree_leaves(want) if torch.is_tensor(w))]):
        return False
    wide = eager(call, [t.double() if t.dtype in narrow else t for t in tensors])
    if isinstance(wide, Exception):
        return False
    fitting = [
        x.to(y.dtype) if torch.is_tensor(x) and torch.is_tensor(y) else x
        for x, y in zip(pytree.tree_leaves(wide), pytree.tree_leaves(want), strict=False)
    ]
    return difference(fitting, pytree.tree_leaves(want)) is not None


def refused_well(call: Call) -> Iterator[tuple[Call, str, str]]:
    """What is wrong with how the compiler takes a call that eager PyTorch refuses."""
    shapes = (tuple(tuple((Dim.AUTO,) * t.dim() for t in own) for own in (call.tensors,)),)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = disc.compile(Program([call]), (call.tensors,), dynamic_shapes=shapes)
    except Exception as error:
        fault = fault_of(error)
        if fault:
            yield call, "fault", fault
        return
    try:
        model(call.tensors)
    except (IndexError, ValueError, RuntimeError, MemoryError, TypeError, ZeroDivisionError):
        return
    yield call, "accepted", f"eager: {eager(call, call.tensors)}"


def main() -> int:
    """Tries calls of many operators, and prints what ended badly."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=6, help="accepted calls of each operator")
    parser.add_argument("--refused", type=int, default=1, help="calls of each operator that eager PyTorch refuses")
    parser.add_argument("--part", default="0/1", help="which part of the operators, as 1/4")
    parser.add_argument("--count", type=int, default=0, help="how many operators, chosen at random; 0 means all")
    parser.add_argument("--seconds", type=int, default=120, help="for each operator")
    parser.add_argument("match", nargs="?", default="", help="regular expression of operators' names")
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    logging.disable(logging.CRITICAL)
    chosen = [op for i, op in enumerate(overloads()) if i % parts == part and re.search(args.match, str(op))]
    if args.count:
        chosen = random.Random(args.seed).sample(chosen, args.count)
    for op in chosen:
        draw = random.Random(f"{args.seed} {op}")
        status = isolated(lambda: try_one(op, draw, args.calls, args.refused), args.seconds)
        if status:
            print(f"{status}: {op}", flush=True)
    print(f"{len(chosen)} operators", flush=True)
    return 0


def try_one(op: Any, draw: random.Random, accepted: int, refused: int) -> None:
    """Draws calls of an operator, and prints what ended badly."""
    good, bad = drawn(op, draw, accepted, refused)
    _phase[0] = 1
    for call, kind, text in (*check(good), *(line for call in bad for line in refused_well(call))):
        print(f"{kind}: {call}\n    {' '.join(text.split())[:600]}", flush=True)


def isolated(work: Callable[[], None], seconds: int) -> str | None:
    """Runs ``work`` in a process of its own; how that ended if not well, nothing if eager PyTorch crashed."""
    _phase[0] = 0
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        faulthandler.enable()
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status == 0 or (_phase[0] == 0 and os.WIFSIGNALED(status)):
        return None
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "the fuzzer failed"


if __name__ == "__main__":
    sys.exit(main())
