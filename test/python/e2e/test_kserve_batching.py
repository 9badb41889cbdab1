"""examples/service: requests of unequal shape in one run give each client its own results."""

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import kserve_tools
import service_tools
from kserve_tools import Refused, Service, infer

LONG = 60_000_000
"""Microseconds: a run then begins because it is full, not because time has passed."""

PAD = {"kind": "pad", "dim": "batch", "padded": ["length"], "max_padding": 1, "max_delay_us": LONG}
MASKED = {**PAD, "mask": "mask", "values": {"values": 1000}}
OFFSETS = {"kind": "ragged", "dim": "tokens", "offsets": "marks", "max_delay_us": LONG}
LENGTHS = {"kind": "ragged", "dim": "tokens", "lengths": "marks", "max_delay_us": LONG}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    service_tools.build(folder, "service", settings=["-DSERVICE_GRPC=OFF"])
    return folder / "service"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Modules by name, and the folder with their libraries."""
    folder = tmp_path_factory.mktemp("libraries")
    return kserve_tools.compile_models(folder), folder


@pytest.fixture
def start(program, compiled, tmp_path):
    """start(name, batching, **settings): a service of one model."""
    services = []

    def start(name, batching, *options, **settings):
        library = compiled[1] / f"lib{name}.so"
        config = {"batching": batching, **settings}
        services.append(Service(program, tmp_path, {"m": library}, *options, configs={"m": config}))
        return services[-1]

    yield start
    for service in services:
        assert service.stop() == 0


def ask_together(service, requests):
    """The results of requests that are sent at the same time; errors as exceptions in their places."""

    def one(inputs):
        try:
            return infer(service.port, "m", inputs)
        except Refused as error:
            return error

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(one, requests))


def samples(service):
    """Figures of the model."""
    metrics = service.metrics()
    names = ("run_requests_count", "run_requests_sum", "padding_total", "elements_total", "divided_runs_total")
    return {name: int(metrics[f'service_model_{name}{{model="m"}}']) for name in names}


def expect(module, requests, results):
    """Each result is PyTorch's for the request alone."""
    for inputs, result in zip(requests, results, strict=True):
        with torch.inference_mode():
            wanted = module(*(torch.tensor(array) for array in inputs.values()))
        assert result.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert result[name].shape == tuple(tensor.shape)
            np.testing.assert_allclose(result[name], tensor.numpy(), rtol=1e-5, atol=1e-6)


def masked_request(rows, length, seed):
    generator = np.random.default_rng(seed)
    values = generator.integers(-100, 100, (rows, length))
    return {"values": values, "mask": generator.random((rows, length)) < 0.7}


def test_padding(start, compiled):
    """Rows of unequal length share one run; values that pad them are visible nowhere."""
    service = start("masked", {**MASKED, "max_batch": 9})
    requests = [masked_request(rows, length, length) for rows, length in ((1, 5), (3, 1), (1, 128), (2, 17), (2, 64))]
    expect(compiled[0]["masked"], requests, ask_together(service, requests))
    own = sum(request["values"].size for request in requests)
    assert samples(service) == {
        "run_requests_count": 1,
        "run_requests_sum": 5,
        "elements_total": own,
        "padding_total": 9 * 128 - own,
        "divided_runs_total": 0,
    }


def test_limits_of_padding(start, compiled):
    """Much padding is worse than another run."""
    service = start("masked", {**MASKED, "max_batch": 6, "max_padding": 0.3})
    requests = [masked_request(1, length, length) for length in (10, 100, 11, 110, 12, 120)]
    expect(compiled[0]["masked"], requests, ask_together(service, requests))
    assert (samples(service)["run_requests_count"], samples(service)["run_requests_sum"]) == (2, 6)
    service = start("masked", {**MASKED, "max_batch": 6, "max_size": 240})
    expect(compiled[0]["masked"], requests, ask_together(service, requests))
    assert samples(service)["run_requests_count"] == 3  # 3 x 12, 2 x 110, 1 x 120


def test_missing_mask(start, compiled):
    """A request without the mask has no padding of its own; the service makes the mask."""
    service = start("masked", {**MASKED, "max_batch": 3})
    requests = [{"values": masked_request(1, length, length)["values"]} for length in (4, 9, 2)]
    results = ask_together(service, requests)
    whole = [{**request, "mask": np.ones_like(request["values"], dtype=bool)} for request in requests]
    expect(compiled[0]["masked"], whole, results)
    assert samples(service)["run_requests_count"] == 1


