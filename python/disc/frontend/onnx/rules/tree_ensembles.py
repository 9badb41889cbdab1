"""Ensembles of decision trees: a walk from each root to a leaf, then the sum of the leaves' weights.

A leaf is its own child, so that every walk has as many steps as the deepest tree has levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ... import scalar
from ...registry import NotLowerable, lowers
from ...scalar import Elem
from ...values import Tensor
from ..builder import OnnxBuilder
from .scores import F32, I64, TRANSFORMS, best_label, constant, label_of_two, labels_of, pair, rows_of, transformed

_F64 = torch.float64
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_LEAF = "LEAF"


@dataclass
class _Forest:
    """The nodes of all trees, by place; the children of a leaf are the leaf."""

    features: list[int]
    splits: list[float]
    modes: list[str]
    yes: list[int]
    no: list[int]
    missing: list[bool]
    roots: list[int]
    wide: bool
    """Whether the splits are f64."""

    def depth(self) -> int:
        """The longest way from a root to a leaf."""
        level, depth = list(self.roots), 0
        while True:
            level = [c for n in level if self.modes[n] != _LEAF for c in (self.yes[n], self.no[n])]
            if not level:
                return depth
            depth += 1
            if depth > len(self.modes):
                raise NotLowerable("a node of a tree is its own descendant")


def _test(mode: str, x: Elem, split: Elem) -> Elem:
    return {
        "BRANCH_LEQ": lambda: x <= split,
        "BRANCH_LT": lambda: x < split,
        "BRANCH_GTE": lambda: x >= split,
        "BRANCH_GT": lambda: x > split,
        "BRANCH_EQ": lambda: x.eq(split),
        "BRANCH_NEQ": lambda: x.ne(split),
    }[mode]()


def _leaves(b: OnnxBuilder, x: Tensor, forest: _Forest) -> Tensor:
    """[samples, trees]: the node at which each walk ends."""
    wide = _F64 if forest.wide or x.dtype == _F64 else F32
    b.require_at_most(max(forest.features) + 1, x.dims[1], "the trees read more features than a sample has")
    inner = [mode for mode in forest.modes if mode != _LEAF]
    modes = [mode for mode in _MODES if mode in inner]
    unknown = set(inner) - set(_MODES)
    if unknown:
        raise NotLowerable(f"nodes of mode {sorted(unknown)[0]}")
    features, splits = constant(b, forest.features, I64), constant(b, forest.splits, wide)
    yes, no = constant(b, forest.yes, I64), constant(b, forest.no, I64)
    roots = constant(b, forest.roots, I64)
    kinds = constant(b, [modes.index(m) if m in modes else 0 for m in forest.modes], I64) if len(modes) > 1 else None
    tracks = constant(b, [int(m) for m in forest.missing], I64) if any(forest.missing) else None
    depth = forest.depth()

    def walk() -> Elem:
        sample = scalar.loop_index(0)
        node = b.extract(roots, [scalar.loop_index(1)])
        for _ in range(depth):
            value = b.extract(x, [sample, b.extract(features, [node])]).to(wide)
            split = b.extract(splits, [node])
            taken = _test(modes[0], value, split)
            for place, mode in enumerate(modes[1:], start=1):
                assert kinds is not None
                taken = scalar.select(b.extract(kinds, [node]).eq(place), _test(mode, value, split), taken)
            if tracks is not None:
                taken = taken | (value.ne(value) & b.extract(tracks, [node]).eq(1))
            node = scalar.select(taken, b.extract(yes, [node]), b.extract(no, [node]))
        return node

    return b.generic([], [], [x.dims[0], len(forest.roots)], I64, walk)


def _summed(
    b: OnnxBuilder,
    leaves: Tensor,
    weights: np.ndarray,
    present: np.ndarray,
    aggregate: str,
    base: Sequence[float],
    wide: torch.dtype,
) -> Tensor:
    """[samples, targets]: the combined weights of each target's leaves. ``weights``: [nodes, targets]."""
    targets = weights.shape[1]
    if aggregate not in ("SUM", "AVERAGE", "MIN", "MAX"):
        raise NotLowerable(f"aggregate_function {aggregate}")
    extreme = aggregate in ("MIN", "MAX")
    neutral = {"MIN": float("inf"), "MAX": float("-inf")}.get(aggregate, 0.0)
    table = constant(b, np.where(present, weights, neutral).reshape(-1).tolist(), wide)
    fold = {"MIN": scalar.minimum, "MAX": scalar.maximum}.get(aggregate, lambda acc, w: acc + w)
    columns = []
    for target in range(targets):

        def take(acc: Elem, leaf: Elem, target: int = target) -> Elem:
            return fold(acc, b.extract(table, [leaf * targets + target]))

        total = b.reduce([leaves], [1], wide, neutral, take)
        trees, shift = float(leaves.dims[1]), float(base[target]) if base else 0.0  # type: ignore[arg-type]

        def ended(t: Elem, trees: float = trees, shift: float = shift) -> Elem:
            if extreme:
                t = scalar.select(t.eq(neutral), t.like(0.0), t)
            if aggregate == "AVERAGE":
                t = t / trees
            return (t + shift if shift else t).to(F32)

        columns.append(b.reshape(b.map(F32, [total], ended), [leaves.dims[0], 1]))
    return b.concat(columns, 1) if targets > 1 else columns[0]


