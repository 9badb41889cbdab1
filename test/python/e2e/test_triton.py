"""examples/triton-backend in Triton Inference Server, asked by the official clients over HTTP and gRPC."""

import itertools
import json
import re
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import disc
import kserve_tools
import triton_tools
from bench.workloads import minilm
from triton_tools import Refused, Repository, Server

pytestmark = pytest.mark.skipif(
    triton_tools.SERVER is None, reason="tritonserver is missing: `scripts/setup.sh tests` installs it for x86-64"
)

PROTOCOLS = ("http", "grpc")
LONG = "dynamic_batching { max_queue_delay_microseconds: 60000000 }"
"""A batch then begins because it is full, not because time has passed."""

PAD = {"kind": "pad", "dim": "batch", "padded": ["length"], "max_padding": 1}
MASKED = json.dumps({"batching": {**PAD, "mask": "mask", "values": {"values": 1000}}})
SENTENCES = json.dumps({"batching": {**PAD, "mask": "attention_mask"}})


class Rows(nn.Module):
    """Every tensor has the batch: ids beyond the table are an error of the run."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids, scale):
        """[batch, length], [batch] -> [batch, 4], [batch]."""
        mean = self.table(ids).mean(1) * scale.unsqueeze(1)
        return {"mean": mean, "total": mean.sum(1)}


class Collatz(nn.Module):
    """A loop on data."""

    def forward(self, n):
        """[] -> [], the number of steps."""
        steps = torch.zeros((), dtype=torch.int64)
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps = steps + 1
        return {"steps": steps}


class Cache(nn.Module):
    """Updates an input."""

    def forward(self, cache, x):
        """[n], [n] -> [n]."""
        cache.add_(x)
        return {"doubled": cache * 2}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Modules by name, and the folder with their libraries."""
    folder = tmp_path_factory.mktemp("libraries")
    modules = kserve_tools.compile_models(folder)
    torch.manual_seed(0)
    batch, length, n = Dim("batch", min=1, max=64), Dim("length", min=1, max=128), Dim("n", min=0, max=100)
    ids, ones = torch.ones(2, 3, dtype=torch.int64), torch.ones(2)
    both = {0: batch, 1: length}
    cases = {
        "rows": (Rows(), (ids, ones), (both, {0: batch})),
        "collatz": (Collatz(), (torch.tensor(6),), None),
        "cache": (Cache(), (torch.ones(5), torch.ones(5)), ({0: n}, {0: n})),
        "sentences": (minilm.SMALL.module(), (ids, ids), (both, both)),
    }
    for name, (module, example, shapes) in cases.items():
        modules[name] = module.eval()
        disc.aot_compile(modules[name], example, dynamic_shapes=shapes, output=folder / f"lib{name}.so", name=name)
    return modules, folder


@pytest.fixture(scope="module")
def backends():
    return triton_tools.build()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def server(backends, repository, tmp_path_factory):
    server = Server(backends, repository, tmp_path_factory.mktemp("server"))
    yield server
    assert server.stop() == 0, server.log()


numbers = itertools.count()


@pytest.fixture
def load(server, repository, compiled):
    """load(library, config, serving): a model of the server, under a name of its own, which it returns."""
    names = []

    def load(library, config="", serving="", **settings):
        names.append(f"{library}_{next(numbers)}")
        repository.add(names[-1], compiled[1] / f"lib{library}.so", config, serving, **settings)
        server.call("load_model", names[-1])
        return names[-1]

    yield load
    for name in names:
        server.call("unload_model", name)


def expect(module, requests, results, rtol=1e-5, atol=1e-6, batched=False):
    """Each result is PyTorch's for the request alone. In a model with batches, [batch] is [batch, 1]."""
    for inputs, result in zip(requests, results, strict=True):
        assert not isinstance(result, str), result
        with torch.inference_mode():
            wanted = module(*(torch.tensor(array) for array in inputs.values()))
        wanted = wanted if isinstance(wanted, dict) else {"output_0": wanted}
        assert result.keys() == wanted.keys()
        for name, tensor in wanted.items():
            shape = (*tensor.shape, 1) if batched and tensor.ndim == 1 else tuple(tensor.shape)
            assert result[name].shape == shape
            tensor = tensor.reshape(shape)
            np.testing.assert_allclose(result[name], tensor.numpy(), rtol=rtol, atol=atol)


