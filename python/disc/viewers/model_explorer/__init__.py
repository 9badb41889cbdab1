"""Graphs of compiled models for Google's Model Explorer, with the time and the bytes of each kernel.

``model-explorer --extensions=disc.viewers.model_explorer model.disc`` opens a saved model, an exported program or a
file of IR (see :mod:`.main`). In a program, :func:`show` opens a compiled model, and :func:`save` and
:func:`save_node_data` write the files that ``model-explorer`` reads without DISC.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import _native
from ...errors import ArgumentValueError
from ...pipeline import IMPORT
from .. import model_of, required
from ..arena import calls_of_kernels
from ..launches import Walk, by_call

if TYPE_CHECKING:
    from model_explorer import graph_builder, node_data_builder

    from ...model import Model
    from ...profile import Profile
    from ...training import TrainingStep

_GRADIENT = ("#ffffff", "#ff6f3c")
"""The colours of the smallest and the largest value."""


def collection(model: Model | TrainingStep, stages: Sequence[str] | None = None) -> graph_builder.GraphCollection:
    """The graphs of a model's IR after each stage.

    Args:
        model: a compiled model or training step.
        stages: the names of stages; None means every stage.

    Raises:
        ArgumentTypeError: it is neither.
        ArgumentValueError: there is no such stage.
        ImportError: the package ``ai-edge-model-explorer`` is not installed.
    """
    from .graphs import builder

    model = model_of(model)
    graphs = [graph for graph, _ in _graphs(model, stages)]
    return builder().GraphCollection(label=model.name, graphs=graphs, graphSorting="name_asc")  # type: ignore[no-any-return]


def of_text(name: str, text: str) -> graph_builder.GraphCollection:
    """The graph of a module of IR in a text, such as ``Options(dump_ir=...)`` writes."""
    from .graphs import StageGraph, builder

    module = _native.Module.parse(text)
    graph = StageGraph(name, module.text(generic=True, locations=True)).graph
    return builder().GraphCollection(label=name, graphs=[graph])  # type: ignore[no-any-return]


def save(model: Model | TrainingStep, path: str | os.PathLike[str], stages: Sequence[str] | None = None) -> None:
    """Writes the graphs as JSON, which ``model-explorer FILE.json`` opens.

    Raises:
        ArgumentValueError: there is no such stage.
        ImportError: the package ``ai-edge-model-explorer`` is not installed.
        OSError: the file cannot be written.
    """
    content = _plain(dataclasses.asdict(collection(model, stages)))
    Path(path).write_text(json.dumps(content), encoding="utf-8")


def save_node_data(profile: Profile, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes what a profile measured as node data: a file for each metric, for ``--node_data_paths``.

    The metrics are the microseconds of each kernel in all calls of the profile and, where the sizes of a call are
    known, the bytes that one launch moves. They are of the nodes of kernels after the stages ``schedule`` and
    ``memory``. Launches of calls that overlap in time are left out: which call made one is unknown.

    Returns:
        The files, ``time.json`` and, if known, ``bytes.json``.

    Raises:
        ArgumentValueError: the profile was pickled, and has no model.
        ImportError: the package ``ai-edge-model-explorer`` is not installed.
        OSError: a file cannot be written.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for metric, data in node_data(profile).items():
        written.append(target / f"{metric.partition(' ')[0]}.json")
        data.save_to_file(str(written[-1]))
    return written


def node_data(profile: Profile) -> dict[str, node_data_builder.ModelNodeData]:
    """What :func:`save_node_data` writes, by the name of the metric."""
    model = profile.model
    if model is None:
        raise ArgumentValueError("profile: expected one that was measured in this process, got a pickled one")
    b = required("model_explorer.node_data_builder", "node data for Model Explorer")
    order = calls_of_kernels(model)
    nodes = _launch_nodes(model)
    gradient = [b.GradientItem(stop=stop, bgColor=color) for stop, color in enumerate(_GRADIENT)]
    found: dict[str, node_data_builder.ModelNodeData] = {}
    for metric, values in (("time (us)", _times(profile, order)), ("bytes of a launch", _bytes(profile, order))):
        graphs = {
            graph: b.GraphNodeData(
                results={places[n]: b.NodeDataResult(value=value) for n, value in values.items()},
                name=metric,
                gradient=gradient,
            )
            for graph, places in nodes.items()
            if values and len(places) == len(order)
        }
        if graphs:
            found[metric] = b.ModelNodeData(graphsData=graphs)
    return found


def show(model: Model | TrainingStep, profile: Profile | None = None, **options: Any) -> None:
    """Opens Model Explorer in the browser with a model and, if given, what a profile measured. Returns at its end.

    Args:
        model: a compiled model or training step.
        profile: a profile of it.
        options: ``host``, ``port`` and others, as for ``model_explorer.visualize``.

    Raises:
        ImportError: the package ``ai-edge-model-explorer`` is not installed.
    """
    explorer = required("model_explorer", "Model Explorer")
    model = model_of(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model.name}.json"
        save(model, path)
        data = [] if profile is None else save_node_data(profile, folder)
        explorer.visualize(
            str(path), node_data=[{"name": file.stem, "node_data_path": str(file)} for file in data], **options
        )


def _graphs(model: Model, stages: Sequence[str] | None = None) -> list[tuple[Any, Any]]:
    """The graph after each stage, and what knows its kernels."""
    from .graphs import StageGraph

    names = (IMPORT, *model.pipeline.names)
    for stage in stages or ():
        if stage not in names:
            raise ArgumentValueError(f"no stage {stage!r}; the stages are: {', '.join(names)}")
    found = []
    for number, stage in enumerate(names):
        if stages is None or stage in stages:
            made = StageGraph(_graph_id(number, stage), model.ir(stage, generic=True, locations=True))
            found.append((made.graph, made))
    return found


def _graph_id(number: int, stage: str) -> str:
    return f"{number} {stage}"


def _launch_nodes(model: Model) -> dict[str, list[str]]:
    """The nodes of the kernels that ``main`` launches, in program order, by graph."""
    wanted = [stage for stage in ("schedule", "memory") if stage in model.pipeline.names]
    return {graph.id: made.launches for graph, made in _graphs(model, wanted)}


def _times(profile: Profile, order: Sequence[str]) -> dict[int, float]:
    """The microseconds of all launches at a place of the program."""
    places: dict[str, list[int]] = {}
    for place, kernel in enumerate(order):
        places.setdefault(kernel, []).append(place)
    found: dict[int, float] = {}
    for _, launches in by_call(profile):
        walk = Walk(places)
        for launch in launches:
            at = walk.next(launch.kernel)
            if at is not None:
                found[at] = found.get(at, 0.0) + launch.seconds * 1e6
    # The clock counts nanoseconds.
    return {place: round(time, 3) for place, time in found.items()}


def _bytes(profile: Profile, order: Sequence[str]) -> dict[int, float]:
    """The bytes that a launch at a place of the program reads and writes; of several calls in the last one."""
    if not profile.calls:
        return {}
    moved = {
        info.name: float(info.reads + info.writes)
        for info in profile.model.kernels(**profile.calls[-1].extents)
        if info.reads is not None and info.writes is not None
    }
    return {place: moved[kernel] for place, kernel in enumerate(order) if kernel in moved}


def _plain(value: Any) -> Any:
    """Data without the fields that are not set."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
