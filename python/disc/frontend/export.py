"""``torch.export`` as we use it: tried again where it takes too much for granted; errors name dims and lines."""

from __future__ import annotations

import functools
import itertools
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from .. import errors
from ..logs import log
from ..timeline import part
from ..torch_compat import patches, pytree, quiet
from ..torch_compat.patching import is_between, replaced
from ..torch_compat.symbols import ShapeEnv, ValueRanges, symbolic_config
from ..torch_compat.tracing import UnsupportedOperatorException
from ..trees import Unknown, by_rows
from . import (
    attributes,
    cached_results,
    enlarged_examples,
    enum_arguments,
    equal_dims,
    example,
    hints,
    jagged_tracing,
    layout_questions,
    meta_kernels,
    module_conversions,
    multiples,
    replaced_buffers,
)
from .argument_paths import leaf_names, signature_of
from .entry_guards import EntryGuard, allows_negative, entry_guards, lines_of, note_lines, requires_two, with_sources
from .facts import forgetting_counts
from .function_transforms import NeedsGradients, Tracing, check_same, recorded_below
from .higher_order import flattened
from .locations import is_user_file, is_user_line, source_of_error, source_of_trace, user_frames, warn
from .model_errors import message_of, model_error, raise_failure
from .older_torch import traces_as_the_newest
from .proving import is_proved, places_of_symbols, positive_symbols, proved_by_trying, zeros_were_made
from .readable import readable, requirement
from .recurrent import kept_whole
from .recursion import kept_recursion
from .rewriting.conditions import narrowing_hints
from .rewriting.convert import rewritten
from .rewriting.hooks import ASKED, NeedsRewriting, guarded, is_builtin, needs_rewriting
from .rewriting.recursion import Recursive, endless
from .script_operators import numbers_in_python
from .scripted import traced_through
from .settle import allowing_many, settle, sizes_from_zero
from .sharing import check_sharing
from .size_refinements import Refinement, applied, lines_to_write, suggested
from .slice_lengths import slices_of_declared_sizes
from .state_tensors import HELP, NeedsState, check_constants, unchanged_by_tracing
from .symbol_texts import names_of_places, with_places
from .symbols import flatten_dynamic_shapes, parameter_names
from .torchscript import without_scripts

_DISC = str(Path(__file__).parents[1])
_VIOLATED = "Constraints violated"
# Conditions that contradict each other leave no extent, of which torch.export cannot even make a message.
_NARROWED = "Cannot create Dim with inconsistent"
# What torch.export adds to all errors.
_ADVICE = "The error above occurred when calling torch.export.export"
_NESTED = Path(torch.nested.__file__).parent
_SATISFY = "satisfy the generated guard"
_FIXES = re.compile(r"^Eq\(.*\], \d+\)$")
_DIM = re.compile(r"(?:Not all values of|You marked) ([\w*]+|\w+\.shape\[\d+\]|L\[.+?\]\.size\(\)\[\d+\]) ")
_RELATED = re.compile(r"- The values of (\w+) = ")
_CONSTANT = re.compile(r"You marked (\S+) as dynamic but .+? constant \((\d+)\)")
_TRACED_CONSTANT = "found a fake tensor in the exported program constant"
_UNKNOWN_TYPE = re.compile(r"^(?:Unsupported input type|Found) <class '([^']+)'>")
_PLACE = re.compile(
    r"Not all values of (\w+) = (L\[.+?\]\.size\(\)\[\d+\]) in the specified range satisfy the generated guard (.+)"
)
_TRIED = 100
_MOST_EXCLUDED = 8
_MOST_LINES = 4
"""Torch has many conditions for what is one requirement."""


