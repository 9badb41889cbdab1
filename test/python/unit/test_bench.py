"""The parts of the bench that measure nothing: what follows from figures, and how it is shown."""

import importlib.metadata
import json
import math
import os
import platform
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench import engines, foreign, machine, operator_cases, operators, process, report, workloads
from bench.__main__ import parse_shape, parser, settings
from bench.intervals import Interval, of_ratio
from bench.machine import Machine
from bench.measure import FEW_ROUNDS, rounds_of
from bench.results import Cell, Disturbance, EngineResult, WorkloadResult, cell, geomean, load
from bench.training import __main__ as training
from bench.training import models as training_models
from bench.training.models.base import eager_step
from bench.variants import Trial, choose, known
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
        "openvino_pt": Cell(2e-3, 1e-3, 9, 1e-7, rounds=[2e-3, 2.1e-3, 1.9e-3]),
        "disc": Cell(1e-3, 1e-3, 9, 1e-7, rounds=[1e-3, 1.1e-3, 0.9e-3]),
        "disc_static": Cell(0.8e-3, 1e-3, 9, 1e-7),
    }
    made.shapes[2, 8] = {
        "eager": Cell(4e-3, 4e-3, 9, 0.0),
        "openvino_pt": Cell(error=1.0, failed="wrong result"),
        "disc": Cell(8e-3, 8e-3, 9, 1e-7),
    }
    made.disturbances = {(1, 2): Disturbance(3, 1), (2, 8): Disturbance()}
    return made


def test_geomean():
    assert geomean([2.0, 8.0, None]) == pytest.approx(4.0)
    assert geomean([None]) is None


def test_cell_is_the_median():
    assert cell([[3.0, 9.0, 3.0], [1.0], [2.0, 2.0]], 0.5) == Cell(2.0, 1.0, 6, 0.5, rounds=[3.0, 1.0, 2.0])
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
    path = tmp_path / "native-2" / "toy.json"
    assert load(path) == made
    assert '"rounds": [ 0.002, 0.0021, 0.0019 ]' in path.read_text(encoding="utf-8")
    assert report.read(tmp_path) == [made]


def test_results_of_before_rounds_are_read(tmp_path):
    made = result()
    made.save(tmp_path)
    path = tmp_path / "native-2" / "toy.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    del data["isa"]
    for engine in data["engines"].values():
        for key in ("variant", "variants"):
            del engine[key]
    for row in data["shapes"]:
        for key in ("interval", "repeated", "kept"):
            del row[key]
        for figures in row["engines"].values():
            del figures["rounds"]
    path.write_text(json.dumps(data), encoding="utf-8")
    old = load(path)
    assert old.ratio((1, 2)) == made.ratio((1, 2))
    assert old.interval((1, 2)) is None
    assert report.ratio_entry(old, (1, 2)) == ["2.00", "–", "–"]


def test_results_in_the_repository_are_read():
    results = report.read(Path(report.__file__).parent / "results")
    assert {r.name for r in results} <= set(workloads.names())
    assert results


def test_each_instruction_set_and_thread_count_has_its_folder(tmp_path):
    made = result()
    made.save(tmp_path)
    made.isa = "avx2"
    made.save(tmp_path)
    assert sorted(path.parent.name for path in tmp_path.rglob("*.json")) == ["avx2-2", "native-2"]
    sections = report.by_section(report.read(tmp_path))
    text = report.overview(sections)
    assert "[all instructions, 2 threads](native-2/report.md)" in text
    assert "[AVX2 only, 2 threads](avx2-2/report.md)" in text
    assert "| Toy | 1.00 | 1.00 |" in text


def test_interval():
    clock = random.Random(1)
    ours = [1.0 + clock.random() / 10 for _ in range(30)]
    assert of_ratio([[2 * t for t in ours]], ours) == Interval(2.0, 2.0), "rounds are drawn in pairs"
    slower = [1.2 * (1.0 + clock.random() / 10) for _ in range(30)]
    interval = of_ratio([slower, [9.0] * 30], ours)
    assert 1.1 < interval.low < 1.2 < interval.high < 1.3
    assert interval.verdict == "faster"
    assert of_ratio([ours], slower).verdict == "slower"
    assert of_ratio([[1.0 + clock.random() for _ in range(30)]], [1.0 + clock.random() for _ in range(30)]).verdict == (
        "same"
    )
    assert of_ratio([], ours) is None
    assert of_ratio([[1.0]], [1.0]) is None
    with pytest.raises(ValueError, match="a round is missing"):
        of_ratio([[1.0]], ours)


def test_a_peer_of_few_rounds_is_not_in_the_interval():
    made = result()
    made.shapes[1, 2]["eager"] = cell([[1e-9]] * 2, 0.0)
    assert made.interval((1, 2)).low == pytest.approx(2e-3 / 1e-3, rel=0.25)


