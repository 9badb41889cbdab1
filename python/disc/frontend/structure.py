"""What differs between the arguments of a call and those that a model was compiled for, in words."""

from __future__ import annotations

from torch.utils._pytree import TreeSpec


def difference(expected: TreeSpec, got: TreeSpec) -> str:
    """The first difference between two structures of ``(args, kwargs)``."""
    places, names = _children(expected)
    given, keywords = _children(got)
    if len(places) != len(given) or names.keys() != keywords.keys():
        return f"the model was compiled for {_signature(places, names)}; got {_signature(given, keywords)}"
    pairs = [(f"argument {i}", old, new) for i, (old, new) in enumerate(zip(places, given, strict=True))]
    pairs += [(f"argument {name!r}", names[name], keywords[name]) for name in names]
    for where, old, new in pairs:
        if old != new:
            return _inside(where, old, new)
    return f"the arguments are structured as {got}, the model was compiled for {expected}"


def _children(spec: TreeSpec) -> tuple[list[TreeSpec], dict[str, TreeSpec]]:
    args, kwargs = (spec.child(i) for i in (0, 1))
    named = {str(key): kwargs.child(i) for i, key in enumerate(kwargs.context or ())}
    return [args.child(i) for i in range(args.num_children)], named


def _signature(args: list[TreeSpec], kwargs: dict[str, TreeSpec]) -> str:
    text = f"{len(args)} positional argument{'' if len(args) == 1 else 's'}"
    return text + (f" and the keyword arguments {', '.join(kwargs)}" if kwargs else "")


def _inside(where: str, expected: TreeSpec, got: TreeSpec) -> str:
    """The first difference in one argument."""
    if expected.type is not got.type or expected.num_children != got.num_children or expected.context != got.context:
        return f"{where}: the model was compiled for {_kind(expected)}; got {_kind(got)}"
    for i in range(expected.num_children):
        old, new = expected.child(i), got.child(i)
        if old != new:
            key = expected.context[i] if isinstance(expected.context, list) else i
            return _inside(f"{where}[{key!r}]", old, new)
    return f"{where}: the model was compiled for {expected}; got {got}"


def _kind(spec: TreeSpec) -> str:
    if spec.is_leaf():
        return "one value"
    kind = getattr(spec.type, "__name__", str(spec.type))
    if isinstance(spec.context, list) and spec.context:
        return f"a {kind} with {', '.join(map(repr, spec.context))}"
    return f"a {kind} of {spec.num_children}"
