"""The parts of the bench that measure nothing: what follows from figures, and how it is shown."""

import math

import pytest
import torch

from bench import engines, report, workloads
from bench.__main__ import parse_shape, parser, settings
from bench.machine import Machine
from bench.measure import Settings, turns
from bench.results import Cell, EngineResult, WorkloadResult, cell, geomean, load
from bench.worker import reason
from bench.workloads.base import Workload, flat

MACHINE = Machine("a CPU", 2, 2, 16.0, 100.0, 190.0, "a system", "abc")


def result():
    made = WorkloadResult("toy", "Toy", ["batch", "length"], MACHINE, "2026-01-01", "2 threads", weights=8)
    made.memory_shape = (2, 8)
    for name in ("eager", "openvino_pt", "iree", "disc", "disc_static"):
        made.engines[name] = EngineResult(engines.load(name).title, "1.0", compile_seconds=2.0, peak_of_calls=1 << 20)
    made.engines["iree"].failed = "no such | op"
    made.shapes[1, 2] = {
        "eager": Cell(4e-3, 4e-3, 9, 0.0),
        "openvino_pt": Cell(2e-3, 1e-3, 9, 1e-7),
        "disc": Cell(1e-3, 1e-3, 9, 1e-7),
        "disc_static": Cell(0.8e-3, 1e-3, 9, 1e-7),
    }
    made.shapes[2, 8] = {
        "eager": Cell(4e-3, 4e-3, 9, 0.0),
        "openvino_pt": Cell(error=1.0, failed="wrong result"),
        "disc": Cell(8e-3, 8e-3, 9, 1e-7),
    }
    return made


def test_geomean():
    assert geomean([2.0, 8.0, None]) == pytest.approx(4.0)
    assert geomean([None]) is None


def test_cell_is_the_median():
    assert cell([3.0, 1.0, 2.0], 0.5) == Cell(2.0, 1.0, 3, 0.5)
    assert cell([], 0.5) == Cell(error=0.5)


def test_ratio_is_to_the_fastest_peer_that_is_right():
    made = result()
    assert made.best_peer((1, 2)) == ("openvino_pt", 2e-3)
    assert made.ratio((1, 2)) == pytest.approx(2.0)
    assert made.best_peer((2, 8)) == ("eager", 4e-3)
    assert made.ratio((2, 8)) == pytest.approx(0.5)
    assert made.price_of_dynamism((1, 2)) == pytest.approx(1.25)
    assert made.price_of_dynamism((2, 8)) is None


def test_json_round_trip(tmp_path):
    made = result()
    made.save(tmp_path)
    assert load(tmp_path / "toy.json") == made


def test_report():
    made = result()
    header, rows = report.latency_rows(made)
    assert header[:3] == ["batch×length", "DISC", "DISC, static"]
    assert header[-2:] == ["best peer", "best peer/DISC"]
    assert [row[-1] for row in rows] == ["2.00", "0.50", "1.00"]
    assert "✗" in rows[1]
    assert report.reasons(made) == ["IREE: no such | op", "OpenVINO at 2×8: wrong result"]
    text = report.markdown([made], "ratios.png")
    assert "| Toy | 2 | 1.00 | 0.50 at 2×8 | 2.0 |" in text
    for line in text.splitlines():
        if line.startswith("| batch×length"):
            assert line.count("|") == len(header) + 1


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "–"), (1.2345, "1234"), (0.01234, "12.3"), (4.2e-5, "0.0420"), (9.999e-2, "100")]
)
def test_milliseconds(seconds, shown):
    assert report.milliseconds(seconds) == shown


def test_slow_engines_get_fewer_rounds():
    chosen = Settings(engines=(), threads=1, seconds=1.0, rounds=8)
    assert turns(1e-3, 1e-3, chosen) == 8
    assert turns(0.1, 0.1, chosen) == 5
    assert turns(2.0, 1.0, chosen) == 3
    assert turns(2.0, 0.1, chosen) == 2


def test_command_line():
    assert parse_shape("1x8") == parse_shape("1,8") == (1, 8)
    chosen = settings(parser().parse_args(["minilm", "--quick", "--without", "eager", "--threads", "3", "--static"]))
    assert chosen.engines[-2:] == ("disc", "disc_static")
    assert "eager" not in chosen.engines
    assert all(engines.load(name).quick for name in chosen.engines[:-1])
    assert (chosen.threads, chosen.seconds) == (3, 0.25)
    everything = settings(parser().parse_args([])).engines
    assert set(everything) == set(engines.names()) - {"disc_static", "disc_library"}


def test_engines_need_no_package_to_be_known():
    titles = [engines.load(name).title for name in engines.names()]
    assert len(set(titles)) == len(titles)
    with pytest.raises(ValueError, match="no engine 'x'"):
        engines.load("x")


@pytest.mark.parametrize("name", workloads.names())
def test_shapes_of_workloads(name):
    workload = workloads.load(name)
    assert set(workload.quick)
    extremes = [max(shape[i] for shape in workload.shapes) for i in range(len(workload.dims))]
    assert extremes[-1] == list(workload.dims.values())[-1][1], "the last dim's maximum is measured"
    assert len(set(workload.shapes)) == len(workload.shapes)


def test_shapes_out_of_range():
    with pytest.raises(ValueError, match=r"\(9,\) is not within"):
        Workload(
            title="toy",
            dims={"n": (1, 8)},
            module=torch.nn.Identity,
            tensors=lambda shape, g: (),
            axes=({0: "n"},),
            shapes=((9,),),
            quick=(),
            tolerance=0.0,
        )


def test_inputs_and_weights_are_the_same_each_time():
    workload = workloads.load("gpt2_decode", small=True)
    for first, second in zip(workload.inputs((3, 7)), workload.inputs((3, 7)), strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(workload.inputs((3, 7))[1], workload.inputs((3, 8))[1][:, :, :7])
    for first, second in zip(workload.build().parameters(), workload.build().parameters(), strict=True):
        assert torch.equal(first, second)


def test_largest_difference():
    workload = workloads.load("memory_bound", small=True)
    one = (torch.tensor([1.0, 100.0]),)
    assert workload.largest_difference(one, (torch.tensor([1.0, 101.0]),)) == pytest.approx(1 / 101)
    assert workload.largest_difference(one, (torch.tensor([1.0]),)) == math.inf
    assert workload.largest_difference(one, (torch.tensor([1.0, 100.0], dtype=torch.float64),)) == math.inf
    assert workload.largest_difference((torch.tensor([math.nan, 1.0]),), one) == math.inf
    assert workload.largest_difference(one, flat(one[0])) == 0.0


def test_reason():
    assert (
        reason(RuntimeError("Exception from src/a.cpp:1:\n\n/b.cpp:2 c\n no such op\n")) == "RuntimeError: no such op"
    )
    assert reason(engines.NotSupported("neither")) == "neither"
