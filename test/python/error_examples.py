"""An error of each class of disc.errors."""

import inspect

from disc import errors


def kinds():
    classes = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in classes if issubclass(kind, BaseException) and hasattr(kind, "code")]


class Unpicklable(Exception):
    """One that Python pickles and cannot read again."""

    def __init__(self, name, *, size):
        super().__init__(f"{name} of {size}")


def examples():
    """An error of each class, with all of its attributes."""
    ops = [errors.UnsupportedOp("torch.aten.topk", "m.py:3", "no rule")]
    dynamic = {"refinements": ("batch % 8 == 0",), "reason": "m.py:3", "asked_by_model": False, "help": "do"}
    fixed = errors.FixedSizeError("import", "a number", "m.py:1", **dynamic)
    fixed.traced = (lambda: 0, ("batch",))
    special = {
        errors.UnsupportedOpError: [errors.UnsupportedOpError(ops)],
        errors.DynamicDimError: [errors.DynamicDimError("import", "not for all", "m.py:1", **dynamic)],
        errors.FixedSizeError: [fixed],
        errors.ModelError: [
            errors.ModelError("import", "no", "m.py:1", error) for error in (KeyError("x"), Unpicklable("x", size=2))
        ],
        errors.InternalError: [errors.InternalError("memory", ZeroDivisionError("no"), "m.py:1")],
        errors.ShapeError: [
            errors.ShapeError("too long", input="x", dim=1, symbol="length", expected="at most 512", got="600")
        ],
        errors.BackendError: [errors.BackendError("no bias", backend="onednn", region="region1", source="m.py:2")],
        errors.LibraryError: [errors.LibraryError("libx.so: old", reason="version")],
        errors.DeadlineError: [errors.DeadlineError("late", seconds=0.5)],
        errors.RowError: [errors.RowError("row 7", row=7, error=errors.ShapeError("too long", input="x"))],
    }
    for kind in kinds():
        if kind in special:
            yield from special[kind]
        elif issubclass(kind, errors.CompileError):
            yield kind("shape", "wrong", "m.py:12", "/tmp/r.mlir", help="do")
        else:
            yield kind("wrong")
