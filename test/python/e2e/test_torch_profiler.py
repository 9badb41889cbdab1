"""Compiled models in torch.profiler: ranges, and kernels in its trace and its tables."""

import gc
import gzip
import json
import threading
import weakref

import pytest
import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity, profile, schedule

from disc.viewers import torch_profiler
from models import Decoder
from viewer_models import decoder, doubling


@pytest.fixture(scope="module")
def model():
    return decoder()


@pytest.fixture(autouse=True)
def nothing_recorded():
    torch_profiler.clear()


def profiled(**settings):
    return profile(activities=[ProfilerActivity.CPU], **settings)


def parts(path):
    """The ranges and the kernels of a trace."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    ranges = [e for e in events if str(e.get("name", "")).startswith("disc: ")]
    return ranges, [e for e in events if e.get("cat") == torch_profiler.CATEGORY]


IDS = torch.randint(0, 101, (4, 32))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_kernels_are_in_the_trace_inside_their_calls(model, tmp_path, name):
    other = doubling()
    with model.profile() as alone:
        model(IDS)
    with profiled() as profiler:
        model(IDS)
        torch.ones(3) + 1
        model(IDS)
        other(torch.full((50, 16), 0.2), torch.tensor(1e6))
    added = torch_profiler.export_chrome_trace(profiler, tmp_path / name)
    ranges, kernels = parts(tmp_path / name)
    assert [e["name"] for e in sorted(ranges, key=lambda e: e["ts"])] == [
        "disc: Decoder",
        "disc: Decoder",
        "disc: Doubling",
    ]
    assert added == len(kernels)
    inside = [
        [k for k in kernels if r["ts"] <= k["ts"] and k["ts"] + k["dur"] <= r["ts"] + r["dur"] + 0.01]
        for r in sorted(ranges, key=lambda e: e["ts"])
    ]
    assert sum(map(len, inside)) == added
    assert [k["name"] for k in inside[0]] == [launch.kernel for launch in alone.launches]
    assert all(k["tid"] == ranges[0]["tid"] and k["pid"] == ranges[0]["pid"] for k in kernels)
    assert any(k["args"]["source"].startswith("models.py:") and k["args"]["tasks"] for k in kernels)


def test_kernels_are_in_the_tables(model):
    with profiled() as profiler:
        model(IDS)
        model(IDS)
    before = {a.key: a for a in profiler.key_averages()}["disc: Decoder"]
    assert before.count == 2
    added = torch_profiler.add_kernels(profiler)
    assert added > 0 and torch_profiler.add_kernels(profiler) == 0
    averages = {a.key: a for a in profiler.key_averages()}
    kernels = [a for key, a in averages.items() if ".py:" in key]
    assert sum(a.count for a in kernels) == added
    # What kernels take is no longer the call's own time.
    assert averages["disc: Decoder"].self_cpu_time_total < before.self_cpu_time_total
    assert averages["disc: Decoder"].cpu_time_total == before.cpu_time_total
    assert any("models.py:" in line for line in profiler.key_averages().table().splitlines())


def test_each_cycle_of_a_schedule_has_its_own_calls(model, tmp_path):
    added = []

    def ready(profiler):
        added.append(torch_profiler.export_chrome_trace(profiler, tmp_path / f"{len(added)}.json"))

    with profiled(schedule=schedule(wait=1, warmup=0, active=1, repeat=2), on_trace_ready=ready) as profiler:
        for _ in range(4):
            model(IDS)
            profiler.step()
    assert len(added) == 2 and added[0] == added[1] > 0
    assert [len(parts(tmp_path / f"{n}.json")[0]) for n in range(2)] == [1, 1]


@pytest.mark.parametrize("gradients", [False, True])
def test_graphs_of_torch_compile(tmp_path, gradients):
    compiled = torch.compile(Decoder().eval(), backend="disc", dynamic=True)
    with torch.set_grad_enabled(gradients):
        compiled(IDS)
        with profiled() as profiler:
            result = compiled(IDS)
            if gradients:
                result.sum().backward()
    torch_profiler.export_chrome_trace(profiler, tmp_path / "trace.json")
    ranges, kernels = parts(tmp_path / "trace.json")
    names = [e["name"] for e in sorted(ranges, key=lambda e: e["ts"])]
    expected = ["disc: forward graph", "disc: backward graph"] if gradients else ["disc: inference graph"]
    assert names == expected
    assert kernels


def test_a_profile_of_disc_at_the_same_time(model):
    with model.profile() as own, profiled() as profiler:
        model(IDS)
        model(IDS)
    assert len(own.calls) == 2
    assert torch_profiler.add_kernels(profiler) == len(own.launches)


def test_without_a_profiler_nothing_is_recorded(model, monkeypatch):
    runs = []
    monkeypatch.setattr(torch_profiler, "run", lambda *args: runs.append(args))
    assert not autograd_profiler._is_profiler_enabled
    model(IDS)
    assert runs == []


def test_a_failing_call_is_a_range(model):
    with profiled() as profiler, pytest.raises(ValueError, match="length"):
        model(IDS[:, :1])
    assert [a.count for a in profiler.key_averages() if a.key == "disc: Decoder"] == [1]
    assert torch_profiler.add_kernels(profiler) == 0


def test_calls_of_several_threads(model, tmp_path):
    def call():
        for _ in range(5):
            model(IDS)

    with model.profile() as own:
        model(IDS)
    # Without it PyTorch has no ranges of threads that it did not start.
    everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profiled(experimental_config=everywhere) as profiler:
        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # Each kernel is there once.
    assert torch_profiler.export_chrome_trace(profiler, tmp_path / "trace.json") == 10 * len(own.launches)


def test_recording_ends_with_the_profiler(model):
    with profiled():
        model(IDS)
    recorder = model._recorder
    assert recorder._active
    model(IDS)
    assert not recorder._active and recorder.run == recorder._plain


def test_a_model_that_is_dropped_is_freed():
    model = doubling()
    seen = weakref.ref(model)
    with profiled():
        model(torch.full((50, 16), 0.2), torch.tensor(1e6))
        del model
        gc.collect()
        assert seen() is None
    torch_profiler.clear()


def test_the_oldest_calls_are_dropped(model, monkeypatch, caplog):
    with model.profile() as own:
        model(IDS)
    monkeypatch.setattr(torch_profiler, "_MOST_LAUNCHES", 2 * len(own.launches))
    monkeypatch.setattr(torch_profiler, "_MOST_CALLS", 1)
    with profiled() as profiler:
        for _ in range(5):
            model(IDS)
    assert torch_profiler.add_kernels(profiler) == 2 * len(own.launches)
