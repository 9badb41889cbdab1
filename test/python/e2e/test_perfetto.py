"""Traces for Perfetto, read back as protobufs."""

import pickle
import subprocess
import sys
import threading

import pytest
import torch
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from torch import nn

import disc
from disc.errors import ArgumentValueError
from disc.profile import Call, Launch, Profile
from disc.viewers import perfetto
from disc.viewers.arena import ArenaUse, UnknownSizeError, steps_of_kernels
from viewer_models import decoder, doubling, positive


class Tracks:
    """The slices and counters of a trace by the name of their track, checked on the way."""

    def __init__(self, path):
        trace = Trace()
        trace.ParseFromString(path.read_bytes())
        names, self.slices, self.counters, open_slices = {}, {}, {}, {}
        self.process, last = None, 0
        for packet in trace.packet:
            if packet.HasField("track_descriptor"):
                descriptor = packet.track_descriptor
                if descriptor.HasField("process"):
                    self.process, root = descriptor.process.process_name, descriptor.uuid
                else:
                    assert descriptor.parent_uuid == root
                    names[descriptor.uuid] = descriptor.name
            if not packet.HasField("track_event"):
                continue
            assert packet.timestamp >= last
            last = packet.timestamp
            event, track = packet.track_event, names[packet.track_event.track_uuid]
            stack = open_slices.setdefault(track, [])
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                stack.append((event.name, last, len(stack), event))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                name, begin, depth, event = stack.pop()
                self.slices.setdefault(track, []).append((name, begin, last, depth, event))
            else:
                assert event.type == TrackEvent.TYPE_COUNTER
                self.counters.setdefault(track, []).append((last, event.counter_value))
        assert not any(open_slices.values())
        assert len(set(names.values())) == len(names)
        for found in self.slices.values():
            found.sort(key=lambda entry: (entry[1], entry[3]))


def notes(event):
    kinds = ("string_value", "int_value", "bool_value", "double_value")
    return {n.name: next(getattr(n, kind) for kind in kinds if n.HasField(kind)) for n in event.debug_annotations}


@pytest.fixture(scope="module")
def model():
    return decoder()


def test_a_profile_has_calls_kernels_and_memory(model, tmp_path):
    ids = torch.randint(0, 101, (4, 32))
    model(ids)
    with model.profile() as profile:
        model(ids)
        model(ids[:2, :8])
    assert [call.extents for call in profile.calls] == [{"batch": 4, "length": 32}, {"batch": 2, "length": 8}]
    profile.save(tmp_path / "trace.pftrace")
    tracks = Tracks(tmp_path / "trace.pftrace")
    assert tracks.process == "disc: Decoder"
    assert [s[0] for s in tracks.slices["calls"]] == ["Decoder", "Decoder"]
    assert notes(tracks.slices["calls"][0][4]) == {"batch": 4, "length": 32}
    kernels = tracks.slices["kernels"]
    ordered = sorted(profile.launches, key=lambda launch: launch.begin_ns)
    assert [(s[0], s[1], s[2]) for s in kernels] == [(x.kernel, x.begin_ns, x.end_ns) for x in ordered]
    calls = [s[1:3] for s in tracks.slices["calls"]]
    assert all(any(begin <= s[1] and s[2] <= end for begin, end in calls) for s in kernels)
    infos = {info.name: info for info in model.kernels(batch=4, length=32)}
    name, begin, _, _, event = kernels[0]
    facts, info = notes(event), infos[name]
    assert begin >= calls[0][0] and facts["kind"] == info.kind == event.categories[0]
    assert (facts["operations"], facts["bytes read"], facts["bytes written"]) == (
        info.operations,
        info.reads,
        info.writes,
    )
    assert facts["sources"] == ", ".join(info.sources) and facts["tasks"] > 0
    assert any(s[4].source_location.file_name == "models.py" for s in kernels)


def test_the_arena_in_use_is_that_of_the_plan(model, tmp_path):
    ids = torch.randint(0, 101, (4, 32))
    with model.profile() as profile:
        model(ids)
    profile.save(tmp_path / "trace.pftrace")
    counters = Tracks(tmp_path / "trace.pftrace").counters
    use = model.memory(batch=4, length=32)
    call = profile.calls[0]
    assert counters["arena allocated"] == [(call.begin_ns, use.arena), (call.end_ns, 0)]
    values = [value for _, value in counters["arena in use"]]
    # Kernels that are called directly leave no launch: the step with most may be one of theirs.
    assert 0 < max(values) <= use.live and values[-1] == 0
    steps = {step for found in steps_of_kernels(model).values() for step in found}
    assert {first for _, _, first, _ in use.temporaries} <= steps


@pytest.mark.parametrize("make, inputs", [(doubling, (torch.full((50, 16), 0.2), torch.tensor(1e6)))], ids=["doubling"])
def test_a_model_with_a_loop(make, inputs, tmp_path):
    model = make()
    with model.profile() as profile:
        model(*inputs)
    profile.save(tmp_path / "trace.perfetto-trace")
    tracks = Tracks(tmp_path / "trace.perfetto-trace")
    assert len(tracks.slices["kernels"]) == len(profile.launches)
    assert tracks.counters["arena in use"][-1][1] == 0
    repeated = max(profile.kernels(), key=lambda kernel: kernel.launches)
    assert repeated.launches > 1
    assert len(steps_of_kernels(model)[repeated.kernel]) == 1


