"""Compiled models in files: the same results, no compilation, weights that can be read and changed, damage found."""

import copy
import gc
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from torch.export import Dim

import disc
from disc import _native
from disc.errors import ProgramError

B = Dim("B", max=100)
SIZES = (1, 2, 7, 33, 100, 3, 0)


class Net(torch.nn.Module):
    """Packed and kept weights, state, an unused layer, a dict with a number, a constant argument."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16)
        self.table, self.unused = torch.nn.Embedding(10, 16), torch.nn.Linear(2, 2)
        self.tied = self.layer
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x, ids, *, scale=1.0, double=True):
        self.calls.add_(1)
        y = self.norm(self.layer(x)) * scale + self.table(ids)
        return {"y": y * 2 if double else y, "rows": x.shape[0], "calls": self.calls * 1, "weight": self.layer.weight}


def net_and_model(**options):
    torch.manual_seed(0)
    net = Net().eval()
    args, kwargs = inputs(3), {"scale": 0.5, "double": True}
    shapes = {"x": {0: B}, "ids": {0: B}, "scale": None, "double": None}
    return net, disc.compile(net, args, kwargs, dynamic_shapes=shapes, options=disc.Options(**options))


def inputs(rows):
    return torch.randn(rows, 8), torch.randint(10, (rows,))


def same(got, want):
    assert got.keys() == want.keys()
    for key, value in want.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(got[key], value), key
        else:
            assert got[key] == value, key


def compare(model, other, sizes=SIZES):
    for rows in sizes:
        args = inputs(rows)
        same(other(*args, scale=0.25, double=True), model(*args, scale=0.25, double=True))


def test_round_trip(tmp_path, monkeypatch):
    net, model = net_and_model()
    model(*inputs(4), scale=0.5, double=True)
    model.save(tmp_path / "net.disc")
    assert [file.name for file in tmp_path.iterdir()] == ["net.disc"]
    monkeypatch.setattr(_native, "jit", None)  # nothing is compiled
    monkeypatch.setattr(_native.Module, "run", None, raising=False)
    loaded = disc.load(tmp_path / "net.disc", threads=1)
    monkeypatch.undo()
    assert isinstance(loaded, disc.Model) and loaded.threads == 1
    compare(model, loaded)
    assert repr(loaded) == repr(model) and loaded.symbols == model.symbols
    assert str(loaded.dynamic_report) == str(model.dynamic_report)
    assert loaded.memory(B=7).temporaries == model.memory(B=7).temporaries
    assert loaded.ir("fusion") == model.ir("fusion") and loaded.ir("codegen")
    with loaded.profile() as profile:
        loaded(*inputs(100), scale=1.0, double=True)
    assert profile.launches
    assert torch.equal(loaded.state()["calls"], net.calls + 1)
    with pytest.raises(TypeError, match="'double' is a constant"):
        loaded(*inputs(2), double=False, scale=1.0)
    args = inputs(2)
    assert torch.equal(loaded(*args, double=True)["y"], model(*args, scale=1.0, double=True)["y"])
    with pytest.raises(disc.ShapeError, match="B"):
        loaded(*inputs(101), scale=1.0, double=True)


def test_weights_of_a_loaded_model(tmp_path):
    net, model = net_and_model()
    model.save(tmp_path / "net.disc")
    loaded = disc.load(tmp_path / "net.disc")
    own = loaded.state_dict()
    expected = {
        key: value for key, value in net.state_dict().items() if "unused" not in key and "num_batches" not in key
    }
    assert own.keys() == expected.keys()
    assert all(torch.equal(own[key], value) for key, value in expected.items())
    changed = {key: value + 1 if value.is_floating_point() else value for key, value in net.state_dict().items()}
    result = loaded.load_state_dict(changed)
    assert not result.missing_keys and not result.unexpected_keys
    model.load_state_dict(changed)
    assert torch.equal(net.layer.weight, changed["layer.weight"])
    compare(model, loaded)
    with torch.no_grad():
        for tensors in (net.state_dict(), loaded.state_dict()):
            tensors["layer.bias"].mul_(3)
    compare(model, loaded)
    # What was loaded is this process's own.
    compare_to = disc.load(tmp_path / "net.disc")
    assert torch.equal(compare_to.state_dict()["layer.bias"] + 1, changed["layer.bias"])
    for wrong, message in (
        ({"other": torch.ones(1)}, "other is not a parameter of the model"),
        ({"layer.bias": torch.ones(3)}, r"layer.bias: expected shape \(16,\), got \(3,\)"),
    ):
        with pytest.raises(disc.WeightsError, match=message):
            loaded.load_state_dict({**changed, **wrong})
    with pytest.raises(disc.WeightsError, match=r"layer\.bias is missing"):
        loaded.load_state_dict({k: v for k, v in changed.items() if k != "layer.bias"})
    result = loaded.load_state_dict({"other": torch.ones(1)}, strict=False)
    assert result.unexpected_keys == ["other"] and "layer.bias" in result.missing_keys


def test_a_file_of_a_loaded_model(tmp_path):
    _, model = net_and_model()
    model.save(tmp_path / "first.disc")
    loaded = disc.load(tmp_path / "first.disc")
    loaded.state_dict()["layer.bias"].data.zero_()
    loaded.save(tmp_path / "second.disc")
    again = disc.load(tmp_path / "second.disc")
    compare(loaded, again)
    assert again.state_dict().keys() == loaded.state_dict().keys()


def test_packed_weights_where_the_module_is_gone(tmp_path):
    net, model = net_and_model(keep_module=False)
    kept = copy.deepcopy(net)
    del net
    gc.collect()
    model.save(tmp_path / "net.disc")
    loaded = disc.load(tmp_path / "net.disc")
    compare(model, loaded)
    args = inputs(5)
    torch.testing.assert_close(
        loaded(*args, scale=0.5, double=True)["y"], kept(*args, scale=0.5)["y"], atol=1e-5, rtol=1e-5
    )
    for call in (loaded.state_dict, lambda: loaded.load_state_dict({})):
        with pytest.raises(ProgramError, match="its module is gone"):
            call()


def test_state_of_a_temporary_module(tmp_path):
    model = net_and_model()[1]
    gc.collect()
    values = {key: value + torch.ones_like(value) for key, value in model.state_dict().items()}
    model.load_state_dict(values)
    other = Net().eval()
    other.load_state_dict(values)
    model.save(tmp_path / "net.disc")
    args = inputs(5)
    for compiled in (model, copy.deepcopy(model), disc.load(tmp_path / "net.disc")):
        # A file has what the compiled model uses.
        assert {"layer.weight", "norm.running_mean"} <= compiled.state_dict().keys() <= values.keys()
        torch.testing.assert_close(
            compiled(*args, scale=0.5, double=True)["y"], other(*args, scale=0.5)["y"], atol=1e-5, rtol=1e-5
        )


def test_pickle_and_copies():
    _, model = net_and_model()
    for make in (lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy):
        other = make(model)
        compare(model, other, (3, 1))
        other.state_dict()["layer.bias"].zero_()
        args = inputs(2)
        assert not torch.equal(
            other(*args, scale=1.0, double=True)["y"], copy.copy(model)(*args, scale=1.0, double=True)["y"]
        )


DTYPES = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64)
DTYPES += (torch.uint16, torch.complex64, torch.complex128, torch.float8_e4m3fn)


class Holder(torch.nn.Module):
    """Buffers of all dtypes."""

    def __init__(self):
        super().__init__()
        for i, dtype in enumerate(DTYPES):
            self.register_buffer(f"b{i}", (torch.arange(6).reshape(2, 3) % 2).to(dtype))

    def forward(self, x):
        kept = [getattr(self, f"b{i}") for i in range(len(DTYPES))]
        return x + 1, *(b.to(torch.float32 if not b.is_complex() else torch.complex64) for b in kept), kept[0]


def test_all_dtypes(tmp_path):
    for keep in (Holder(), None):
        module = keep or Holder()
        options = disc.Options(keep_module=keep is not None)
        model = disc.compile(module, (torch.ones(3),), dynamic_shapes=({0: B},), options=options)
        if keep is None:
            del module
            gc.collect()
        model.save(tmp_path / "m.disc")
        loaded = disc.load(tmp_path / "m.disc")
        for got, want in zip(loaded(torch.ones(5)), Holder()(torch.ones(5)), strict=True):
            assert got.dtype == want.dtype and torch.equal(got, want)


class Rows(torch.nn.Module):
    """Weights that calls read as they are, none that are packed, and one without elements."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(7, 5)
        self.register_buffer("empty", torch.zeros(0, 5))

    def forward(self, ids):
        return torch.cat((self.table(ids), self.empty))


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("make", [Rows, torch.nn.ReLU])
def test_nothing_to_pack(tmp_path, make, keep):
    torch.manual_seed(0)
    module = make()
    example = torch.arange(3) if make is Rows else torch.randn(3)
    model = disc.compile(module, (example,), dynamic_shapes=({0: B},), options=disc.Options(keep_module=keep))
    if not keep:
        del module
        gc.collect()
    model.save(tmp_path / "m.disc")
    loaded = disc.load(tmp_path / "m.disc")
    for size in (1, 0, 6):
        x = torch.arange(size) if make is Rows else torch.randn(size)
        assert torch.equal(loaded(x), model(x))