def ragged_request(lengths, by_lengths, seed):
    values = np.random.default_rng(seed).normal(size=(sum(lengths), 4)).astype(np.float32)
    marks = np.array(lengths, np.int32) if by_lengths else np.concatenate([[0], np.cumsum(lengths)])
    return {"values": values, "marks": marks}


@pytest.mark.parametrize("by_lengths", [False, True], ids=["offsets", "lengths"])
def test_ragged(start, compiled, by_lengths):
    name = "lengths" if by_lengths else "offsets"
    service = start(name, {**(LENGTHS if by_lengths else OFFSETS), "max_batch": 8})
    shapes = [[3], [5, 0, 2], [1, 1], [70, 9]]
    requests = [ragged_request(lengths, by_lengths, seed) for seed, lengths in enumerate(shapes)]
    expect(compiled[0][name], requests, ask_together(service, requests))
    assert samples(service)["run_requests_count"] == 1
    assert samples(service)["elements_total"] == 91
    assert samples(service)["padding_total"] == 0


@pytest.mark.parametrize(
    ("by_lengths", "marks", "mentions"),
    [
        (False, [0, 3, 2, 5], "element 2 is 2"),
        (False, [1, 3, 5], "element 0 is 1"),
        (False, [0, 3, 6], "element 2 is 6"),
        (False, [0, 3, 4], "last offset to be 5, found 4"),
        (True, [3, -1, 3], "element 1 is -1"),
        (True, [3, 1], "found 4"),
        (True, [2**31 - 1, 2**31 - 1], "element 0"),
    ],
    ids=range(7),
)
def test_marks_that_contradict_the_values(start, compiled, by_lengths, marks, mentions):
    """They are refused before they join others."""
    service = start(*(("lengths", LENGTHS) if by_lengths else ("offsets", OFFSETS)))
    values = np.zeros((5, 4), dtype=np.float32)
    with pytest.raises(Refused) as caught:
        infer(service.port, "m", {"values": values, "marks": np.array(marks, np.int32 if by_lengths else np.int64)})
    assert (caught.value.status, mentions in caught.value.error) == (400, True), caught.value.error


def test_a_bad_request_harms_no_other(start, compiled):
    """One that fails in the run, and one that is refused before."""
    service = start("lookup", {**PAD, "padded": [], "max_batch": 4})
    scale = np.float32(2)
    requests = [{"ids": np.full((1, 3), fill), "scale": scale} for fill in (1, 99, 2, 3)]
    with pytest.raises(Refused, match="length"):
        infer(service.port, "m", {"ids": np.ones((1, 129), dtype=int), "scale": scale})
    results = ask_together(service, requests)
    assert isinstance(results[1], Refused)
    assert results[1].status == 400
    del requests[1], results[1]
    expect(compiled[0]["lookup"], requests, results)
    assert samples(service)["divided_runs_total"] == 1


def test_inputs_without_a_batch_are_shared_by_equals_only(start, compiled):
    service = start("lookup", {**PAD, "padded": [], "max_batch": 2})
    requests = [{"ids": np.full((1, 3), k), "scale": np.float32(k % 2)} for k in range(4)]
    expect(compiled[0]["lookup"], requests, ask_together(service, requests))
    assert samples(service)["run_requests_count"] == 2


def test_without_batching(start, compiled):
    """Each request is a run, whatever waits."""
    service = start("masked", {"kind": "none"}, workers=2)
    requests = [masked_request(2, 7, seed) for seed in range(10)]
    expect(compiled[0]["masked"], requests, ask_together(service, requests))
    assert samples(service)["run_requests_count"] == 10


def queue_length(service):
    return service.metrics()['service_model_queue_requests{model="m"}']


def test_deadline(start):
    """What waits too long is answered with 504: by the request's own time, and by the model's."""
    service = start("masked", MASKED, deadline_ms=50)
    with pytest.raises(Refused, match="504: the request's deadline"):
        infer(service.port, "m", masked_request(1, 3, 0))
    service = start("masked", MASKED)
    with pytest.raises(Refused, match="504"):
        infer(service.port, "m", masked_request(1, 3, 0), parameters={"timeout": 1000})
    # It has left the queue, and is in nobody's run.
    assert samples(service)["run_requests_count"] == 0