def masked_request(rows, length):
    generator = np.random.default_rng(1000 * rows + length)
    values = generator.integers(-100, 100, (rows, length))
    return {"values": values, "mask": generator.random((rows, length)) < 0.7}


def sentence_request(rows, length):
    ids = np.random.default_rng(1000 * rows + length).integers(1000, 20000, (rows, length))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


# -- One request, one run

SHAPES = [(1, 1), (1, 2), (2, 7), (5, 31), (13, 64), (64, 127), (64, 128), (31, 17), (3, 5), (1, 1)]
"""Rows and lengths: the smallest, primes, the largest, growing, then shrinking."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_library_at_many_shapes(server, load, compiled, protocol):
    name = load("masked")
    requests = [masked_request(*shape) for shape in SHAPES]
    expect(compiled[0]["masked"], requests, [server.infer(name, request, protocol=protocol) for request in requests])
    assert server.batches(name) == {1: len(SHAPES)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_transformer_at_many_shapes(server, load, compiled, protocol):
    """Embeddings of a small MiniLM, which have about unit length, within 1e-5."""
    name = load("sentences", 'parameters { key: "threads" value { string_value: "1" } }')
    assert "threads: 1" in server.log()
    requests = [sentence_request(*shape) for shape in [(1, 1), (2, 31), (7, 128), (3, 13), (1, 2)]]
    results = [server.infer(name, request, protocol=protocol) for request in requests]
    expect(compiled[0]["sentences"], requests, results, rtol=1e-4, atol=1e-5)


def test_completed_configuration(server, load):
    def tensors(name, kind):
        entries = server.call("get_model_config", name)[kind]
        return [(entry["name"], entry["data_type"], entry["dims"]) for entry in entries]

    name = load("select")
    assert tensors(name, "input") == [("x", "TYPE_FP32", [-1]), ("threshold", "TYPE_FP32", [1])]
    assert tensors(name, "output") == [("chosen", "TYPE_FP32", [-1]), ("where", "TYPE_INT64", [-1, 1])]
    name = load("rows", "max_batch_size: 16")
    assert tensors(name, "input") == [("ids", "TYPE_INT64", [-1]), ("scale", "TYPE_FP32", [1])]
    assert tensors(name, "output") == [("mean", "TYPE_FP32", [4]), ("total", "TYPE_FP32", [1])]
    # What the file has stays: a narrower dim, and a part of the outputs.
    name = load("masked", 'input { name: "mask" dims: [ -1, 8 ] } output { name: "scaled" }')
    assert tensors(name, "input") == [("mask", "TYPE_BOOL", [-1, 8]), ("values", "TYPE_INT64", [-1, -1])]
    assert tensors(name, "output") == [("scaled", "TYPE_FP32", [-1, -1])]
    assert server.infer(name, masked_request(2, 8)).keys() == {"scaled"}
    with pytest.raises(Refused, match="unexpected shape for input 'mask'"):
        server.infer(name, masked_request(2, 7))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_datatype(server, load, protocol):
    name = load("everything")
    inputs, arrays = {}, []
    for spec in server.call("get_model_metadata", name)["inputs"]:
        dtype = kserve_tools.DTYPES.get(spec["datatype"], ml_dtypes.bfloat16)
        arrays.append(np.array([0, 1, 3 if spec["datatype"] != "BOOL" else 1]).astype(dtype))
        inputs[spec["name"]] = (spec["datatype"], arrays[-1])
    assert len(inputs) == 13
    results = server.infer(name, inputs, protocol=protocol)
    for number, array in enumerate(arrays):
        result = results[f"output_{number}"]
        assert result.dtype == array.dtype
        assert np.array_equal(result, array)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_data_dependent_sizes_and_numbers(server, load, protocol):
    """Also without elements; a number is [1]."""
    name = load("select")
    x = np.random.default_rng(0).normal(size=50).astype(np.float32)
    for threshold in (0.0, 0.5, 100.0):
        inputs = {"x": x, "threshold": np.array([threshold], np.float32)}
        result = server.infer(name, inputs, protocol=protocol, outputs=["where", "chosen"])
        assert np.array_equal(result["chosen"], x[x > threshold])
        assert np.array_equal(result["where"], np.argwhere(x > threshold))
    assert server.infer(name, inputs, protocol=protocol, outputs=["chosen"]).keys() == {"chosen"}


def test_control_flow(server, load):
    name = load("collatz")
    for n, steps in ((1, 0), (6, 8), (27, 111), (97, 118)):
        assert server.infer(name, {"n": np.array([n])})["steps"].tolist() == [steps]


def test_state_and_updated_inputs(server, load):
    """A buffer that runs update belongs to the model; an input that they update is one more output."""
    name = load("counter")
    x = np.arange(3)
    assert [server.infer(name, {"x": x})["output_0"][0] for _ in range(3)] == [1, 2, 3]
    name = load("cache")
    cache, x = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    result = server.infer(name, {"cache": cache, "x": x})
    assert np.array_equal(result["cache.updated"], cache + 1)
    assert np.array_equal(result["doubled"], 2 * (cache + 1))


def test_shared_memory(server, load):
    """Inputs and outputs in memory that the client shares with the server; too little of it for an output."""
    name = load("select")
    x = np.random.default_rng(0).normal(size=50).astype(np.float32)
    inputs = {"x": ("FP32", x), "threshold": ("FP32", np.zeros(1, np.float32))}
    assert np.array_equal(server.infer_shared(name, inputs, "chosen", 200), x[x > 0])
    with pytest.raises(Refused, match="chosen"):
        server.infer_shared(name, inputs, "chosen", 40)
    assert np.array_equal(server.infer(name, inputs)["chosen"], x[x > 0])


def test_instances_share_a_model(server, load, compiled):
    """Several runs at the same time, one copy of the model."""
    name = load("masked", "instance_group { kind: KIND_CPU count: 3 }")
    assert server.log().count(f"model '{name}'") == 1
    requests = [masked_request(1 + k % 5, 1 + 7 * k % 128) for k in range(40)]
    expect(compiled[0]["masked"], requests, server.infer_together(name, requests))


# -- Requests that share runs


def test_unequal_lengths_share_a_run(server, load, compiled):
    """Padded; values that pad are visible nowhere."""
    name = load("masked", f"max_batch_size: 9 {LONG}", MASKED)
    requests = [masked_request(rows, length) for rows, length in ((1, 5), (3, 1), (1, 128), (2, 17), (2, 64))]
    for protocol in PROTOCOLS:
        expect(compiled[0]["masked"], requests, server.infer_together(name, requests, protocol=protocol), batched=True)
    assert server.batches(name) == {9: 2}


def test_a_transformer_with_padding(server, load, compiled):
    name = load("sentences", f"max_batch_size: 6 {LONG}", SENTENCES)
    requests = [sentence_request(1, length) for length in (3, 41, 17, 60, 2, 31)]
    results = server.infer_together(name, requests)
    expect(compiled[0]["sentences"], requests, results, rtol=1e-4, atol=1e-5)
    assert server.batches(name) == {6: 1}


def test_equal_shapes_need_no_rule(server, load, compiled):
    """Triton then joins requests of equal shape only."""
    name = load("masked", f"max_batch_size: 4 {LONG}")
    requests = [masked_request(1, 7), masked_request(3, 7)]
    expect(compiled[0]["masked"], requests, server.infer_together(name, requests), batched=True)
    assert server.batches(name) == {4: 1}


def test_a_missing_mask(server, load, compiled):
    name = load("masked", f"max_batch_size: 3 {LONG}", MASKED)
    requests = [{"values": masked_request(1, length)["values"]} for length in (4, 9, 2)]
    whole = [{**request, "mask": np.ones_like(request["values"], dtype=bool)} for request in requests]
    expect(compiled[0]["masked"], whole, server.infer_together(name, requests), batched=True)
    assert server.batches(name) == {3: 1}


@pytest.mark.parametrize("by_lengths", [False, True], ids=["offsets", "lengths"])
def test_ragged(server, load, compiled, by_lengths):
    """Sequences one behind the other, without padding. The backend makes the offsets or lengths."""
    library = "lengths" if by_lengths else "offsets"
    serving = json.dumps({"batching": {"kind": "ragged", "dim": "tokens", library: "marks"}})
    name = load(library, f"max_batch_size: 8 {LONG}", serving)
    shapes = [(1, 3), (2, 5), (1, 1), (3, 70), (1, 9)]
    requests = [
        {"values": np.random.default_rng(k).normal(size=(*s, 4)).astype(np.float32)} for k, s in enumerate(shapes)
    ]
    results = server.infer_together(name, requests)
    for (rows, length), request, result in zip(shapes, requests, results, strict=True):
        marks = torch.tensor([length] * rows if by_lengths else [length * k for k in range(rows + 1)])
        with torch.inference_mode():
            wanted = compiled[0][library](torch.tensor(request["values"]).reshape(-1, 4), marks)
        assert result["each"].shape == (rows, length, 3)
        np.testing.assert_allclose(result["each"].reshape(-1, 3), wanted["each"].numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(result["sums"], wanted["sums"].numpy(), rtol=1e-5, atol=1e-5)
    assert server.batches(name) == {8: 1}
    with pytest.raises(Refused, match="tokens"):
        server.infer(name, {"values": np.ones((8, 126, 4), np.float32)})


def test_a_bad_request_harms_no_other(server, load, compiled):
    """One that fails in the shared run, and one whose shape is out of range."""
    name = load("rows", f"max_batch_size: 5 {LONG}", json.dumps({"batching": PAD}))
    requests = [
        {"ids": np.full((1, n), fill), "scale": np.array([[2]], np.float32)} for fill, n in enumerate((3, 2, 5))
    ]
    bad = [{**requests[0], "ids": ids} for ids in (np.full((1, 3), 99), np.ones((1, 129), dtype=int))]
    results = server.infer_together(name, [*bad, *requests])
    assert "99" in results[0] and "[400]" in results[0]
    assert "129" in results[1] and "length" in results[1] and "[400]" in results[1]
    for request, result in zip(requests, results[2:], strict=True):
        with torch.inference_mode():
            wanted = compiled[0]["rows"](torch.tensor(request["ids"]), torch.tensor(request["scale"]).squeeze(1))
        np.testing.assert_allclose(result["mean"], wanted["mean"].numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(result["total"], wanted["total"].numpy()[:, None], rtol=1e-5, atol=1e-6)
    stats = server.call("get_inference_statistics", name)["model_stats"][0]["inference_stats"]
    assert (stats["success"]["count"], stats["fail"]["count"]) == (3, 2)
    assert server.batches(name) == {1: 3}


# -- Errors


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("changes", "mentions"),
    [
        ({"values": np.ones((2, 2), np.float32)}, "input 'values' data-type is 'FP32', but model"),
        ({"values": np.ones((65, 2), int), "mask": np.ones((65, 2), bool)}, "expected 1 <= batch <= 64, got 65"),
        ({"values": np.ones((2, 129), int), "mask": np.ones((2, 129), bool)}, "expected 1 <= length <= 128, got 129"),
        ({"values": np.ones((2, 0), int), "mask": np.ones((2, 0), bool)}, "length"),
        ({"values": np.ones((2, 3), int)}, "input 'mask', dim 1 (length)"),
        ({"values": np.ones(4, int)}, "'values'"),
        ({"other": np.ones((2, 2), int)}, "'other'"),
        ({"values": None}, "expected 2 inputs but got 1"),
        (
            {"values": ("BYTES", np.array([[b"a", b"b"]], dtype=object))},
            "input 'values' data-type is 'BYTES', but model",
        ),
    ],
    ids=range(9),
)
def test_requests_that_are_wrong(server, load, compiled, protocol, changes, mentions):
    """An error that names the tensor; the server goes on."""
    name = load("masked")
    inputs = {**masked_request(2, 2), **changes}
    with pytest.raises(Refused, match=re.escape(mentions)):
        server.infer(name, {key: value for key, value in inputs.items() if value is not None}, protocol=protocol)
    request = masked_request(2, 2)
    expect(compiled[0]["masked"], [request], [server.infer(name, request, protocol=protocol)])


def test_an_unknown_output(server, load):
    with pytest.raises(Refused, match="'other'"):
        server.infer(load("masked"), masked_request(2, 2), outputs=["other"])


def tensor(kind, name, text=""):
    return f'{kind} {{ name: "{name}" {text} }}'


def parameter(name, value):
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'


VALUES, TOTAL = ("input", "values"), ("output", "total")
FOUND = "but the library has"


@pytest.mark.parametrize(
    ("library", "config", "mentions"),
    [
        ("masked", tensor("input", "x"), "input 'x': the library has no such input: it has 'values', 'mask'"),
        ("masked", tensor("output", "x"), "output 'x': the library has no such output: it has 'total', 'scaled'"),
        ("masked", tensor(*VALUES, "data_type: TYPE_FP32"), f"'values': data_type is TYPE_FP32, {FOUND} TYPE_INT64"),
        ("masked", tensor(*VALUES, "data_type: TYPE_STRING"), "input 'values': data_type is TYPE_STRING"),
        ("masked", tensor(*VALUES, "dims: [ -1 ]"), f"input 'values': dims are [-1], {FOUND} [-1, -1]"),
        (
            "masked",
            tensor(*VALUES, "dims: [ -1, 129 ]"),
            f"'values': dims are [-1, 129], {FOUND} [-1, -1], dim 0",
        ),
        ("masked", tensor(*TOTAL, "dims: [ 1, 1 ]"), f"output 'total': dims are [1, 1], {FOUND} [-1]"),
        ("lookup", tensor("output", "mean", "dims: [ -1, -1 ]"), f"'mean': dims are [-1, -1], {FOUND} [-1, 4]"),
        (
            "masked",
            tensor(*VALUES, "dims: [ 4 ] reshape { shape: [ 2, 2, 1 ] }"),
            "'values': reshape.shape is [2, 2, 1]",
        ),
        ("masked", parameter("threads", "two"), "'threads': expected a whole number"),
        ("masked", parameter("thread", "2"), "no parameter 'thread'"),
        ("masked", "max_batch_size: 65", "max_batch_size: 65 is more than the library's largest 'batch', 64"),
        ("lookup", "max_batch_size: 4", "input 'scale' []. Set max_batch_size to 0"),
        ("select", "max_batch_size: 4", "the library has input 'threshold' []"),
        ("counter", "max_batch_size: 4", "change its state"),
        ("masked", "sequence_batching { direct { } }", "sequence_batching is not supported"),
        ("masked", "model_transaction_policy { decoupled: true }", "decoupled is not supported"),
        ("masked", "instance_group { kind: KIND_GPU count: 1 gpus: [ 0 ] }", "GPU"),
        ("masked", 'default_model_filename: "other.so"', "other.so: there is no such file"),
    ],
    ids=range(19),
)
def test_configurations_that_contradict_the_library(server, repository, compiled, library, config, mentions):
    """The model is not loaded, for a reason that names the tensor or the setting."""
    repository.add(f"bad_{library}", compiled[1] / f"lib{library}.so", config)
    with pytest.raises(Refused, match=re.escape(mentions)):
        server.call("load_model", f"bad_{library}")


@pytest.mark.parametrize(
    ("serving", "mentions"),
    [
        ("{", "model.serving.json: [json.exception.parse_error"),
        (json.dumps({"batching": {**PAD, "dim": "rows"}}), "no input has a dim 'rows'"),
        (json.dumps({"batching": {**PAD, "dim": "length"}}), "output 'total' has no dim 'length'"),
    ],
    ids=range(3),
)
def test_rules_that_contradict_the_library(server, repository, compiled, serving, mentions):
    repository.add("ruled", compiled[1] / "libmasked.so", "max_batch_size: 4", serving)
    with pytest.raises(Refused, match=re.escape(mentions)):
        server.call("load_model", "ruled")


def test_files_that_are_not_libraries(server, repository, tmp_path):
    (tmp_path / "text").write_text("not a library")
    repository.add("text", tmp_path / "text")
    with pytest.raises(Refused, match=re.escape("1/model.so")):
        server.call("load_model", "text")


def test_without_completion(backends, repository, compiled, tmp_path):
    """--disable-auto-complete-config: the file must be complete, and is compared with the library."""
    library = compiled[1] / "libmasked.so"
    inputs = " ".join(
        f'input {{ name: "{name}" data_type: {dtype} dims: [ -1, -1 ] }}'
        for name, dtype in (("values", "TYPE_INT64"), ("mask", "TYPE_BOOL"))
    )
    output = 'output { name: "total" data_type: TYPE_INT64 dims: [ -1 ] }'
    repository.add("whole", library, f'name: "whole" {inputs} {output}')
    repository.add("part", library, f'name: "part" {inputs.partition("} ")[0]}}} {output}')
    server = Server(backends, repository, tmp_path, "--disable-auto-complete-config")
    try:
        server.call("load_model", "whole")
        request = masked_request(3, 5)
        total = np.where(request["mask"], request["values"], 0).sum(1)
        assert np.array_equal(server.infer("whole", request)["total"], total)
        with pytest.raises(Refused, match="input 'mask' is missing"):
            server.call("load_model", "part")
    finally:
        assert server.stop() == 0


# -- Models that come and go


def test_models_come_and_go(server, repository, compiled):
    modules, folder = compiled
    repository.add("first", folder / "libmasked.so")
    repository.add("second", folder / "librows.so", 'default_model_filename: "rows.so"', file="rows.so")
    for name in ("first", "second"):
        server.call("load_model", name)
    expect(modules["rows"], [ROWS], [server.infer("second", ROWS)])
    server.call("unload_model", "second")
    assert not server.call("is_model_ready", "second")
    with pytest.raises(Refused, match="second"):
        server.infer("second", ROWS)
    expect(modules["masked"], [masked_request(2, 3)], [server.infer("first", masked_request(2, 3))])
    server.call("load_model", "second")
    expect(modules["rows"], [ROWS], [server.infer("second", ROWS)])


def compile_rows(seed, folder, **options):
    """Another model of the same interface, as folder/rows.so."""
    torch.manual_seed(seed)
    module = Rows().eval()
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=1, max=128)
    shapes = ({0: batch, 1: length}, {0: batch})
    example = (torch.ones(2, 3, dtype=torch.int64), torch.ones(2))
    disc.aot_compile(module, example, dynamic_shapes=shapes, output=folder / "rows.so", **options)
    return module


ROWS = {"ids": np.ones((2, 3), dtype=int), "scale": np.ones(2, np.float32)}


def test_a_replaced_library(server, repository, compiled, tmp_path):
    """A file that took the place of another one is loaded, not the old one again; and the old one, if it comes back."""
    newer = compile_rows(1, tmp_path)
    for module, file in ((compiled[0]["rows"], compiled[1] / "librows.so"), (newer, tmp_path / "rows.so")) * 2:
        repository.add("replaced", file)
        server.call("load_model", "replaced")
        expect(module, [ROWS], [server.infer("replaced", ROWS)])


def test_versions(server, repository, compiled, tmp_path):
    """Two versions at the same time; the weights of the second are in a file beside its library."""
    newer = compile_rows(2, tmp_path, weights=str(tmp_path / "rows.safetensors"))
    repository.add("versions", compiled[1] / "librows.so")
    repository.add("versions", tmp_path / "rows.so", "version_policy { all { } }", version=2)
    with pytest.raises(Refused, match=r"rows\.safetensors"):
        server.call("load_model", "versions")
    shutil.copy2(tmp_path / "rows.safetensors", repository.folder / "versions" / "2")
    server.call("load_model", "versions")
    for version, module in (("1", compiled[0]["rows"]), ("2", newer)):
        expect(module, [ROWS], [server.infer("versions", ROWS, model_version=version)])


def test_nothing_is_left_behind(server, repository, compiled):
    """Loading and unloading again and again does not take more memory; requests for another model go on."""
    for name in ("left", "stays"):
        repository.add(name, compiled[1] / "libsentences.so")
    server.call("load_model", "stays")
    request = sentence_request(2, 8)
    sizes = []
    for _ in range(30):
        server.call("load_model", "left")
        server.infer("left", request)
        server.call("unload_model", "left")
        server.infer("stays", request)
        sizes.append(server.resident_bytes())
    # A model takes about 3 MB. The server's own memory settles within about 2 MB.
    assert sizes[-1] - sizes[4] < 10 << 20, sizes


def test_many_clients(server, load, compiled):
    """Two models at the same time, with and without padding: every client gets its own results."""
    plain = load("masked", "instance_group { kind: KIND_CPU count: 2 }")
    batched = load("sentences", "max_batch_size: 16 dynamic_batching { max_queue_delay_microseconds: 1000 }", SENTENCES)
    small = [masked_request(1 + k % 3, 1 + k) for k in range(30)]
    texts = [sentence_request(1 + k % 2, 1 + 5 * k % 60) for k in range(30)]
    expect(compiled[0]["masked"], small, server.infer_together(plain, small, protocol="grpc"))
    expect(compiled[0]["sentences"], texts, server.infer_together(batched, texts), rtol=1e-4, atol=1e-5)
    assert sum(size * count for size, count in server.batches(batched).items()) == 45


# -- The library


def test_exports(backends):
    """Only what Triton calls; nothing of the backend's can meet symbols of others."""
    text = subprocess.run(
        ["nm", "-D", "--defined-only", backends / "disc/libtriton_disc.so"], check=True, capture_output=True, text=True
    ).stdout
    names = {line.split()[-1] for line in text.splitlines()}
    wanted = {"Initialize", "GetBackendAttribute", "ModelInitialize", "ModelFinalize", "ModelInstanceInitialize"}
    assert names == {f"TRITONBACKEND_{name}" for name in (*wanted, "ModelInstanceExecute")}