STAT = """cpu  900 0 0 900 0 0 0 0 0 0
cpu0 100 1 10 500 7 2 3 4 50 0
cpu1 200 0 0 500 0 0 0 0 0 0
intr 1 2 3
"""


def test_busy_seconds_of_cores():
    assert foreign.busy(STAT, [0]) == pytest.approx(120 / os.sysconf("SC_CLK_TCK"))
    assert foreign.busy(STAT, [0, 1]) == pytest.approx(320 / os.sysconf("SC_CLK_TCK"))


@pytest.mark.parametrize(
    ("wall", "busy", "own", "expected"),
    [
        (1.0, 1.0, 1.0, False),
        (1.0, 1.04, 1.0, False),
        (1.0, 1.2, 1.0, True),
        (1.0, 0.5, 0.1, True),
        (0.05, 0.05, 0.04, False),  # a tick
    ],
)
def test_foreign_time(wall, busy, own, expected):
    before = foreign.Reading(7.0, 5.0, 3.0)
    assert foreign.disturbed(before, foreign.Reading(7.0 + wall, 5.0 + busy, 3.0 + own), 2) is expected


def test_cpu_time_of_another_process():
    program = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as other:
        other.stdout.readline()
        assert 0.15 < foreign.process_seconds(other.pid) < 5.0
        other.communicate(b"\n")
    assert foreign.process_seconds(other.pid) == 0.0


def trial(variant, times, problem="", allocator=""):
    launch = process.Launch("onnx_runtime", "lstm", 1, Path(), variant=variant, allocator=allocator)
    return Trial(launch, {(i,): seconds for i, seconds in enumerate(times)}, problem)


def test_the_fastest_variant_that_is_right_at_most_shapes_is_chosen():
    wrong, slow = trial("a", [], "at (0,): wrong result"), trial("b", [2.0, 3.0])
    fast, part = trial("c", [1.0, 2.0]), trial("d", [0.1], "at (1,): no")
    assert choose([wrong, slow, fast, part]) is fast
    assert choose([wrong]) is wrong
    assert choose([part, wrong]) is part
    assert wrong.against(fast) == "at (0,): wrong result"
    assert slow.against(fast) == "1.732"
    assert part.against(fast) == "0.100; at (1,): no"
    assert trial("", [1.0], allocator="jemalloc").label == "default, jemalloc"


def test_variants_that_another_section_found(tmp_path):
    made = result()
    made.engines["openvino_pt"].variant = "traced"
    made.save(tmp_path)
    folder = tmp_path / made.section

    def launches(engine, *names):
        return [process.Launch(engine, "toy", 1, Path(), variant=name) for name in names]

    assert known(folder, launches("openvino_pt", "export", "traced")) == launches("openvino_pt", "traced")[0]
    assert known(folder, launches("openvino_pt", "export")) is None, "no longer there"
    assert known(folder, launches("eager", "")) == launches("eager", "")[0]
    assert known(folder, launches("iree", "")) is None, "it failed"
    assert known(folder, launches("onnx_runtime", "a")) is None, "not measured"
    assert known(tmp_path, launches("eager", "")) is None, "no results"