@dataclass(frozen=True)
class _Guard:
    """A condition on extents that the model's code asked for while it was traced."""

    env: ShapeEnv = field(compare=False)
    condition: Any
    source: str
    number: bool = False
    """Whether the code made a number of Python of an extent, which fixes it."""
    own: bool = False
    """Whether the model's code itself asked, as ``if`` does, and not an operator of PyTorch."""

    @functools.cached_property
    def text(self) -> str:
        """The condition with the places in the inputs for its symbols; only messages need the text."""
        return with_sources(self.env, self.condition)

    def fails_for_some_size(self) -> bool:
        """Whether the condition is one on a single size, and does not hold in all of its range; False if unknown."""
        if not isinstance(self.condition, sympy.Basic) or len(self.condition.free_symbols) != 1:
            return False
        (symbol,) = self.condition.free_symbols
        bounds = self.env.var_to_range.get(symbol)
        if bounds is None or not bounds.lower.is_Integer:
            return False
        low = int(bounds.lower)
        high = min(int(bounds.upper), low + _TRIED) if bounds.upper.is_Integer else low + _TRIED
        sizes = map(sympy.Integer, range(low, high + 1))
        return any(self.condition.xreplace({symbol: size}) is sympy.false for size in sizes)


_MOST_REFINEMENTS = 8
"""After so many refinements of its dims a model's requirements are taken to have no end."""


def refined_export(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    differentiated: bool = False,
) -> tuple[ExportedProgram, Any]:
    """The program of ``module``, and the ``dynamic_shapes`` it serves.

    Where the model works for some sizes of a named ``Dim`` only, those within a range or multiples, the dim is refined
    and a warning says how. What would fix a dim, or tie it to another one, is an error with the line to write.
    """
    for _ in range(_MOST_REFINEMENTS):
        try:
            return export(module, args, kwargs, dynamic_shapes, differentiated), dynamic_shapes
        except errors.DynamicDimError as error:
            found = applied(dynamic_shapes, error.without_zero) or applied(dynamic_shapes, error.refinements)
            if found is None:
                # An example of size 1 fixes its dim only where tracing without that assumption fails, which may be
                # for the other requirements.
                found = applied(dynamic_shapes, [r for r in error.refinements if not r.fixed or r.offset != 1])
            if found is None:
                lines = lines_to_write(dynamic_shapes, error.refinements)
                raise (error.with_help(_advice(lines)) if lines else error) from error.__cause__
            dynamic_shapes, lines = found
            log.debug("dims are refined: %s", "; ".join(lines))
            why = f": {error.reason}" if error.reason else ""
            warn(f"the model works for some sizes of its dims only, and is compiled for {'; '.join(lines)}{why}")
    return export(module, args, kwargs, dynamic_shapes, differentiated), dynamic_shapes


def _advice(lines: Sequence[str]) -> str:
    text = "\n".join(f"    {line}" for line in dict.fromkeys(lines))
    return f"write this, or mark the dim as Dim.AUTO, which finds it by itself:\n{text}"


def export(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    differentiated: bool = False,
) -> ExportedProgram:
    """``torch.export`` of ``module``, with its errors as :class:`~disc.errors.CompileError`.

    Export takes extents for other than 0 and 1, and refuses a dim whose range has them where a model's code depends on
    that (broadcasting, mostly). Such models are traced again without the assumption: what broadcasts is then checked
    when the compiled model is called. A model that calls ``torch.autograd.grad`` is traced again with gradients.
    ``differentiated``: the program is that of a loss, whose code runs with gradients.
    """
    gradients = False
    states: list[torch.Tensor] = []
    while True:
        try:
            with (
                torch.set_grad_enabled(differentiated),
                _tracing(module),
                _user_names(module, args, kwargs, dynamic_shapes),
                recorded_below(gradients, differentiated) as tracing,
            ):
                return _attempts(module, args, kwargs, dynamic_shapes, tracing, states)
        except NeedsGradients:
            log.debug("the model is traced again with gradients")
            gradients = True
        except NeedsState as needed:
            new = [tensor for tensor in needed.tensors if not any(tensor is known for known in states)]
            if not new:
                raise errors.InternalError("import", "tensors that calls change are not found in the model") from None
            log.debug("the model is traced again with %d more tensors as state", len(new))
            states += new


@contextmanager
def _user_names(module: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any) -> Iterator[None]:
    """Errors that are raised inside have names of dims and places in the arguments for torch's symbols."""
    try:
        yield
    except errors.CompileError as error:
        leaves = leaf_names(signature_of(module), args, kwargs or {})
        specs = flatten_dynamic_shapes(dynamic_shapes, args, kwargs or {}, parameter_names(module))
        names, places = names_of_places(leaves, specs), places_of_symbols()
        error.reword(lambda text: with_places(text, places, names))
        raise


