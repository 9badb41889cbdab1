"""Encoders of ai.onnx.ml: categories to numbers, missing values to others, columns side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ... import scalar
from ...registry import NotLowerable, lowers
from ...scalar import Elem
from ...values import Tensor
from ..builder import OnnxBuilder
from .scores import F32, I64, constant

_STRINGS = "strings are not supported: encode them before the model"


def _found(b: OnnxBuilder, table: Tensor, count: int, key: Elem) -> tuple[Elem, Elem]:
    """In a body: the place of a key in a sorted table, and whether it is there."""
    place = scalar.constant(0, I64)
    step = 1 << max(count - 1, 0).bit_length()
    while step := step // 2:
        at = scalar.minimum(place + step, count - 1)
        place = scalar.select((place + step < count) & (b.extract(table, [at]) <= key), place + step, place)
    return place, b.extract(table, [place]).eq(key)


@lowers("onnx.LabelEncoder")
def label_encoder(b: OnnxBuilder, x: Tensor, **attributes: Any) -> Tensor:
    """The value of each key, or a default."""
    given = {name: v.tolist() if isinstance(v, torch.Tensor) else v for name, v in attributes.items()}
    if any("strings" in name or name == "classes_strings" for name in given):
        raise NotLowerable(_STRINGS)
    keys = next((given[f"keys_{kind}"] for kind in ("tensor", "int64s", "floats") if f"keys_{kind}" in given), None)
    kind = next((kind for kind in ("tensor", "int64s", "floats") if f"values_{kind}" in given), None)
    if keys is None or kind is None:
        raise NotLowerable("it has no keys or no values")
    values = given[f"values_{kind}"]
    dtype = attributes["values_tensor"].dtype if kind == "tensor" else I64 if kind == "int64s" else F32
    if "default_tensor" in given:
        default = attributes["default_tensor"].reshape(-1).tolist()[0]
    else:
        default = given.get("default_float", -0.0) if dtype.is_floating_point else given.get("default_int64", -1)
    # Of equal keys the first one counts. Nothing equals NaN, which has a value of its own.
    pairs = sorted({k: v for k, v in reversed(list(zip(keys, values, strict=True))) if k == k}.items())
    missing = next((v for k, v in zip(keys, values, strict=True) if k != k), default)
    if not pairs:
        raise NotLowerable("it has no keys")
    table = constant(b, [k for k, _ in pairs], x.dtype)
    results = constant(b, [v for _, v in pairs], dtype)

    def look_up(key: Elem) -> Elem:
        place, there = _found(b, table, len(pairs), key)
        other = scalar.constant(default, dtype)
        if x.dtype.is_floating_point:
            other = scalar.select(key.ne(key), scalar.constant(missing, dtype), other)
        return scalar.select(there, b.extract(results, [place]), other)

    return b.map(dtype, [x], look_up)


@lowers("onnx.OneHotEncoder")
def one_hot_encoder(
    b: OnnxBuilder,
    x: Tensor,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    zeros: int = 1,
) -> Tensor:
    """A dim more, with 1 at each element's category; a category that is not listed is an error without ``zeros``."""
    if cats_strings or not cats_int64s:
        raise NotLowerable(_STRINGS)
    order = sorted(range(len(cats_int64s)), key=lambda i: cats_int64s[i])
    table = constant(b, [cats_int64s[i] for i in order], I64)
    columns = constant(b, order, I64)
    count = len(order)

    def place(v: Elem) -> Elem:
        at, there = _found(b, table, count, v.to(I64))
        column = b.extract(columns, [at])
        unlisted = scalar.select(there, column, scalar.constant(count, I64))
        return unlisted if zeros else b.checked_index(unlisted, count, wrap=False)

    places = b.map(I64, [x], place)
    wide = b.broadcast(b.unsqueeze(places, x.rank), [*x.dims, count])
    return b.map(F32, [wide], lambda p: p.eq(scalar.loop_index(x.rank)).to(F32))


@lowers("onnx.Imputer")
def imputer(
    b: OnnxBuilder,
    x: Tensor,
    imputed_value_floats: Sequence[float] | None = None,
    imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Tensor:
    """x with one value, which may be NaN, replaced by another, the same for all features or for each its own."""
    floating = x.dtype.is_floating_point
    new = imputed_value_floats if floating else imputed_value_int64s
    old = replaced_value_float if floating else replaced_value_int64
    if not new:
        raise NotLowerable("it has no values to put in")
    if len(new) > 1:
        b.require_equal(x.dims[-1], len(new), f"the model was made for samples of {len(new)} features")
    filled = constant(b, list(new), x.dtype)

    def replaced(v: Elem, n: Elem) -> Elem:
        missing = v.ne(v) if floating and math.isnan(old) else v.eq(old)
        return scalar.select(missing, n, v)

    return b.map(x.dtype, [x, filled], replaced)


@lowers("onnx.FeatureVectorizer")
def feature_vectorizer(b: OnnxBuilder, *xs: Tensor, inputdimensions: Sequence[int] | None = None) -> Tensor:
    """The columns of all operands side by side, as floats."""
    rows = []
    for place, x in enumerate(xs):
        if x.rank > 2:
            raise NotLowerable(f"an operand of {x.rank} dims")
        row = x if x.rank == 2 else b.reshape(x, [1, x.dims[0]])
        if inputdimensions:
            b.require_equal(row.dims[1], inputdimensions[place], "an operand has another number of columns")
        rows.append(row if row.dtype == F32 else b.map(F32, [row], lambda v: v.to(F32)))
    return b.concat(rows, 1)