def test_two_threads_save_at_once(tmp_path):
    _, model = net_and_model()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: model.save(tmp_path / "net.disc"), range(8)))
    assert [file.name for file in tmp_path.iterdir()] == ["net.disc"]
    compare(model, disc.load(tmp_path / "net.disc"), (3,))


def test_weights_can_be_read_by_others(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    net, model = net_and_model()
    model.save(tmp_path / "net.disc")
    tensors = safetensors.load_file(tmp_path / "net.disc")
    assert torch.equal(tensors["table.weight"], net.table.weight)


def test_another_process(tmp_path):
    _, model = net_and_model()
    model.save(tmp_path / "net.disc")
    args = inputs(9)
    torch.save((args, model(*args, scale=0.5, double=True)["y"]), tmp_path / "case.pt")
    program = (
        "import sys, disc, torch\n"
        "model = disc.load(sys.argv[1] + '/net.disc')\n"
        "args, want = torch.load(sys.argv[1] + '/case.pt')\n"
        "assert torch.equal(model(*args, scale=0.5, double=True)['y'], want)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


@pytest.mark.parametrize("damage", ["short", "header", "offset", "flipped", "weights", "long"])
def test_damage_is_found(tmp_path, damage):
    file = tmp_path / "net.disc"
    net_and_model()[1].save(file)
    content = bytearray(file.read_bytes())
    size = int.from_bytes(content[:8], "little")
    if damage == "short":
        del content[-100:]
    elif damage == "header":
        content[40] ^= 255
    elif damage == "offset":
        place = content.index(b'"shape":[16,8]')  # still JSON, and as many bytes
        content[place : place + 14] = b'"shape":[8,16]'
    elif damage == "long":
        content += b"x"
    elif damage == "flipped":
        content[-70] ^= 1
    else:
        content[8 + size + 5] ^= 1
    file.write_bytes(content)
    with pytest.raises(disc.LibraryError, match=r"net\.disc: the file is damaged") as caught:
        disc.load(file)
    assert caught.value.reason == "file"


@pytest.mark.parametrize(
    ("key", "value", "reason", "message"),
    [
        ("disc", "0.0.1", "version", "written with DISC 0.0.1, and this is DISC"),
        ("torch", "1.13.0", "version", "written with PyTorch 1.13.0"),
        ("disc.model", "0", "version", "written with format 0"),
        (
            "needs",
            '{"machine": "riscv64-linux-gnu", "cpu": "x", "features": ""}',
            "target",
            "code for riscv64-linux-gnu",
        ),
        ("needs", None, "target", "this CPU lacks unobtainium"),
    ],
)
def test_another_version_or_machine(tmp_path, monkeypatch, key, value, reason, message):
    from disc import saved

    _, model = net_and_model()
    contents = saved._contents

    def changed(model):
        tensors, metadata = contents(model)
        needs = {"machine": _native.host_target()["machine"], "cpu": "x", "features": "unobtainium"}
        metadata[key] = value if value is not None else json.dumps(needs)
        return tensors, metadata

    monkeypatch.setattr(saved, "_contents", changed)
    model.save(tmp_path / "net.disc")
    with pytest.raises(disc.LibraryError, match=message) as caught:
        disc.load(tmp_path / "net.disc")
    assert caught.value.reason == reason


def test_what_cannot_be_saved(tmp_path):
    stopped = disc.compile(torch.nn.ReLU(), (torch.ones(2),), options=disc.Options(stop_after="fusion"))
    with pytest.raises(ProgramError, match="there is nothing to save"):
        stopped.save(tmp_path / "x.disc")

    @dataclass
    class Local:
        x: torch.Tensor

    torch.export.register_dataclass(Local)

    def function(value: Local) -> torch.Tensor:
        return value.x + 1

    model = disc.compile(function, (Local(torch.ones(2)),))
    with pytest.raises(ProgramError, match="top level of a module"):
        model.save(tmp_path / "x.disc")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        disc.load(tmp_path / "x.disc")


def test_a_function(tmp_path):
    model = disc.compile(lambda x, y=2.0: (x.sin() * y, [x.shape[0]]), (torch.ones(3),), dynamic_shapes=({0: B},))
    model.save(tmp_path / "f.disc")
    loaded = disc.load(tmp_path / "f.disc")
    for rows in (1, 5, 64):
        x = torch.randn(rows)
        got, want = loaded(x), model(x)
        assert torch.equal(got[0], want[0]) and got[1] == want[1] == [rows]
    with pytest.raises(ValueError, match="is not a library"):
        disc.load(tmp_path / "f.disc", weights=tmp_path / "f.disc")


def test_the_file_of_an_error_is_the_users(tmp_path):
    model = disc.compile(torch.nn.ReLU(), torch.ones(3))
    with pytest.raises(FileNotFoundError, match=r"the folder '.*nowhere' does not exist: '.*nowhere/x\.disc'$"):
        model.save(tmp_path / "nowhere" / "x.disc")
    with pytest.raises(IsADirectoryError) as caught:
        model.save(tmp_path)
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(ValueError, match=r"save: expected the name of a file, got '' \(DISC0202\)"):
        model.save("")
    assert list(tmp_path.iterdir()) == []