@pytest.mark.nightly
@pytest.mark.skipif(platform.machine() != "x86_64", reason="instruction sets of x86")
def test_instruction_sets(tmp_path):
    workload = workloads.load("lstm", small=True)
    contexts = [engines.Context(workload, "lstm", 2, tmp_path, "", isa=isa) for isa in engines.ISAS]
    assert [context.cpu for context in contexts] == ["native", "x86-64-v3", "x86-64-v2"]
    assert len({engines.load("aotinductor").artifact(context) for context in contexts}) == 3
    # Every library of the process is told, PyTorch's and ours; and the preloaded allocator stays.
    hidden = process.Launch("disc", "lstm", 2, tmp_path, isa="sse").environment()
    code = "import disc._native as n, torch; print(torch.backends.cpu.get_cpu_capability(), n.host_target())"
    done = subprocess.run([sys.executable, "-c", code], env=hidden, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("DEFAULT") and "'vector_registers': 16, 'fma': False" in done.stdout
    for name in process.allocators():
        both = process.Launch("disc", "lstm", 2, tmp_path, isa="sse", allocator=name).environment()["LD_PRELOAD"]
        assert both.split() == [hidden["LD_PRELOAD"], process.allocators()[name]]
    assert "LD_AUDIT" not in process.Launch("disc", "lstm", 2, tmp_path).environment()


def test_every_exporter_is_a_variant(tmp_path):
    context = engines.Context(workloads.load("lstm", small=True), "lstm", 1, tmp_path, "")
    exporters = {"dynamo-23", "dynamo-18", "script-20"}
    assert set(engines.load("openvino_onnx").variants(context)) == exporters
    assert set(engines.load("onnx_runtime").variants(context)) > exporters
    assert engines.load("disc").variants(context) == ("",)


def test_revision():
    assert machine.dirty("0123456789ab+")
    assert not machine.dirty("0123456789ab")
    assert report.revisions([result(), result()]) == "DISC at abc."
    other = result()
    other.machine = replace(MACHINE, revision="abd+")
    assert report.revisions([result(), other]) == "**Not of one revision of DISC**, but of abc, abd+."


def test_report():
    made = result()
    header, rows = report.latency_rows(made)
    assert header[:3] == ["batch×length", "DISC", "DISC, static"]
    assert header[-4:] == ["best peer", "best peer/DISC", "95 %", "DISC is"]
    assert [row[-3] for row in rows] == ["2.00", "0.50", "1.00"]
    assert [row[-1] for row in rows] == ["faster", "–", ""]
    assert "3 rounds repeated because other programs ran, 1 kept" in report.subtitle(made)
    assert "✗" in rows[1]
    made.engines["openvino_pt"].variants = {"export": "NotSupported: no", "traced": "1.000"}
    assert report.engine_rows(made)[1][3][-1] == "export ✗, traced 1.000"
    assert report.reasons(made) == [
        "IREE: no such | op",
        "OpenVINO, export: NotSupported: no",
        "OpenVINO at 2×8: wrong result",
    ]
    text = report.markdown([made], "ratios.png")
    assert "| Toy | 2 | 1.00 | 0.50 at 2×8 | 1 | 0 | 0 | 2.0 | – | – | – | 2.0 |" in text
    for line in text.splitlines():
        if line.startswith("| batch×length"):
            assert line.count("|") == len(header) + 1


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "–"), (1.2345, "1234"), (0.01234, "12.3"), (4.2e-5, "0.0420"), (9.999e-2, "100")]
)
def test_milliseconds(seconds, shown):
    assert report.milliseconds(seconds) == shown


def test_peers_far_from_the_fastest_get_few_rounds():
    short = {"eager": 9e-3, "inductor": 1e-3, "disc": 1e-3}
    assert rounds_of(short, 30) == {"eager": FEW_ROUNDS, "inductor": 30, "disc": 30}
    assert rounds_of({"eager": 7e-3, "disc": 1e-4}, 30) == {"eager": 30, "disc": 30}, "the fastest peer counts"
    assert rounds_of({"eager": 1e-3, "disc": 9e-2}, 30) == {"eager": 30, "disc": 30}
    assert rounds_of({"disc": 1e-3}, 30) == {"disc": 30}, "there may be no peer"


def test_long_calls_get_fewer_rounds():
    found = rounds_of({"eager": 1.3, "inductor": 1.2, "onnx_runtime": 1.0, "disc": 1.5}, 30)
    assert found == {"eager": FEW_ROUNDS, "inductor": 30, "onnx_runtime": 30, "disc": 30}
    assert rounds_of({"eager": 4.0, "disc": 3.0}, 30) == {"eager": 15, "disc": 15}
    assert rounds_of({"eager": 50.0, "disc": 30.0}, 30) == {"eager": 10, "disc": 10}


def test_allocators():
    tried = tuple(process.allocators())
    assert settings(parser().parse_args(["minilm"])).allocators == tried
    assert settings(parser().parse_args(["minilm", "--quick"])).allocators == ()
    for name in tried:
        chosen = settings(parser().parse_args(["minilm", "--allocator", name]))
        assert (chosen.allocator, chosen.allocators) == (name, ())
        assert chosen.describe().endswith(name)
    assert not engines.load("openvino_onnx").any_allocator


def test_command_line():
    assert parse_shape("1x8") == parse_shape("1,8") == (1, 8)
    chosen = settings(parser().parse_args(["minilm", "--quick", "--without", "eager", "--threads", "3", "--static"]))
    assert chosen.engines[-2:] == ("disc", "disc_static")
    assert "eager" not in chosen.engines
    assert all(engines.load(name).quick for name in chosen.engines[:-1])
    assert (chosen.threads, chosen.seconds, chosen.rounds, chosen.allocators) == (3, 0.25, 30, ())
    chosen = settings(parser().parse_args(["--isa", "avx2", "--seed", "7"]))
    assert (chosen.isa, chosen.seed, chosen.allocators) == ("avx2", 7, tuple(process.allocators()))
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


