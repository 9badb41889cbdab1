"""Lists of numbers, from columns of tables and from JSON, as arrays of the dtypes that a model takes."""

from __future__ import annotations

from typing import Any

import numpy as np


def converted(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A value as an array of a dtype.

    Raises:
        ValueError: a value is missing, is of another kind or beyond the range, or nested lists have unequal lengths.
    """
    if value is None:
        raise ValueError("the value is missing (null)")
    array = value if isinstance(value, np.ndarray) and value.dtype != object else np.array(_checked(value))
    if array.dtype == dtype:
        return array
    if array.size == 0:
        return array.astype(dtype)
    if not np.can_cast(array.dtype, dtype, "same_kind") and not (array.dtype.kind == "i" and dtype.kind == "u"):
        raise ValueError(f"got {array.dtype}")
    result = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(result, array):
        raise ValueError(f"got {array.dtype} with values beyond its range")
    return result


def _checked(value: Any) -> Any:
    """A nested list without missing elements."""
    if value is None:
        raise ValueError("an element is missing (null)")
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value
    return [_checked(element) for element in value] if isinstance(value, (list, np.ndarray)) else value
