"""Symbolic sizes of a traced program: their expressions, their ranges, and what PyTorch asks of them."""

from __future__ import annotations

from typing import Any

# What a user wrote for a dim without a name: Dim.AUTO, Dim.DYNAMIC and Dim.STATIC are of this class.
from torch.export.dynamic_shapes import _DimHint as DimHint
from torch.export.dynamic_shapes import _DimHintType as DimHintType

# The text of an exported program's conditions on its inputs.
from torch.export.exported_program import _convert_guards_to_code as guards_as_code

# backed_size_oblivious: a program is traced without the assumption that sizes are not 0 or 1. Its patch() is for one
# thread.
from torch.fx.experimental import _config as symbolic_config

# The object behind a SymInt, SymFloat or SymBool.
from torch.fx.experimental.sym_node import _NO_HINT as NO_HINT  # noqa: F401
from torch.fx.experimental.sym_node import SymNode as SymNode

# The errors of torch.export that become errors of DISC about dims.
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError as ConstraintViolationError

# How dynamic a new symbol is, and the range that the user declared.
from torch.fx.experimental.symbolic_shapes import DimDynamic as DimDynamic
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode as GuardOnDataDependentSymNode

# A condition on data-dependent sizes.
from torch.fx.experimental.symbolic_shapes import RuntimeAssert as RuntimeAssert

# The symbols of one program, with their ranges and the conditions asked of them.
from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint as StrictMinMaxConstraint

# The symbols in a value.
from torch.fx.experimental.symbolic_shapes import free_symbols as free_symbols
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols as free_unbacked_symbols

# Whether a condition holds for all sizes, asked without a condition on the inputs.
from torch.fx.experimental.symbolic_shapes import statically_known_true as statically_known_true

# PyTorch's own sympy functions, which expressions of sizes consist of: FloorDiv, Max, ToFloat and others.
from torch.utils._sympy import functions as torch_sympy
from torch.utils._sympy.functions import FloorDiv as FloorDiv
from torch.utils._sympy.functions import Max as Max
from torch.utils._sympy.functions import Min as Min
from torch.utils._sympy.functions import PythonMod as PythonMod

# Evaluates an expression with Python numbers or SymInts.
from torch.utils._sympy.interp import sympy_interp as sympy_interp

# The upper end of a range without one.
from torch.utils._sympy.numbers import int_oo as int_oo

# Expressions as Python source.
from torch.utils._sympy.printers import PythonPrinter as PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis as PythonReferenceAnalysis

# A relation solved for one of its symbols.
from torch.utils._sympy.solve import try_solve as try_solve

# The kinds of symbols, and how their names begin.
from torch.utils._sympy.symbol import SymT as SymT
from torch.utils._sympy.symbol import prefix_str as prefix_str
from torch.utils._sympy.symbol import symbol_is_type as symbol_is_type

# Ranges of symbols, and of expressions.
from torch.utils._sympy.value_ranges import ValueRanges as ValueRanges
from torch.utils._sympy.value_ranges import bound_sympy as bound_sympy

__all__ = [
    "ConstraintViolationError",
    "DimDynamic",
    "DimHint",
    "DimHintType",
    "FloorDiv",
    "GuardOnDataDependentSymNode",
    "Max",
    "Min",
    "PythonMod",
    "PythonPrinter",
    "PythonReferenceAnalysis",
    "RuntimeAssert",
    "ShapeEnv",
    "StrictMinMaxConstraint",
    "SymNode",
    "SymT",
    "ValueRanges",
    "bound_sympy",
    "count_change",
    "free_symbols",
    "free_unbacked_symbols",
    "guards_as_code",
    "hint_of",
    "int_oo",
    "prefix_str",
    "statically_known_true",
    "symbol_is_type",
    "symbolic_config",
    "sympy_interp",
    "torch_sympy",
    "try_solve",
]


def hint_of(env: ShapeEnv, expr: Any) -> Any:
    """The value of an expression of sizes, or of a condition on them, at the sizes of the example."""
    if hasattr(env, "guarding_hint_or_throw"):
        return env.guarding_hint_or_throw(expr)
    return bool(env.size_hint(expr)) if expr.is_Boolean or expr.is_Relational else env.size_hint(expr)  # torch 2.11


def count_change(env: ShapeEnv) -> None:
    """Has torch forget what it concluded from its facts about sizes: they have changed."""
    for counter in ("_version_counter", "_replacements_version_counter"):
        if hasattr(env, counter):  # torch 2.11 has the first one only
            setattr(env, counter, getattr(env, counter) + 1)