def _attempts(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    tracing: Tracing,
    states: Sequence[torch.Tensor],
) -> ExportedProgram:
    with attributes.noticed(module) as changes:
        args, kwargs = _distinct(args, kwargs)

        def traced() -> ExportedProgram:
            with part("torch.export"):
                with user_frames(), replaced_buffers.as_updates(module, states) as buffers:
                    tracing.second = False
                    program = _traced(module, args, kwargs, dynamic_shapes)
                    if tracing.takes_numbers:
                        tracing.second = True
                        check_same(program, _traced(module, args, kwargs, dynamic_shapes))
                check_sharing(program)
                changes.report(program)
                buffers.report(program)
                settle(program.graph)
                enum_arguments.settle(program)
                return program

        fixed: list[_Fixed] = []
        try:
            return traced()
        except errors.ArgumentError:
            raise
        except (Exception, NeedsRewriting) as error:
            if not (needs_rewriting(error) or isinstance(error, errors.DynamicDimError) or _is_the_models(error)):
                raise_failure(_failure(error), error)
            if (
                isinstance(error, errors.DynamicDimError)
                and not error.asked_by_model
                and applied(dynamic_shapes, error.refinements) is not None
            ):
                raise  # PyTorch's own code asks for a range or for multiples, in whatever way the model is written.
            first = error
            fixed += _programs(error)
        log.debug("the model is traced again with its control flow rewritten: %s", str(first).partition("\n")[0])
        why: BaseException | None = None
        unset: BaseException | None = None
        with rewritten(module) as converter, by_rows():
            while True:
                try:
                    return traced()
                except Recursive as found:
                    converter.recursion.mark(found)
                except (Exception, NeedsRewriting) as error:
                    why = why or error
                    fixed += _programs(error)
                    if converter.recursion.unroll():
                        continue
                    if needs_rewriting(error) and converter.include(error):
                        why = None
                        continue
                    if converter.keep(error):
                        unset, why = unset or why, None
                        continue
                    break
        if unset is not None and not isinstance(why, errors.CompileError):
            why = unset
        if fixed:
            least = min(fixed, key=lambda found: len(found.dims))
            warn(f"{least.error.diagnostic}{' (Dim.AUTO allows it)' if least.dims else ''}")
            check_sharing(least.program)
            check_constants(least.program, changes.records)
            settle(least.program.graph)
            return least.program
        # The conditions are then checked when the compiled model is called.
        by_example = hints.are_given(dynamic_shapes) or isinstance(first, NeedsRewriting)
        narrowed = _narrowed(traced) if by_example else None
        if narrowed is not None:
            return narrowed
        if isinstance(first, (errors.DynamicDimError, Unknown)) and not isinstance(why, errors.DynamicDimError):
            raise first from why
        raise_failure(converter.explained(why), why)


@contextmanager
def _tracing(module: torch.nn.Module) -> Iterator[None]:
    """Replaces what DISC traces in a way of its own, in this thread; other threads that enter it wait."""
    ways = (
        traced_through(),
        numbers_in_python(),
        kept_whole(),
        guarded(),
        kept_recursion(module),
        flattened(),
        proved_by_trying(),
        equal_dims.equal_from_the_start(),
        _unprinted(),
        allowing_many(),
        sizes_from_zero(),
        forgetting_counts(),
        layout_questions.answered_by_the_example(),
        multiples.as_products(),
        slices_of_declared_sizes(),
        module_conversions.only_if_needed(),
        meta_kernels.sizes_of_windows(),
        cached_results.made_once(),
        jagged_tracing.taken_apart(),
        enum_arguments.as_constants(),
        without_scripts(module),
        traces_as_the_newest(),
        unchanged_by_tracing(),
    )
    with ExitStack() as stack:
        # A with statement has at most 20 of them.
        for one in ways:
            stack.enter_context(one)
        yield


def _narrowed(traced: Callable[[], ExportedProgram]) -> ExportedProgram | None:
    """The program of the sizes that take the example's side of each condition; None if that fails, too."""
    with narrowing_hints():
        try:
            return traced()
        except (Exception, NeedsRewriting):
            return None


