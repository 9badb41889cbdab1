"""PyTorch's control flow operators: cond, while_loop (also with stacked outputs), scan, map and associative_scan.

While :func:`flattened` is active they are traced as branches and loops between the markers of ``markers.py``, whether a
model's code calls them or the graph of an exported program that is traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx import Node

from .. import errors
from ..torch_compat import patches, pytree
from ..torch_compat.operators import OpOverload, math_attention
from ..torch_compat.patching import Replacement, instead, replaced
from ..torch_compat.symbols import statically_known_true
from . import markers
from .facts import environment
from .locations import user_line

_Values = Sequence[Any]


def _refusal(why: str) -> errors.CompileError:
    return errors.ControlFlowError("import", why, user_line())


def _condition(pred: Any) -> Tensor:
    """A condition as a bool tensor without dims."""
    if isinstance(pred, torch.SymBool):
        pred = torch.scalar_tensor(torch.sym_ite(pred, 1, 0), dtype=torch.int64)
    if not isinstance(pred, Tensor):
        return torch.full((), bool(pred), dtype=torch.bool)
    pred = pred.reshape(())
    return pred if pred.dtype == torch.bool else pred != 0


def _extent(marked: Tensor) -> Any:
    number = marked.item()
    torch._check(number >= 0)
    return number


def _number(marked: Tensor, *values: Any) -> Any:
    """A number that is one of ``values``."""
    number = marked.item()
    if all(statically_known_true(value >= 0) for value in values):
        torch._check(number >= 0)
    return number


def _split(values: _Values, what: str) -> tuple[list[Tensor], list[Any]]:
    for value in values:
        if not isinstance(value, (Tensor, int, torch.SymInt)):
            raise _refusal(f"{what}: expected tensors and ints, got a {type(value).__name__}; convert it to a tensor")
    return [v for v in values if isinstance(v, Tensor)], [v for v in values if not isinstance(v, Tensor)]


def _joined(like: _Values, tensors: _Values, numbers: _Values) -> list[Any]:
    tensors, numbers = iter(tensors), iter(numbers)  # type: ignore[assignment]
    return [next(tensors if isinstance(v, Tensor) else numbers) for v in like]  # type: ignore[call-overload]


# -- branches ------------------------------------------------------------------------------------------------


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: _Values) -> Any:
    """``torch.cond``, whose functions may return tensors of different sizes, and different ints."""
    if not isinstance(pred, (Tensor, torch.SymBool)):
        return (true_fn if pred else false_fn)(*operands)
    markers.refuse_inside_transforms("torch.cond")
    begin = markers.branch_begin(_condition(pred))
    before = _symbols()
    then, spec = pytree.tree_flatten(true_fn(*operands))
    tensors, numbers = _split([v for v in then if v is not None], "torch.cond")
    middle = markers.branch_else(begin, tensors, [], numbers)
    orelse, other_spec = pytree.tree_flatten(false_fn(*operands))
    others, other_numbers = _split([v for v in orelse if v is not None], "torch.cond")
    end = markers.branch_end(middle, others, [], other_numbers)
    kinds = [[type(v) if v is None else isinstance(v, Tensor) for v in side] for side in (then, orelse)]
    if spec != other_spec or kinds[0] != kinds[1]:
        raise _refusal(f"both functions of torch.cond must return the same structure, got {spec} and {other_spec}")
    results = [_merged(end, n, a, b, before) for n, (a, b) in enumerate(zip(tensors, others, strict=True))]
    merged = [
        a if _is_one(a, b, before) else _number(markers.branch_number(end, n), a, b)
        for n, (a, b) in enumerate(zip(numbers, other_numbers, strict=True))
    ]
    given = iter(_joined([v for v in then if v is not None], results, merged))
    return pytree.tree_unflatten([None if v is None else next(given) for v in then], spec)


def _symbols() -> set[sympy.Symbol] | None:
    """The symbols that exist so far."""
    env = environment()
    return None if env is None else set(env.var_to_range)


def _is_one(a: Any, b: Any, before: set[sympy.Symbol] | None) -> bool:
    """Whether both sides return the same number, which is known before the branch.

    Torch treats sizes that both sides compute from one tensor, as ``nonzero`` does, as one number.
    """
    if before is not None and isinstance(a, torch.SymInt) and not a.node.expr.free_symbols <= before:
        return False
    return statically_known_true(a == b)


def _merged(end: Tensor, number: int, a: Tensor, b: Tensor, before: set[sympy.Symbol] | None) -> Tensor:
    if a.dtype != b.dtype or a.dim() != b.dim():
        raise _refusal(
            "both functions of torch.cond must return tensors of the same dtype and rank, got"
            f" {a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}",
        )
    size = [
        x if _is_one(x, y, before) else _extent(markers.branch_size(end, number, dim))
        for dim, (x, y) in enumerate(zip(a.shape, b.shape, strict=True))
    ]
    return markers.branch_result(end, a, size, number)


# -- loops ---------------------------------------------------------------------------------------------------


def _loop(
    count: Any,
    pred: Any,
    first: _Values,
    step: Callable[[Any, list[Any]], tuple[_Values, _Values, Any]],
    what: str,
) -> tuple[list[Any], list[Tensor]]:
    """A loop; ``step(number, carried)`` returns the carried values, the rows to stack, and the next condition."""
    markers.refuse_inside_transforms(what)
    tensors, numbers = _split(first, what)
    begin = markers.loop_begin(count, None if pred is None else _condition(pred))
    index = _extent(begin)
    if pred is None:
        torch._check(index < count)
    inner = [markers.loop_number(begin, n, k).item() for k, n in enumerate(numbers)]
    inside = [markers.loop_carried(begin, t, t.shape, slot) for slot, t in enumerate(tensors)]
    after, rows, again = step(index, _joined(first, inside, inner))
    if len(after) != len(first):
        raise _refusal(f"{what}: a step must return the {len(first)} carried values, got {len(after)}")
    for old, new in zip(first, after, strict=True):
        if not _alike(old, new):
            raise _refusal(
                f"{what}: a carried value must keep its type and shape, got {_described(old)} before a step and"
                f" {_described(new)} after it"
            )
    following, nexts = _split(after, what)
    slots = list(range(len(tensors)))
    condition = None if pred is None else _condition(again)
    end = markers.loop_end(begin, slots, inside, following, list(rows), condition, nexts)
    lasts = [markers.loop_last(end, t, t.shape, slot) for slot, t in enumerate(tensors)]
    last_numbers = [markers.loop_last_number(end, k).item() for k in range(len(numbers))]
    # The number of steps of a loop with a condition is known after it.
    steps = count if pred is None or not rows else _extent(markers.loop_trips(end))
    stacks = [markers.loop_stack(end, row, steps, n) for n, row in enumerate(rows)]
    return _joined(first, lasts, last_numbers), stacks


def _alike(old: Any, new: Any) -> bool:
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        return isinstance(old, Tensor) is isinstance(new, Tensor)
    known = [x == y for x, y in zip(old.shape, new.shape, strict=False)]
    return old.dtype == new.dtype and old.dim() == new.dim() and not any(known_false(same) for same in known)


def known_false(condition: Any) -> bool:
    """Whether a condition on sizes is false for all of them."""
    return statically_known_true(torch.sym_not(condition))


def _described(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else "an int"


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: _Values, additional: _Values, **_: Any
) -> tuple[Any, ...]:
    """``while_loop`` over tensors that keep their shapes, and ints."""

    def step(_: Any, now: list[Any]) -> tuple[_Values, _Values, Any]:
        after = pytree.tree_leaves(body_fn(*now, *additional))
        return after, [], cond_fn(*after, *additional)

    return tuple(_loop(-1, cond_fn(*carried, *additional), carried, step, "while_loop")[0])


def while_loop_stack_output(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: _Values, additional: _Values, **_: Any
) -> tuple[Any, ...]:
    """``while_loop`` with the values after all steps, stacked; without a step, the first values."""

    def step(_: Any, now: list[Any]) -> tuple[_Values, _Values, Any]:
        after = pytree.tree_leaves(body_fn(*now, *additional))
        return after, after, cond_fn(*after, *additional)

    first = cond_fn(*carried, *additional)
    stacks = _loop(-1, first, carried, step, "while_loop_stack_output")[1]
    return tuple(cond(first, lambda: stacks, lambda: [x.unsqueeze(0) for x in carried], []))


def scan(combine_fn: Callable[..., Any], init: _Values, xs: _Values, additional_inputs: _Values) -> tuple[Any, ...]:
    """``scan`` over the first dims of ``xs``."""

    def step(index: Any, now: list[Any]) -> tuple[_Values, _Values, Any]:
        given = pytree.tree_leaves(combine_fn(*now, *(x.select(0, index) for x in xs), *additional_inputs))
        return given[: len(init)], given[len(init) :], None

    last, stacks = _loop(xs[0].shape[0], None, init, step, "scan")
    return (*last, *stacks)


def map_(f: Callable[..., Any], xs: _Values, args: _Values) -> Any:
    """``map`` over the first dims of ``xs``."""
    specs = []

    def step(index: Any, _: list[Any]) -> tuple[_Values, _Values, Any]:
        rows, spec = pytree.tree_flatten(f(*(x.select(0, index) for x in xs), *args))
        specs.append(spec)
        return [], rows, None

    stacks = _loop(xs[0].shape[0], None, [], step, "map")[1]
    return pytree.tree_unflatten(stacks, specs[0])


def associative_scan(combine_fn: Callable[..., Any], xs: _Values, additional_inputs: _Values) -> tuple[Any, ...]:
    """``associative_scan`` with a function of single elements, in their order."""

    def step(index: Any, now: list[Any]) -> tuple[_Values, _Values, Any]:
        given = combine_fn(*now, *(x.select(0, index + 1) for x in xs), *additional_inputs)
        rows = pytree.tree_leaves(given)
        return rows, rows, None

    stacks = _loop(xs[0].shape[0] - 1, None, [x.select(0, 0) for x in xs], step, "associative_scan")[1]
    return tuple(torch.cat([x.narrow(0, 0, 1), stack]) for x, stack in zip(xs, stacks, strict=True))


def generic_associative_scan(
    operator: Callable[..., Any], leaves: _Values, dim: int = 0, additional_inputs: _Values = ()
) -> list[Tensor]:
    """``associative_scan`` with a function of many elements at once.

    Each step combines every element with the one that is 1, 2, 4, ... places before it, so that the number of steps is
    the logarithm of the size, and each step works on whole tensors (Hillis and Steele, Data Parallel Algorithms,
    1986).
    """
    count = leaves[0].shape[dim]
    place = torch.arange(count, device=leaves[0].device)
    masks = place.reshape([-1 if d == dim else 1 for d in range(leaves[0].dim())])

    def step(_: Any, now: list[Any]) -> tuple[_Values, _Values, Any]:
        distance, *elems = now
        before = [x.index_select(dim, (place - distance).clamp(min=0)) for x in elems]
        combined = pytree.tree_leaves(operator(*before, *elems, *additional_inputs))
        # Elements without another one at this distance are finished.
        kept = [
            torch.where(masks.reshape([*masks.shape[: dim + 1], *[1] * (x.dim() - dim - 1)]) >= distance, new, x)
            for new, x in zip(combined, elems, strict=True)
        ]
        return [distance * 2, *kept], [], distance * 2 < count

    distance = torch.ones((), dtype=torch.int64)
    return _loop(-1, distance < count, [distance, *leaves], step, "associative_scan")[0][1:]


# -- replacements of PyTorch's functions -----------------------------------------------------------------------


def invoke_subgraph(subgraph: Callable[..., Any], _: str | None, *operands: Any) -> Any:
    """A separate function (``torch.compiler.nested_compile_region``), traced inline."""
    return subgraph(*operands)


def flex_attention(query: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """``flex_attention`` by its definition: all scores, the function of them and the mask."""
    result, sums, largest = math_attention(query, *args, **kwargs)
    # Stored in the order of the query.
    order = sorted(range(query.dim()), key=query.stride, reverse=True)
    stored = result.permute(order).contiguous()
    return stored.permute([order.index(dim) for dim in range(query.dim())]), sums, largest


_OPERATORS: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "while_loop_stack_output": while_loop_stack_output,
    "scan": scan,
    "map_impl": map_,
    "associative_scan": associative_scan,
}
# Graphs of AOTAutograd contain more.
_IN_GRAPHS: dict[str, Callable[..., Any]] = {"invoke_subgraph": invoke_subgraph, "flex_attention": flex_attention}
FLATTENED = frozenset([*_OPERATORS, *_IN_GRAPHS])


@contextmanager
def flattened(*, subgraphs: bool = False) -> Iterator[None]:
    """While it is active, control flow operators are traced by the functions of this module.

    With ``subgraphs``, so are operators that call a function.
    """
    functions = {**_OPERATORS, **(_IN_GRAPHS if subgraphs else {})}
    with replaced(
        {
            # Without Dynamo, which supports less of Python than tracing does.
            patches.COMPILE_BODY: instead(lambda function, args: function(*args)),
            patches.COMPILE: instead(lambda function=None, **_: function or (lambda decorated: decorated)),
            patches.COMPILE_CONTEXT: instead(nullcontext),
            patches.ASSOCIATIVE_SCAN: instead(generic_associative_scan),
            **{patches.HIGHER_ORDER[name]: _method(function) for name, function in functions.items()},
        }
    ):
        yield


def _method(function: Callable[..., Any]) -> Replacement:
    def call(_: Any, operator: Any, *args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return call


def reason_against_higher_order(node: Node) -> str:
    """Why a node that calls a higher-order operator cannot be compiled."""
    custom = node.args[0] if node.args and isinstance(node.args[0], OpOverload) else None
    if custom is not None:
        # auto_functionalized: an operator that changes its arguments, on copies of them.
        return f"it calls the custom operator {custom}, which changes its arguments"
    return "higher-order operators are not supported"