def test_an_arena_that_depends_on_data_is_said_to_be_unknown(tmp_path):
    model = positive()
    with pytest.raises(UnknownSizeError, match="every symbol"):
        ArenaUse(model).at({"n": 64})
    with model.profile() as profile:
        model(torch.randn(1000))
        model(torch.randn(0))
    profile.save(tmp_path / "trace.pftrace")
    tracks = Tracks(tmp_path / "trace.pftrace")
    assert tracks.counters == {}
    assert [notes(s[4])["n"] for s in tracks.slices["calls"]] == [1000, 0]
    assert all("every symbol" in notes(s[4])["arena memory"] for s in tracks.slices["calls"])


def test_calls_of_several_threads(model, tmp_path):
    ids = torch.randint(0, 101, (4, 32))
    with model.profile() as profile:
        threads = [threading.Thread(target=lambda: [model(ids) for _ in range(3)]) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(profile.calls) == 6
    profile.save(tmp_path / "trace.pftrace")
    tracks = Tracks(tmp_path / "trace.pftrace")
    calls = [name for name in tracks.slices if name.startswith("calls")]
    assert len(calls) == len({call.thread for call in profile.calls})
    assert sum(len(tracks.slices[name]) for name in tracks.slices if name.startswith("kernels")) == len(
        profile.launches
    )


def test_profiles_inside_profiles(model):
    ids = torch.randint(0, 101, (2, 8))
    with model.profile() as outer:
        model(ids)
        with model.profile() as inner:
            model(ids)
        model(ids)
    model(ids)
    assert (len(outer.calls), len(inner.calls)) == (3, 1)
    assert len(outer.launches) == 3 * len(inner.launches)


def test_a_failing_call(model):
    with model.profile() as profile, pytest.raises(disc.ShapeError):
        model(torch.zeros(2, 8, dtype=torch.int64)[:, :1])
    assert [call.failed for call in profile.calls] == [True]


def test_launches_that_overlap_have_rows_of_their_own(tmp_path):
    launches = [
        Launch(f"k{n}", "loop", "m.py:1", begin, end, 1) for n, (begin, end) in enumerate([(0, 9), (3, 5), (9, 9)])
    ]
    profile = Profile(launches, [Call("Model", 0, 10, 1)])
    perfetto.save_profile(profile, tmp_path / "trace.pftrace")
    slices = Tracks(tmp_path / "trace.pftrace").slices
    assert {name: [s[0] for s in found] for name, found in slices.items()} == {
        "calls": ["Model"],
        "kernels": ["k0", "k2"],
        "kernels 2": ["k1"],
    }


def test_a_pickled_profile_has_no_model(model):
    with model.profile() as profile:
        model(torch.randint(0, 101, (2, 8)))
    again = pickle.loads(pickle.dumps(profile))
    assert again == profile and again.model is None and profile.model is model


def test_a_compilation_is_nested_spans(model, tmp_path):
    perfetto.save_compilation(model, tmp_path / "compile.pftrace")
    tracks = Tracks(tmp_path / "compile.pftrace")
    assert tracks.process == "disc compile: Decoder"
    depths = {(s[0], s[3]) for s in tracks.slices["stages"]}
    assert {("compile", 0), *((stage, 1) for stage in model.timings)} <= depths
    assert {("torch.export", 2), ("lower", 2), ("optimize", 2)} <= depths
    outer = tracks.slices["stages"][0]
    assert all(outer[1] <= s[1] <= s[2] <= outer[2] for s in tracks.slices["stages"])
    seconds = {s[0]: (s[2] - s[1]) * 1e-9 for s in tracks.slices["stages"] if s[3] == 1}
    assert seconds == pytest.approx(model.timings, rel=0.2, abs=2e-3)


def test_a_loaded_model_has_the_seconds_alone(model, tmp_path):
    model.save(tmp_path / "model.disc")
    loaded = disc.load(tmp_path / "model.disc")
    assert loaded.name == "Decoder" and loaded.timeline == ()
    perfetto.save_compilation(loaded, tmp_path / "compile.pftrace")
    slices = Tracks(tmp_path / "compile.pftrace").slices["stages"]
    assert [s[0] for s in slices] == ["compile", *model.timings]


def test_another_suffix_is_an_error(model, tmp_path):
    with pytest.raises(ArgumentValueError, match=r"\.pftrace"):
        perfetto.save_compilation(model, tmp_path / "compile.json")


def test_without_the_package_an_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace.perfetto_trace_pb2", None)
    with pytest.raises(ImportError, match=r"pip install 'disc-compiler\[viewers\]'"):
        Profile().save(tmp_path / "trace.pftrace")


def test_the_command_writes_a_trace(tmp_path):
    program = torch.export.export(nn.Linear(4, 4), (torch.randn(2, 4),))
    torch.export.save(program, tmp_path / "linear.pt2")

    def compile(*options):
        command = [sys.executable, "-m", "disc.cli.compile", "linear.pt2", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert compile("--compile-to", "memory", "-o", "x.mlir", "--trace", "x.pftrace").returncode == 0
    names = [s[0] for s in Tracks(tmp_path / "x.pftrace").slices["stages"]]
    assert names[:2] == ["compile", "import"] and names[-1] == "memory"
    result = compile("--trace", "x.json")
    assert result.returncode == 2 and ".pftrace" in result.stderr
