"""Conditions on the extents of inputs that ``torch.export`` found while it traced a model.

Of a ``Dim`` they hold for the whole range, or exporting fails. Of ``Dim.AUTO`` and ``Dim.DYNAMIC`` they are kept beside
the program, and have to be checked when the compiled model is called.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from .. import errors
from ..torch_compat import pytree
from ..torch_compat.symbols import ShapeEnv, ValueRanges, guards_as_code, int_oo, torch_sympy
from .hints import declared, dims, environment, user_inputs
from .proving import assumed_numbers, holds_from, rounds_to_less

_LINES = "disc_guard_lines"
_OWN = "disc_own_guards"


@dataclass(frozen=True)
class EntryGuard:
    """A condition on the extents of inputs, to be checked at the entry of the compiled model."""

    condition: Any
    source: str | None
    """The line of the user's code that needs it, if that is known."""


def note_lines(program: ExportedProgram, lines: Mapping[str, str], own: Iterable[str] = ()) -> None:
    """Remembers which lines of the user's code ask for the conditions, and which it asks for itself, as ``if`` does."""
    program.graph_module.meta[_LINES] = dict(lines)
    program.graph_module.meta[_OWN] = frozenset(own)


def lines_of(program: ExportedProgram) -> dict[str, str]:
    """The conditions that the model's code asked for while it was traced, with their lines."""
    return dict(program.graph_module.meta.get(_LINES, {}))


def entry_guards(program: ExportedProgram) -> list[EntryGuard]:
    """The conditions that a program's symbols do not fulfil in their whole ranges, without 0 and 1."""
    env = environment(program)
    if env is None:
        return []
    lines = lines_of(program)
    found = [EntryGuard(condition, line) for condition, line in assumed_numbers(env).items()]
    given = declared(program)
    own = program.graph_module.meta.get(_OWN, ())
    for condition, text in _conditions(program, env):
        # torch.export has solved those over ranges of the user's; of those on several extents it takes no notice. The
        # program has the answer that the model's code was given. What operators ask for, their rules check.
        asked = text in own and len(condition.free_symbols) > 1
        if (condition.free_symbols <= given and not asked) or holds(env, condition, program.range_constraints):
            continue
        if not _unbounded(condition):
            found += [EntryGuard(part, lines.get(text)) for part in _parts(env, condition)]
    return found


def _parts(env: ShapeEnv, condition: Any) -> list[Any]:
    """Conditions that together say the same: of a maximum, what each of its operands must be, unless it always is."""
    if not isinstance(condition, (sympy.Le, sympy.Ge)):
        return [condition]
    less, more = condition.args if isinstance(condition, sympy.Le) else condition.args[::-1]
    if not isinstance(less, (sympy.Max, torch_sympy.Max)):
        return [condition]
    # What holds for the extents that torch.export considers may not hold for 0.
    numbers = [sympy.Le(arg, more, evaluate=False) for arg in less.args if arg.is_Integer]
    rest = [sympy.Le(arg, more) for arg in less.args if not arg.is_Integer]
    return [*numbers, *(part for part in rest if not rounds_to_less(env, part))]


def _unbounded(condition: Any) -> bool:
    """Whether a condition holds because ``sys.maxsize``, the end of ``x[1:]`` to PyTorch, stands for no bound."""
    return condition.xreplace({sympy.Integer(sys.maxsize): sympy.oo}) == sympy.true


def keep_bounds(program: ExportedProgram, specs: Sequence[Any]) -> None:
    """Notes the lower bounds of 2 that the user declared: a file does not separate them from torch.export's own."""
    env = environment(program)
    if env is not None:
        # Those that torch.export has solved over ranges of the user's are nothing to check.
        guards, given = env.guards, declared(program)
        env.guards = [guard for guard in guards if not env.replace(guard.expr).free_symbols <= given]
        program._guards_code = guards_as_code(program.graph_module)
        env.guards = guards
    for _, dim, size, spec in dims(program, specs):
        if env is None or dim is None or not isinstance(size, torch.SymInt) or getattr(spec, "min", None) != 2:
            continue
        sources = env.var_to_sources.get(size.node._expr)
        if sources:
            name: Any = sources[0].name
            program._guards_code.append(f"{name() if callable(name) else name} >= 2")