def test_calls_of_operators():
    calls = operator_cases.calls("erfinv", "f32")
    assert {size: call.label() for size, call in calls.items()} == {"small": "8×16", "large": "512×1000"}
    assert calls["small"].like(calls["large"])
    assert torch.equal(calls["small"](*calls["small"].tensors), calls["small"].tensors[0].erfinv())
    calls = operator_cases.calls("sum", "f32")
    assert calls["large"](*calls["large"].tensors).shape == (512,)
    calls = operator_cases.calls("addmm", "f32")
    assert calls["small"].tensors[0].numel() < calls["large"].tensors[0].numel()
    assert operator_cases.database.S == 5, "the database is as it was"
    assert not calls["small"].like(operator_cases.calls("mm", "f32")["small"])


def test_selection_of_operators():
    chosen = operator_cases.selection()
    assert {("erfinv", "f32"), ("mul", "c64"), ("isin", "i64"), ("bitwise_and", "i64"), ("matmul", "bf16")} <= {*chosen}
    assert len(chosen) == len(set(chosen))
    assert operators.matches("fft.rfft", ["erfinv", "fft.*"])
    assert not operators.matches("rfft", ["fft.*"])


def test_results_of_operators(tmp_path):
    fast = operators.Row("exp", "f32", "large", "8×16", {"eager": 2.0, "inductor": 1.5, "disc": 1.0})
    fast.rounds = {"eager": [2.0] * 3, "inductor": [1.5] * 3, "disc": [1.0] * 3}
    slow = operators.Row("erfinv", "f32", "large", "8×16", {"eager": 1.0, "disc": 4.0})
    slow.rounds = {"eager": [1.0] * 3, "disc": [4.0] * 3}
    broken = operators.Row("svd", "f32", "large", "8×16", {"eager": 1.0}, problems={"disc": "other values"})
    about = {"cpu": "a CPU", "date": "2026-01-01", "revision": "abc"}
    operators.save(tmp_path, [fast, slow, broken], about)
    rows, said = operators.load(tmp_path)
    assert (rows, said) == ([fast, slow, broken], about)
    assert (fast.lowest(), fast.verdict(), slow.verdict(), broken.verdict()) == (1.5, "faster", "slower", "–")
    text = operators.markdown(rows, about)
    assert "## Slower than the fastest peer: 1 rows" in text
    assert "| svd | f32 | large | disc | other values |" in text
    row = "| erfinv | f32 | 8×16 | 1e+06 | – | 4e+06 | 0.25 | – | 0.25 | slower |"
    assert text.count(row) == 2


def test_comparison_of_operators():
    one = torch.tensor([1.0, math.nan])
    assert operators.difference((one, None), [one], True) == ""
    assert operators.difference(one, one.double(), True) == "another shape or dtype"
    assert operators.difference(one, torch.tensor([2.0, math.nan]), True) == "other values"
    assert operators.difference(one, torch.tensor([2.0, math.nan]), False) == ""


def test_turns_of_operators():
    found = operators.rounds({"a": lambda: None, "b": lambda: None}, random.Random(0))
    assert {name: len(figures) for name, figures in found.items()} == {"a": 30, "b": 30}


def test_training_models():
    """Every model's shapes are within its limits, and eager takes a step at the example."""
    assert {*training.DEFAULT, *training.QUICK} <= {*training_models.names()}
    for name in training_models.names():
        full, model = training_models.load(name), training_models.load(name, small=True)
        assert len(full.shapes) == 20 and len(full.quick) == 3
        module = model.build()
        optimizer = model.make_optimizer(module)
        before = [p.detach().clone() for p in module.parameters()]
        assert math.isfinite(eager_step(model, module, optimizer, *model.example()))
        assert any(not torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_training_report(tmp_path):
    """Ratios, recompilations and memory of saved results are in the report."""
    made = WorkloadResult("toy", "Toy", ["batch"], MACHINE, "2026-01-01", "2 threads", memory_shape=(2,))
    made.engines = {
        "compile": EngineResult("torch.compile", compile_seconds=9.0, peak_of_calls=3 << 20, recompilations=2),
        "disc": EngineResult("DISC", compile_seconds=1.5, peak_of_calls=1 << 20, recompilations=0),
    }
    made.shapes = {(2,): {"compile": cell([[3.0], [3.0]], 0.0), "disc": cell([[1.5], [1.5]], 0.0)}}
    made.save(tmp_path)
    (read,) = [load(path) for path in tmp_path.glob("*-*/*.json")]
    assert training.total([read]) == pytest.approx(2.0)
    text = "\n".join(training.markdown([read]))
    assert "| Toy | 1 | 2.00 | 2.00 at 2 | – | – | 9.0 | 1.5 | 2 | 0 | 3.0 | 1.0 |" in text


@pytest.mark.parametrize("name", engines.OWN)
def test_own_engines_state_their_versions(name):
    assert importlib.metadata.version("disc-compiler") in engines.load(name).version()