@contextmanager
def _unprinted() -> Iterator[None]:
    """``torch.export`` prints the graph as far as it came when it fails, which is how control flow on data begins."""

    def nothing(*_: Any, **__: Any) -> None:
        pass

    with (
        replaced({patches.PRINT: nothing}),
        quiet.FAILING_OPERATORS.silenced(),
        quiet.STATIC_DIMS.silenced(),
        quiet.UNMARKED_DIMS.silenced(),
    ):
        yield


@dataclass(frozen=True)
class _Fixed:
    """What was traced where the model's code converts a dynamic size to a number: it serves that size alone."""

    error: errors.FixedSizeError
    program: ExportedProgram
    dims: Sequence[str]
    """The dims, marked ``Dim.AUTO``, that are static in it."""


def _fixed(program: ExportedProgram, dims: Sequence[str], guards: Sequence[_Guard]) -> errors.FixedSizeError:
    lines = list(dict.fromkeys(requirement(guard.source, guard.text) for guard in guards))
    where = " and ".join(dims) or "the inputs"
    text = f"{where} can have sizes like the example's only: {'; '.join(lines[:4])}"
    error = errors.FixedSizeError("import", text, guards[0].source)
    error.traced = program, tuple(dims)
    return error


def _programs(error: BaseException) -> list[_Fixed]:
    if not isinstance(error, errors.FixedSizeError) or error.traced is None:
        return []
    return [_Fixed(error, *error.traced)]


def _is_the_models(error: BaseException) -> bool:
    """Whether an operation of the model's own code failed: numbers that Python knows may be no numbers of torch."""
    trace = traceback.extract_tb(error.__traceback__)
    # PyTorch's numbers do not have all operators of Python's: two conditions on sizes cannot be compared.
    numbers = isinstance(error, TypeError) and bool(trace) and Path(trace[-1].filename).name == "sym_node.py"
    own = bool(trace) and (is_user_line(trace[-1].filename) or "SymInt" in str(error) or numbers)
    return own and not isinstance(error, errors.CompileError)


def _failure(error: BaseException) -> errors.CompileError:
    if isinstance(error, errors.CompileError):
        return error
    text = message_of(error)
    source = source_of_error(error)
    if _TRACED_CONSTANT in text:
        return errors.ControlFlowError(
            "import",
            "a branch or a loop on data keeps a tensor at a place that is not an attribute, an element of a list or"
            " dict, or a variable, and the code after it reads it there",
            source,
            help=HELP,
        )
    if isinstance(error, UnsupportedOperatorException):
        text = f"{text} has no fake kernel, which says the shape of its result: see torch.library.register_fake"
        if any(Path(frame.filename).parent == _NESTED for frame in traceback.extract_tb(error.__traceback__)):
            text = f"strided nested tensors are not supported: use layout=torch.jagged ({text})"
        return errors.FakeKernelError("import", f"torch.export failed: {text}", source)
    if found := _UNKNOWN_TYPE.search(text):
        kind = found[1].rpartition(".")[2]
        role = "a result of the model" if text.startswith("Found") else "an argument of the example"
        advice = (
            "pass tensors, numbers, strings, functions, dtypes, slices and None, and return tensors, numbers, strings"
            " and None, alone or in tuples, lists, dicts, dataclasses and NamedTuples; or register"
            f" {kind} with torch.utils._pytree.register_pytree_node"
        )
        return errors.UnsupportedTypeError("import", f"{role} is of the unsupported type {found[1]}", help=advice)
    return endless(error) or model_error(error) or errors.ExportError("import", f"torch.export failed: {text}", source)


def _traced(module: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any) -> ExportedProgram:
    if hints.are_given(dynamic_shapes):
        return _traced_by_hints(module, args, kwargs, dynamic_shapes)
    return _traced_by_dims(module, args, kwargs, dynamic_shapes)