def requires_two(program: ExportedProgram, symbol: sympy.Symbol) -> bool:
    """Whether the model's code itself asks for an extent of 2 or more."""
    env = environment(program)
    wanted = (sympy.Ge(symbol, 2), sympy.Gt(symbol, 1))
    if env is None:
        return False
    written = [_parsed(program, code) for code in program._guards_code if code.endswith(" >= 2")]
    return any(condition in wanted for condition in (*written, *(found for found, _ in _conditions(program, env))))


def allows_negative(program: ExportedProgram, symbol: sympy.Symbol) -> bool:
    """Whether the conditions of the model's code hold for all negative values of a number among its inputs."""
    env = environment(program)
    if env is None:
        return False
    concerned = [found for found, _ in _conditions(program, env) if symbol in found.free_symbols]
    ranges = {**program.range_constraints, symbol: ValueRanges(-int_oo, sympy.Integer(-1))}
    return all(_holds_in(env, condition, ranges) for condition in concerned)


def with_sources(env: ShapeEnv, expr: Any) -> str:
    """A condition with the places in the inputs for its symbols."""
    text = str(expr)
    for symbol in sorted(expr.free_symbols, key=lambda s: -len(str(s))):
        sources = env.var_to_sources.get(symbol)
        if sources:
            name: Any = sources[0].name
            text = re.sub(rf"\b{symbol}\b", lambda _: name() if callable(name) else name, text)  # noqa: B023
    return text


def _conditions(program: ExportedProgram, env: ShapeEnv) -> list[tuple[Any, str]]:
    """The conditions over the symbols of the inputs, and their texts."""
    if env.guards:
        inside = [g.expr for g in env.guards if all(s in env.var_to_sources for s in g.expr.free_symbols)]
        return [(env.replace(expr), with_sources(env, expr)) for expr in inside]
    return [(_parsed(program, code), code) for code in program._guards_code]


def holds(env: ShapeEnv, condition: Any, ranges: Mapping[sympy.Symbol, Any]) -> bool:
    """Whether a condition holds for all extents that torch.export considers."""
    known, least = {}, sympy.Integer(0)
    for symbol in condition.free_symbols:
        given = ranges.get(symbol) or env.var_to_range.get(symbol)
        if given is None:
            return False
        known[symbol] = ValueRanges(max(given.lower, sympy.Integer(2)), max(given.upper, sympy.Integer(2)))
        least = given.lower
    if _holds_in(env, condition, known):
        return True
    return len(known) == 1 and least.is_Integer and least >= 0 and holds_from(condition, int(least)) is True


def _holds_in(env: ShapeEnv, condition: Any, ranges: Mapping[sympy.Symbol, Any]) -> bool:
    known = {s: ranges.get(s) or env.var_to_range.get(s) for s in condition.free_symbols}
    if None in known.values():
        return False
    answer = env._maybe_evaluate_static(condition, axioms=(), var_to_range=tuple(known.items()))
    return answer is not None and bool(answer)


def _parsed(program: ExportedProgram, code: str) -> Any:
    """A condition of a program that was read from a file, where it is the text of a Python expression."""
    known = {"L": _arguments(program), "math": math, "torch": torch, "int": int, "min": min, "max": max}
    try:
        tree = ast.parse(code, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id not in known:
                raise NameError(f"unknown name {node.id}")
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                raise NameError(f"unknown attribute {node.attr}")
        value = eval(compile(tree, "<guard>", "eval"), {**known, "__builtins__": {}})
    except Exception as error:
        raise errors.ProgramError(
            "import", f"the exported program has a condition on its inputs that cannot be read: {code} ({error})"
        ) from error
    if isinstance(value, torch.SymBool):
        return value.node.expr
    if value is not True:
        raise errors.ProgramError("import", f"the exported program has a condition that its inputs contradict: {code}")
    return sympy.true


def _arguments(program: ExportedProgram) -> dict[str, Any]:
    """The arguments of the program, of fake tensors, under the names that its conditions use."""
    leaves = user_inputs(program)
    assert program.call_spec.in_spec is not None
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    signature = program.module_call_graph[0].signature
    names: Sequence[str] = (signature.forward_arg_names if signature is not None else None) or ()
    known = {**dict(zip(names, args, strict=False)), **kwargs, "flat_args": leaves, "args": args}
    return _Arguments(known)


class _Arguments(dict[str, Any]):
    """Arguments by name; those of ``*rest`` are ``rest_0``, ... and those of ``**more`` have their names."""

    def __missing__(self, name: str) -> Any:
        known = self

        class Variadic:
            def __getitem__(self, key: int | str) -> Any:
                return known[f"{name}_{key}" if isinstance(key, int) else key]

        return Variadic()
