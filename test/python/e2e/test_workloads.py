"""The programs of the benchmarks, at reduced sizes: one compilation, several shapes, against eager."""

import pytest
import torch

import disc
from bench import engines, workloads
from bench.worker import Worker
from bench.workloads.base import flat

pytestmark = pytest.mark.share(3)


@pytest.mark.parametrize("name", workloads.names(members=False))
def test_workload(name):
    workload = workloads.load(name, small=True)
    module = workload.build()
    compiled = disc.compile(module, workload.example(), dynamic_shapes=workload.dynamic_shapes())
    differences = {}
    for shape in (*workload.shapes, *reversed(workload.shapes)):
        inputs = workload.inputs(shape)
        with torch.inference_mode():
            expected = module(*inputs)
        differences[shape] = workload.largest_difference(flat(compiled(*inputs)), flat(expected))
    assert all(value <= workload.tolerance for value in differences.values()), differences


@pytest.mark.nightly
@pytest.mark.parametrize("name", workloads.names(members=False))
def test_static_shapes(name):
    """Each shape compiled alone: what is chosen from extents then is another choice than for all shapes."""
    workload = workloads.load(name, small=True)
    module = workload.build()
    for shape in workload.shapes[1::2]:
        inputs = workload.inputs(shape)
        with torch.inference_mode():
            expected = flat(module(*inputs))
        actual = flat(disc.compile(module, inputs)(*inputs))
        assert workload.largest_difference(actual, expected) <= workload.tolerance, shape


@pytest.mark.parametrize("name", [name for name in workloads.names() if workloads.load(name).written is not None])
def test_written_for_exporters(name):
    """What peers are measured and judged on gives what the model gives, in eager, at all inputs of the benchmark."""
    workload = workloads.load(name)
    natural, written = workload.build(), workload.exportable()
    for shape in workload.shapes:
        inputs = workload.inputs(shape)
        with torch.inference_mode():
            expected, found = flat(natural(*inputs)), flat(written(*inputs))
        assert workload.largest_difference(found, expected) <= workload.tolerance, shape


NOT_EXPORTED = {"dynamic_beam_search": "Constraints violated"}
"""What `torch.export` says of those that it refuses."""


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in workloads.names() if workloads.load(name).written is not None])
def test_exported(name):
    """So does the program that torch.export makes of it: where a peer is wrong, it is not for what it was given."""
    workload = workloads.load(name)
    natural, written = workload.build(), workload.exportable()

    def export() -> torch.export.ExportedProgram:
        return torch.export.export(written, workload.example(), dynamic_shapes=workload.dynamic_shapes())

    if name in NOT_EXPORTED:
        with pytest.raises(Exception, match=NOT_EXPORTED[name]):
            export()
        return
    exported = export().module()
    for shape in workload.shapes:
        inputs = workload.inputs(shape)
        with torch.inference_mode():
            expected, found = flat(natural(*inputs)), flat(exported(*inputs))
        assert workload.largest_difference(found, expected) <= workload.tolerance, shape


@pytest.mark.parametrize("name", ["int8_resnet50", "int8_ctr_ranker", *workloads.families()["bf16"]])
def test_engines_compute_in_the_precision_of_a_workload(name, tmp_path):
    workload = workloads.load(name, small=True)
    context = engines.Context(workload, name, 1, tmp_path, "")
    ours, reference = (engines.load(engine)(context) for engine in ("disc", "eager"))
    ours.compile()
    reference.compile()
    for shape in workload.shapes:
        inputs = workload.inputs(shape)
        with torch.inference_mode():
            actual, expected = (engine.outputs(engine.bind(shape, inputs)()) for engine in (ours, reference))
        assert 0 < workload.largest_difference(actual, expected) <= workload.tolerance
    with pytest.raises(engines.NotSupported, match=f"no {workload.precision} of it"):
        Worker(engines.load("inductor"), context).prepare()