def _traced_by_hints(module: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any) -> ExportedProgram:
    """A program whose dims are as dynamic as possible: ``torch.export`` narrows those without a declared range.

    It is traced first with the assumption that extents are neither 0 nor 1. Where that costs more than these two, it
    is traced without, unless the outcome does not hold for the example; where sizes may be 0, both are tried with
    symbols that are positive, too. Before that, an example that has such sizes is
    replaced by a larger one, if the program then serves its own sizes, too.
    """
    specs = flatten_dynamic_shapes(dynamic_shapes, args, kwargs, parameter_names(module))
    names = leaf_names(signature_of(module), args, kwargs)
    programs: list[tuple[ExportedProgram, list[_Guard]]] = []
    failed: Exception | None = None
    larger = enlarged_examples.enlarged(args, kwargs, specs)
    attempts = [(args, kwargs, oblivious, zeros) for zeros in (True, False) for oblivious in (False, True)]
    zeros_were_made()
    made = False
    for mine, named, oblivious, zeros in [*((*more, True, True) for more in larger), *attempts]:
        made |= zeros_were_made()
        if programs and mine is not args:
            continue  # a larger example serves
        if not (zeros or made):
            break  # It would be the same.
        guards: list[_Guard] = []
        try:
            with (
                nullcontext() if zeros else positive_symbols(),
                symbolic_config.patch(backed_size_oblivious=oblivious),  # type: ignore[attr-defined]
                _recorded(guards),
            ):
                program = torch.export.export(module, mine, named, dynamic_shapes=dynamic_shapes)
        except Exception as error:
            if mine is not args:
                continue
            if isinstance(error, errors.CompileError) or needs_rewriting(error):
                raise
            failed = failed or error
            continue
        if mine is args and oblivious and (node := example.differing(program)):
            failed = _differs(node, hints.ones((args, kwargs), names, specs))
            continue
        own = (guard.text for guard in guards if guard.own or guard.number)
        note_lines(program, {guard.text: guard.source for guard in guards}, own)
        # The second trace takes numbers for positive and notes no condition.
        program._range_constraints = hints.without_assumed_bounds(
            program,
            specs,
            lambda s: requires_two(program, s),  # noqa: B023
            lambda s: not oblivious and allows_negative(program, s),  # noqa: B023
        )
        for guard, *_, value in _singles(program, specs):
            program._range_constraints[guard.condition.lhs] = ValueRanges(value, value)
        if mine is not args:
            program._example_inputs = (tuple(args), dict(kwargs or {}))
            if any(guard.number for guard in guards) or not enlarged_examples.serves(program, args, kwargs, specs):
                continue
        programs.append((program, guards))
        if not any(hints.narrowed(program, specs)) and not entry_guards(program):
            break
    if not programs:
        assert failed is not None
        if any(text in str(failed) for text in (_VIOLATED, _NARROWED)):
            return _traced_by_dims(module, args, kwargs, dynamic_shapes)
        raise failed

    def costs(traced: tuple[ExportedProgram, list[_Guard]]) -> tuple[int, bool, int]:
        fixed, bounded = hints.narrowed(traced[0], specs)
        fixed += len(_singles(traced[0], specs))
        return fixed, fixed + bounded > 0, len(entry_guards(traced[0]))

    program, guards = min(programs, key=costs)
    if failed is not None:
        _refuse_single(program, names, specs)
    numbers = [guard for guard in guards if guard.number]
    if numbers:
        raise _fixed(program, hints.fixed(program, names, specs), numbers)
    hints.check_fixed(program, names, specs, lines_of(program))
    taken = [requirement(guard.source, guard.text) for guard in guards]
    hints.check_narrowed(program, names, specs, taken)
    return program


def _differs(node: torch.fx.Node, ones: str) -> errors.DynamicDimError:
    text = f"{ones} 1 in the example, for which the model does something else than for larger sizes"
    source = source_of_trace(node.meta.get("stack_trace", ""))
    return errors.DynamicDimError("import", f"{text}: use an example of 2 or more", source)


def _singles(program: ExportedProgram, specs: Sequence[Any]) -> list[tuple[EntryGuard, int, int, int]]:
    """The conditions that take a dynamic dim for the example's 0 or 1: with the input, the dim and the size."""
    places = {}
    for leaf, dim, size, spec in hints.dims(program, specs):
        if hints.is_hint(spec) and dim is not None and isinstance(size, torch.SymInt):
            value = size.node.shape_env.backed_var_to_val.get(size.node.expr)
            if value in (0, 1):
                places[sympy.Eq(size.node.expr, value)] = leaf, dim, int(value)
    return [(guard, *places[guard.condition]) for guard in entry_guards(program) if guard.condition in places]