def test_queue_and_stop(start):
    """A full queue is 503; what waits when the service stops is answered."""
    service = start("masked", MASKED, "--lame-duck-ms", "0", queue=1)
    results = []
    request = masked_request(2, 3, 0)
    waiting = threading.Thread(target=lambda: results.append(infer(service.port, "m", request)))
    waiting.start()
    while queue_length(service) == 0:
        time.sleep(0.01)
    with pytest.raises(Refused, match="503: the queue of model 'm' is full"):
        infer(service.port, "m", request)
    assert service.stop() == 0
    waiting.join()
    assert np.array_equal(results[0]["total"], np.where(request["mask"], request["values"], 0).sum(1))


@pytest.mark.parametrize(
    ("name", "config", "mentions"),
    [
        ("masked", "{", "parse error"),
        ("masked", {"queues": 1}, "model.queues: there is no such setting"),
        ("masked", {"queue": 0}, "expected a whole number from 1"),
        ("masked", {"batching": {"kind": "magic"}}, 'found "magic"'),
        ("masked", {"batching": {"kind": "pad"}}, "batching.dim: is missing"),
        ("masked", {"batching": {**PAD, "dim": "rows"}}, "no input has a dim 'rows'"),
        ("masked", {"batching": {**PAD, "padded": ["width"]}}, "no input has a dim 'width'"),
        ("masked", {"batching": {**PAD, "mask": "m"}}, "no input 'm'"),
        ("masked", {"batching": {**PAD, "values": {"values": 0.5}}}, "not a value of the input's datatype"),
        ("masked", {"batching": {**PAD, "values": {"values": "0"}}}, "expected a number"),
        ("masked", {"batching": {**PAD, "dim": "length"}}, "output 'total' has no dim 'length'"),
        ("offsets", {"batching": {**OFFSETS, "offsets": "values"}}, "expected one dim"),
        ("offsets", {"batching": {**OFFSETS, "lengths": "marks"}}, "either"),
        ("select", {"batching": {"kind": "pad", "dim": "n"}}, "it cannot be divided between requests"),
        ("counter", {"batching": {"kind": "pad", "dim": "batch"}}, "state"),
    ],
    ids=range(15),
)
def test_configurations_that_do_not_fit(program, compiled, tmp_path, name, config, mentions):
    """The service does not start, and says why."""
    file = tmp_path / "m.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    command = [program, "--port", "0", "--model", f"m={compiled[1]}/lib{name}.so", "--model-config", f"m={file}"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, mentions in done.stderr) == (1, True), done.stderr


def test_configuration_beside_the_library(program, compiled, tmp_path):
    library = tmp_path / "libm.so"
    library.write_bytes((compiled[1] / "libmasked.so").read_bytes())
    (tmp_path / "libm.serving.json").write_text(json.dumps({"batching": {**MASKED, "max_batch": 2}}))
    service = Service(program, tmp_path, {"m": library})
    try:
        ask_together(service, [masked_request(1, 3, 0), masked_request(1, 4, 0)])
        assert samples(service)["run_requests_count"] == 1
    finally:
        assert service.stop() == 0


@pytest.mark.parametrize(
    ("options", "mentions"),
    [
        (("--model", "missing.so"), "expected NAME=LIBRARY"),
        (("--model", "a/b=missing.so"), "expected NAME=LIBRARY"),
        (("--model", "m=missing.so"), "missing.so"),
        (("--model", "m=a.so", "--model", "m=b.so"), "two models"),
        (("--model-config", "m=a.json"), "no --model of this name"),
        (("--model", "m=LIBRARY", "--model-config", "m=missing.json"), "missing.json: cannot be read"),
        (("--model", "m=LIBRARY", "--vocab", "x"), "x"),
        (("--model", "m=LIBRARY", "--grpc-port", "0"), "built without gRPC. Install libgrpc++-dev"),
    ],
    ids=range(8),
)
def test_command_line(program, compiled, options, mentions):
    library = str(compiled[1] / "libmasked.so")
    command = [str(program), "--port", "0", *(option.replace("LIBRARY", library) for option in options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    assert mentions in done.stderr
