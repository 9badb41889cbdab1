"""Lists of numbers, from columns of tables and from JSON, as arrays of the dtypes that a model takes."""

from __future__ import annotations

from typing import Any

import numpy as np


def converted(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A value as an array of a dtype; ValueError if it is missing, has no such numbers, or rows of unequal length."""
    if value is None:
        raise ValueError("the value is missing (null)")
    array = np.asarray(value)
    if array.dtype == object:
        array = np.array([_nested(element) for element in array.tolist()])
    if array.dtype == dtype:
        return array
    if array.size == 0:
        return array.astype(dtype)
    if not np.can_cast(array.dtype, dtype, "same_kind") and not (array.dtype.kind == "i" and dtype.kind == "u"):
        raise ValueError(f"got {array.dtype}")
    converted = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(converted, array):
        raise ValueError(f"got {array.dtype} with values beyond its range")
    return converted


def _nested(value: Any) -> Any:
    if value is None:
        raise ValueError("a value in the list is missing (null)")
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_nested(element) for element in value.tolist()]
    return value