def _refuse_single(program: ExportedProgram, names: Sequence[str], specs: Sequence[Any]) -> None:
    """Refuses a dynamic dim that the model's code takes for 0 or 1 because the example has that there."""
    for guard, leaf, dim, value in _singles(program, specs):
        text = f"input {names[leaf]}, dim {dim} is {value} in the example, and the model's code takes it for {value}"
        raise errors.DynamicDimError("import", f"{text}: use Dim.AUTO, or another example", guard.source)


def _note_own(program: ExportedProgram, guards: Sequence[_Guard]) -> None:
    """Remembers what the model's code itself asked for, and what an operator takes as a number of Python."""
    own = {guard.text: guard.source for guard in guards if guard.own or guard.number}
    note_lines(program, own, own)


def _traced_by_dims(module: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any) -> ExportedProgram:
    """The program for all sizes of named dims. Where they may be 0, conditions say less: none is divided by."""
    zeros_were_made()
    try:
        return _traced_with_symbols(module, args, kwargs, dynamic_shapes)
    except errors.DynamicDimError:
        if not zeros_were_made():
            raise
        try:
            with positive_symbols():
                return _traced_with_symbols(module, args, kwargs, dynamic_shapes)
        except Exception as error:
            log.debug("positive symbols do not help: %s", str(error).partition("\n")[0])
        raise


def _traced_with_symbols(module: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any) -> ExportedProgram:
    first: list[_Guard] = []
    try:
        with _recorded(first):
            program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
        if numbers := [guard for guard in first if guard.number]:
            _note_own(program, first)
            raise _fixed(program, [], numbers)
        _note_own(program, first)
        return program
    except Exception as error:
        if isinstance(error, errors.CompileError) or not any(text in str(error) for text in (_VIOLATED, _NARROWED)):
            raise
        refused = error
    if str(refused).count(_SATISFY) == 1 and any(guard.own and guard.fails_for_some_size() for guard in first):
        specs = flatten_dynamic_shapes(dynamic_shapes, args, kwargs, parameter_names(module))
        if not enlarged_examples.enlarged(args, kwargs, specs, named=True):
            raise _refusal(refused, first) from refused  # The other trace would ask the same.
    guards: list[_Guard] = []
    try:
        with symbolic_config.patch(backed_size_oblivious=True), _recorded(guards):  # type: ignore[attr-defined]
            program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        if (of_larger := _by_larger(module, args, kwargs, dynamic_shapes)) is not None:
            return of_larger
        # What says least is nearest to what the user can do about it.
        if str(refused).count(_SATISFY) <= str(error).count(_SATISFY) or _VIOLATED not in str(error):
            raise _refusal(refused, first) from refused
        raise _refusal(error, guards) from error
    if node := example.differing(program):
        names = leaf_names(signature_of(module), args, kwargs)
        specs = flatten_dynamic_shapes(dynamic_shapes, args, kwargs, parameter_names(module))
        raise _differs(node, hints.ones((args, kwargs), names, specs))
    _note_own(program, guards)
    return program


def _by_larger(module: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any) -> ExportedProgram | None:
    """The program traced with an example that is larger where it is 0 or 1, if it serves the example, too."""
    specs = flatten_dynamic_shapes(dynamic_shapes, args, kwargs, parameter_names(module))
    larger = enlarged_examples.enlarged(args, kwargs, specs, named=True)
    for (mine, named), oblivious in itertools.product(larger, (False, True)):
        guards: list[_Guard] = []
        try:
            with symbolic_config.patch(backed_size_oblivious=oblivious), _recorded(guards):  # type: ignore[attr-defined]
                program = torch.export.export(module, mine, named, dynamic_shapes=dynamic_shapes)
        except Exception as error:
            log.debug("a larger example does not help: %s", str(error).partition("\n")[0])
            continue
        program._example_inputs = (tuple(args), dict(kwargs or {}))
        _note_own(program, guards)
        if not any(guard.number for guard in guards) and enlarged_examples.serves(program, args, kwargs, specs):
            return program
    return None