def _table(
    places: dict[tuple[int, int], int],
    trees: Sequence[int],
    nodes: Sequence[int],
    ids: Sequence[int],
    values: Sequence[float],
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """[nodes, targets]: the weight of each leaf for each target, and whether it has one."""
    weights = np.zeros((len(places), count))
    present = np.zeros((len(places), count), dtype=bool)
    for tree, node, target, value in zip(trees, nodes, ids, values, strict=True):
        weights[places[tree, node], target] += value
        present[places[tree, node], target] = True
    return weights, present


def _values(plain: Sequence[float] | None, tensor: torch.Tensor | None) -> list[float]:
    return list(plain or ()) if tensor is None else tensor.tolist()


def _forest(attributes: dict[str, Any]) -> tuple[_Forest, dict[tuple[int, int], int]]:
    """The trees in the attributes ``nodes_*``, and the place of each (tree, node)."""
    keys = list(zip(attributes["nodes_treeids"], attributes["nodes_nodeids"], strict=True))
    places = {key: i for i, key in enumerate(keys)}
    modes = list(attributes["nodes_modes"])
    tensor = attributes.get("nodes_values_as_tensor")
    splits = _values(attributes.get("nodes_values"), tensor)
    features = [0 if mode == _LEAF else f for mode, f in zip(modes, attributes["nodes_featureids"], strict=True)]
    children = []
    for which in ("nodes_truenodeids", "nodes_falsenodeids"):
        ids = attributes[which]
        children.append(
            [i if modes[i] == _LEAF else places[tree, ids[i]] for i, (tree, _) in enumerate(keys)],
        )
    yes, no = children
    inner = {c for i in range(len(keys)) if modes[i] != _LEAF for c in (yes[i], no[i])}
    roots = [i for i in range(len(keys)) if i not in inner]
    tracks = attributes.get("nodes_missing_value_tracks_true") or [0] * len(keys)
    wide = tensor is not None and tensor.dtype == _F64
    return _Forest(features, splits, modes, yes, no, [bool(t) for t in tracks], roots, wide), places


@lowers("onnx.TreeEnsembleRegressor")
def tree_ensemble_regressor(
    b: OnnxBuilder,
    x: Tensor,
    n_targets: int = 1,
    aggregate_function: str = "SUM",
    post_transform: str = "NONE",
    **attributes: Any,
) -> Tensor:
    """The sums of the leaves' weights, for each target."""
    rows = rows_of(b, x)
    forest, places = _forest(attributes)
    values = _values(attributes.get("target_weights"), attributes.get("target_weights_as_tensor"))
    base = _values(attributes.get("base_values"), attributes.get("base_values_as_tensor"))
    which = (attributes["target_treeids"], attributes["target_nodeids"], attributes["target_ids"])
    weights, present = _table(places, *which, values, n_targets)
    if base and len(base) != n_targets:
        raise NotLowerable(f"{len(base)} base values for {n_targets} targets")
    wide = _F64 if forest.wide or x.dtype == _F64 else F32
    leaves = _leaves(b, rows, forest)
    total = _summed(b, leaves, weights, present, aggregate_function, base, wide)
    # A single score is not transformed.
    return total if n_targets == 1 and post_transform != "PROBIT" else transformed(b, total, post_transform)


@lowers("onnx.TreeEnsembleClassifier")
def tree_ensemble_classifier(
    b: OnnxBuilder,
    x: Tensor,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    post_transform: str = "NONE",
    **attributes: Any,
) -> tuple[Tensor, Tensor]:
    """The label of each sample, and the score of each class."""
    labels = labels_of(classlabels_int64s, classlabels_strings)
    rows = rows_of(b, x)
    forest, places = _forest(attributes)
    values = _values(attributes.get("class_weights"), attributes.get("class_weights_as_tensor"))
    base = _values(attributes.get("base_values"), attributes.get("base_values_as_tensor"))
    ids = attributes["class_ids"]
    wide = _F64 if forest.wide or x.dtype == _F64 else F32
    leaves = _leaves(b, rows, forest)
    which = attributes["class_treeids"], attributes["class_nodeids"]
    if len(labels) == 2:
        _check_two(set(ids), base)
        weights, present = _table(places, *which, [0] * len(ids), values, 1)
        # ONNX Runtime adds the base value only to the first class, which has no score if the weights are the second's.
        second = set(ids) == {1}
        total = _summed(b, leaves, weights, present, "SUM", () if second else base, wide)
        score = b.reshape(total, [rows.dims[0]])
        positive = all(v >= 0 for v in values)
        label = label_of_two(b, score, 0.5 if positive else 0.0, labels)
        if second:
            none = b.full(total.dims, 0.0, F32)
            return label, transformed(b, b.concat([none, total], 1), post_transform)
        return label, pair(b, score, positive, post_transform)
    if base and len(base) != len(labels):
        raise NotLowerable(f"{len(base)} base values for {len(labels)} classes")
    weights, present = _table(places, *which, ids, values, len(labels))
    scores = _summed(b, leaves, weights, present, "SUM", base, wide)
    return best_label(b, scores, labels), transformed(b, scores, post_transform)


def _check_two(ids: set[int], base: Sequence[float]) -> None:
    """Two classes need weights of one class, and at most one base value: for others, runtimes disagree."""
    if len(ids) != 1:
        raise NotLowerable(
            "two classes that both have weights: the labels that ONNX Runtime returns for such a model do not fit its"
            " scores; write the weights of only one class"
        )
    if len(base) > 1:
        raise NotLowerable("two base values, but weights for only one class")


@lowers("onnx.TreeEnsemble")
def tree_ensemble(
    b: OnnxBuilder,
    x: Tensor,
    nodes_featureids: Sequence[int],
    nodes_splits: torch.Tensor,
    nodes_modes: torch.Tensor,
    nodes_truenodeids: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_trueleafs: Sequence[int],
    nodes_falseleafs: Sequence[int],
    tree_roots: Sequence[int],
    leaf_targetids: Sequence[int],
    leaf_weights: torch.Tensor,
    n_targets: int,
    aggregate_function: int = 1,
    post_transform: int = 0,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    membership_values: torch.Tensor | None = None,
    **_: Any,
) -> Tensor:
    """A tree ensemble with its leaves in a separate table."""
    codes = nodes_modes.tolist()
    if any(code >= len(_MODES) for code in codes):
        raise NotLowerable("nodes that test whether a value is in a set")
    inner, outer = len(codes), len(leaf_targetids)
    yes = [inner + c if leaf else c for c, leaf in zip(nodes_truenodeids, nodes_trueleafs, strict=True)]
    no = [inner + c if leaf else c for c, leaf in zip(nodes_falsenodeids, nodes_falseleafs, strict=True)]
    ends = list(range(inner, inner + outer))
    tracks = list(nodes_missing_value_tracks_true or [0] * inner)
    forest = _Forest(
        [*nodes_featureids, *[0] * outer],
        [*nodes_splits.tolist(), *[0.0] * outer],
        [*(_MODES[code] for code in codes), *[_LEAF] * outer],
        [*yes, *ends],
        [*no, *ends],
        [bool(t) for t in tracks] + [False] * outer,
        list(tree_roots),
        nodes_splits.dtype == _F64,
    )
    weights = np.zeros((inner + outer, n_targets))
    present = np.zeros((inner + outer, n_targets), dtype=bool)
    for leaf, (target, value) in enumerate(zip(leaf_targetids, leaf_weights.tolist(), strict=True)):
        weights[inner + leaf, target], present[inner + leaf, target] = value, True
    aggregate = ("AVERAGE", "SUM", "MIN", "MAX")[aggregate_function]
    wide = _F64 if x.dtype == _F64 else F32
    total = _summed(b, _leaves(b, rows_of(b, x), forest), weights, present, aggregate, (), wide)
    result = transformed(b, total, TRANSFORMS[post_transform])
    return b.map(x.dtype, [result], lambda v: v.to(x.dtype)) if x.dtype != F32 else result