def _refusal(error: Exception, guards: Sequence[_Guard]) -> errors.CompileError:
    text = str(error).split(_ADVICE)[0].rstrip()
    dims = list(dict.fromkeys(map(readable, [*_DIM.findall(text), *_RELATED.findall(text)])))
    conditions = re.findall(
        r"Not all values of (.+?) satisfy the generated guard (.+?)(?:Specializations unexp.*)?$", text, re.M
    )
    lines = [f"{readable(where)} must satisfy {readable(condition.rstrip('.'))}" for where, condition in conditions]
    fixed = list(dict.fromkeys(_CONSTANT.findall(text)))
    lines += [f"{readable(name)} is {value} in the model's code" for name, value in fixed]
    lines += [readable(line) for line in re.findall(r"- The values of (.+?)\.$", text, re.MULTILINE)]
    if not lines:
        lines = [readable(text)]
    distinct = list(dict.fromkeys(guards))
    found = [guard for guard in distinct if _FIXES.search(guard.text)]
    found += [guard for guard in distinct if guard not in found and _concerns(guard, text)]
    found = found or distinct
    needs = [requirement(guard.source, guard.text) for guard in found]
    names = ", ".join(dims) or "a dim"
    head = f"{names}: the model's code does not work for the whole range of a dynamic dim, or fixes it"
    # Several conditions are one problem: the last line is where the tightest one comes from.
    source = found[0].source if found else None
    refinements = [
        *suggested(text),
        *(Refinement(name, offset=int(n), fixed=True) for name, n in fixed if name.isidentifier()),
    ]
    return errors.DynamicDimError(
        "import",
        "\n  ".join([head, *lines[:_MOST_LINES], *needs[:_MOST_LINES]]),
        source,
        refinements=refinements,
        without_zero=_without_zero(text),
        reason=needs[0] if needs else "",
        asked_by_model=any(guard.own or guard.number for guard in guards),
    )


def _without_zero(text: str) -> list[Refinement]:
    """Ranges from 1 on, if only 0 may violate what torch.export says of named dims, as ``max(1, n // 2) <= n``.

    It takes sizes for 2 or more, and says ``n // 2 <= n``. A few more may violate it, too: one row has no two chunks.
    A few sizes are tried: the next trace shows if it is so.
    """
    found: dict[str, int] = {}
    for name, place, condition in _PLACE.findall(text):
        code = condition.partition("Specializations")[0].rstrip(".").replace(place, "n")
        try:
            fails = [n for n in range(1, _TRIED) if "[" in code or not _holds(code, n)]
        except (ArithmeticError, SyntaxError, NameError, TypeError):
            return []
        found[name] = max(found.get(name, 1), 1 + max(fails, default=0))
    return (
        [] if any(low > _MOST_EXCLUDED for low in found.values()) else [Refinement(n, low=x) for n, x in found.items()]
    )


def _holds(code: str, n: int) -> bool:
    return bool(eval(code, {"__builtins__": {}, "n": n, "min": min, "max": max, "math": math}))


def _concerns(guard: _Guard, text: str) -> bool:
    return any(place in text for place in re.findall(r"L\['\w+'\](?:\.size\(\)\[\d+\])?", guard.text))


@contextmanager
def _recorded(guards: list[_Guard]) -> Iterator[None]:
    """Notes the line of the user's code behind each guard that is installed inside."""

    def record(original: Any, env: ShapeEnv, prefix: str, g: Any, forcing_spec: bool) -> None:
        stack = [(frame.f_code, line) for frame, line in traceback.walk_stack(sys._getframe())]
        stack = [(code, line) for code, line in stack if not (is_between(code) or is_builtin(code))]
        files = ((code.co_filename, line) for code, line in stack)
        place = next(((f, line) for f, line in files if is_user_file(f) and not f.startswith(_DISC)), None)
        if place is not None and not any(equal_dims.asks(code) for code, _ in stack):
            number = any(code.co_name in ("guard_int", "guard_float") for code, _ in stack) and not is_proved(env, g)
            asking = [caller for (code, _), (caller, _) in itertools.pairwise(stack) if code in ASKED]
            own = any(is_user_line(code.co_filename) for code in asking)
            guards.append(_Guard(env, g, f"{place[0]}:{place[1]}", number, own))
        original(env, prefix, g, forcing_spec)

    with replaced({patches.LOG_GUARD: record}):
        yield


def _distinct(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example inputs with no tensor twice: ``torch.export`` takes two inputs that are one object for one input."""
    seen: set[int] = set()

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) in seen:
                return value.clone()
            seen.add(id(value))
        return value

    distinct: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(leaf, (tuple(args), dict(kwargs or {})))
    return distinct
