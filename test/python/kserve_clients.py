"""The official client, unchanged, against a running service: kserve_clients.py HTTP_PORT GRPC_PORT SENTENCES.npz.

test/python/e2e/test_kserve.py runs this in .venv-clients, which has tritonclient and NumPy but neither torch nor disc.
Prints one line of JSON for each check: its name, and null or what went wrong.
"""

import json
import sys
import threading
import traceback

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype


class Protocol:
    """One of the two clients."""

    def __init__(self, module, port, binary=True):
        self.module, self.binary, self.port = module, binary, port
        self.is_http = module is triton_http
        self.client = self.connect()

    def connect(self):
        """A client for one thread."""
        return self.module.InferenceServerClient(f"127.0.0.1:{self.port}")

    def tensor(self, name, array):
        """An input."""
        array = np.asarray(array)
        result = self.module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        result.set_data_from_numpy(array, **({"binary_data": self.binary} if self.is_http else {}))
        return result

    def outputs(self, *names):
        """Requested outputs."""
        settings = {"binary_data": self.binary} if self.is_http else {}
        return [self.module.InferRequestedOutput(name, **settings) for name in names]

    def infer(self, model, inputs, outputs=None, client=None, **settings):
        """The client's result."""
        tensors = [self.tensor(name, array) for name, array in inputs.items()]
        return (client or self.client).infer(model, tensors, outputs=outputs, **settings)


def check_health(p, _):
    """Live and ready; whether a model is there."""
    assert p.client.is_server_live() and p.client.is_server_ready()
    assert p.client.is_model_ready("masked") and p.client.is_model_ready("masked", "1")
    assert not p.client.is_model_ready("none") and not p.client.is_model_ready("masked", "2")


def check_metadata(p, _):
    """Of the server and of models."""
    keywords = {} if p.is_http else {"as_json": True}
    server = p.client.get_server_metadata(**keywords)
    assert server["name"] == "disc-service" and "binary_tensor_data" in server["extensions"], server
    model = p.client.get_model_metadata("masked", **keywords)

    def described(tensors):
        return [(t["name"], t["datatype"], [int(extent) for extent in t.get("shape", [])]) for t in tensors]

    assert (model["name"], model["versions"], model["platform"]) == ("masked", ["1"], "disc"), model
    assert described(model["inputs"]) == [("values", "INT64", [-1, -1]), ("mask", "BOOL", [-1, -1])], model
    assert described(model["outputs"]) == [("total", "INT64", [-1]), ("scaled", "FP32", [-1, -1])], model
    model = p.client.get_model_metadata("select", **keywords)
    assert described(model["inputs"]) == [("x", "FP32", [-1]), ("threshold", "FP32", [])], model
    assert described(model["outputs"]) == [("chosen", "FP32", [-1]), ("where", "INT64", [-1, 1])], model


def check_two_outputs(p, _):
    """int64 and bool inputs, all outputs and a selected one, ids."""
    values = np.arange(12).reshape(3, 4) - 5
    inputs = {"values": values, "mask": values % 3 != 0}
    kept = np.where(inputs["mask"], values, 0)
    result = p.infer("masked", inputs, request_id="request 7")
    assert np.array_equal(result.as_numpy("total"), kept.sum(1))
    assert np.array_equal(result.as_numpy("scaled"), (kept * 0.5).astype(np.float32))
    response = result.get_response() if p.is_http else result.get_response(as_json=True)
    assert response["id"] == "request 7" and response["model_version"] == "1", response
    result = p.infer("masked", inputs, outputs=p.outputs("total"), model_version="1")
    assert np.array_equal(result.as_numpy("total"), kept.sum(1)) and result.as_numpy("scaled") is None


def check_data_dependent(p, _):
    """An output whose size is known after the run; also 0."""
    x = np.random.default_rng(0).normal(size=50).astype(np.float32)
    for threshold in (0.0, 0.5, 100.0):
        inputs = {"x": x, "threshold": np.float32(threshold)}
        result = p.infer("select", inputs, outputs=p.outputs("where", "chosen"))
        assert np.array_equal(result.as_numpy("chosen"), x[x > threshold])
        assert np.array_equal(result.as_numpy("where"), np.argwhere(x > threshold))
    result = p.infer("select", {"x": x[:0], "threshold": np.float32(0)}, outputs=p.outputs("where", "chosen"))
    assert result.as_numpy("chosen").shape == (0,) and result.as_numpy("where").shape == (0, 1)


def check_errors(p, _):
    """Each has the protocol's status and a text that names the fault."""
    x, zero = np.ones(3, np.float32), np.float32(0)
    good = {"x": x, "threshold": zero}
    invalid, missing = ("400", "404") if p.is_http else ("StatusCode.INVALID_ARGUMENT", "StatusCode.NOT_FOUND")
    cases = [
        (missing, "no model 'none'", lambda: p.infer("none", good)),
        (missing, "no version '7'", lambda: p.infer("select", good, model_version="7")),
        (missing, "no model 'none'", lambda: p.client.get_model_metadata("none")),
        (invalid, "'threshold' is missing", lambda: p.infer("select", {"x": x})),
        (invalid, "no input 'y'", lambda: p.infer("select", {**good, "y": x})),
        (invalid, "no output 'z'", lambda: p.infer("select", good, outputs=p.outputs("z"))),
        (invalid, "expected datatype FP32", lambda: p.infer("select", {"x": x.astype(int), "threshold": zero})),
        (invalid, "expected 1 dims", lambda: p.infer("select", {"x": x[None], "threshold": zero})),
        (invalid, "1000", lambda: p.infer("select", {"x": np.ones(1001, np.float32), "threshold": zero})),
        (invalid, "'priority' is not supported", lambda: p.infer("select", good, priority=1)),
        (invalid, "is not supported", lambda: p.infer("select", good, sequence_id=5, sequence_start=True)),
        (invalid, "'color' is not supported", lambda: p.infer("select", good, parameters={"color": "red"})),
    ]
    for status, mentions, request in cases:
        try:
            request()
        except InferenceServerException as error:
            assert error.status() == status and mentions in error.message(), (mentions, str(error))
        else:
            raise AssertionError(f"{mentions}: no error")
    assert np.array_equal(p.infer("select", good).as_numpy("chosen"), x)


def check_concurrent_sentences(p, sentences):
    """Clients with unequal shapes at the same time: each gets its own embedding."""
    lengths, ids, embeddings = sentences["lengths"], sentences["ids"], sentences["embeddings"]
    wrong = []

    def ask(number):
        client = p.connect()
        try:
            for k in range(number, len(lengths), 6):
                row = ids[k : k + 1, : lengths[k]]
                inputs = {"input_ids": row, "attention_mask": np.ones_like(row)}
                got = p.infer("sentences", inputs, client=client).as_numpy("output_0")
                if got.shape != (1, embeddings.shape[1]) or np.abs(got - embeddings[k]).max() > 1e-5:
                    wrong.append((k, got.shape))
        except Exception as error:
            wrong.append(str(error))
        finally:
            client.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def check_messages(p, _):
    """Typed contents, and messages that the client would not send."""
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    def request(model, outputs=(), raw=(), parameters=(), **inputs):
        message = service_pb2.ModelInferRequest(model_name=model, id="5")
        for name, (datatype, shape, contents) in inputs.items():
            tensor = message.inputs.add(name=name, datatype=datatype, shape=shape)
            for field, values in contents.items():
                getattr(tensor.contents, field).extend(values)
        for name in outputs:
            message.outputs.add(name=name)
        message.raw_input_contents.extend(raw)
        for name, value in parameters:
            message.parameters[name].int64_param = value
        return message

    with grpc.insecure_channel(f"127.0.0.1:{p.port}") as channel:
        infer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
        values, mask = ("INT64", [2, 2], {"int64_contents": [1, 2, 3, 4]}), ("BOOL", [2, 2], {"bool_contents": [1] * 4})
        answer = infer(request("masked", values=values, mask=mask))
        assert answer.id == "5" and answer.model_version == "1" and not answer.raw_output_contents
        assert list(answer.outputs[0].contents.int64_contents) == [3, 7], answer
        assert list(answer.outputs[1].contents.fp32_contents) == [0.5, 1, 1.5, 2], answer

        fields = {"BOOL": "bool_contents", "INT64": "int64_contents", "UINT64": "uint64_contents"}
        fields.update({"FP32": "fp32_contents", "FP64": "fp64_contents", "FP16": "", "BF16": ""})
        metadata = p.client.get_model_metadata("everything")
        every, names = {}, []
        for spec, output in zip(metadata.inputs, metadata.outputs, strict=True):
            default = "uint_contents" if spec.datatype.startswith("U") else "int_contents"
            field = fields.get(spec.datatype, default)
            every[spec.name] = (spec.datatype, [1], {field: [1]} if field else {})
            names.append((output.name, field))
        try:
            infer(request("everything", **every))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "needs 1 elements" in error.details()
        else:
            raise AssertionError("FP16 has no contents")
        one = {"BOOL": "?", "FP16": "<f2", "BF16": "<u2", "FP32": "<f4", "FP64": "<f8"}
        kinds = [one.get(spec.datatype, spec.datatype.lower()) for spec in metadata.inputs]
        raw = [np.ones(1, dtype=kind).tobytes() for kind in kinds]
        bare = {name: (datatype, shape, {}) for name, (datatype, shape, _) in every.items()}
        answer = infer(request("everything", raw=raw, **bare))
        assert list(answer.raw_output_contents) == raw

        code = grpc.StatusCode
        four = {"int64_contents": [1, 2, 3, 4]}
        cases = [
            (code.INVALID_ARGUMENT, "one for each of 2 inputs", request("masked", raw=[b""], values=values, mask=mask)),
            (code.INVALID_ARGUMENT, "both contents and", request("masked", raw=[b"", b""], values=values, mask=mask)),
            (code.INVALID_ARGUMENT, "field for INT64", request("masked", values=("INT64", [1], {"int_contents": [1]}))),
            (code.INVALID_ARGUMENT, "field for FP16", request("everything", tensors_8=("FP16", [1], four))),
            (code.INVALID_ARGUMENT, "needs 2 elements", request("masked", values=("INT64", [1, 2], four), mask=mask)),
            (code.INVALID_ARGUMENT, "many elements", request("masked", values=("INT64", [2**62, 8], four), mask=mask)),
            (code.INVALID_ARGUMENT, "negative", request("masked", values=("INT64", [-1, -4], four), mask=mask)),
            (
                code.INVALID_ARGUMENT,
                "not a value of",
                request("everything", tensors_0=("UINT8", [1], {"uint_contents": [256]})),
            ),
            (
                code.INVALID_ARGUMENT,
                "expected datatype",
                request("masked", values=("BYTES", [1, 1], {"bytes_contents": [b"a"]})),
            ),
            (code.INVALID_ARGUMENT, "'timeout'", request("masked", parameters=[("timeout", -1)])),
            (code.INVALID_ARGUMENT, "'priority'", request("masked", parameters=[("priority", 1)])),
            (code.RESOURCE_EXHAUSTED, "larger than max", request("masked", raw=[bytes(200000)])),
        ]
        for status, mentions, message in cases:
            try:
                infer(message)
            except grpc.RpcError as error:
                assert error.code() == status and mentions in error.details(), (mentions, error)
            else:
                raise AssertionError(f"{mentions}: no error")
        assert infer(request("masked", values=values, mask=mask)).outputs[0].contents.int64_contents[0] == 3


def check_field_numbers(*_):
    """The client's messages, as far as they are the protocol's: printed for comparison with our own."""
    from tritonclient.grpc import service_pb2

    def fields(message):
        return {field.name: field.number for field in message.fields}

    ours = ["ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"]
    result = {name: fields(message) for name, message in service_pb2.DESCRIPTOR.message_types_by_name.items()}
    for name, message in service_pb2.DESCRIPTOR.message_types_by_name.items():
        result.update({f"{name}.{nested.name}": fields(nested) for nested in message.nested_types})
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    methods = {method.name: [method.input_type.name, method.output_type.name] for method in service.methods}
    return {"messages": result, "service": service.full_name, "methods": {name: methods[name] for name in ours}}


CHECKS = [check_health, check_metadata, check_two_outputs, check_data_dependent, check_errors]
CHECKS += [check_concurrent_sentences]


def main():
    """Runs every check with every protocol."""
    http_port, grpc_port, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    sentences = dict(np.load(file))
    protocols = {
        "http binary": Protocol(triton_http, http_port),
        "http json": Protocol(triton_http, http_port, binary=False),
        "grpc": Protocol(triton_grpc, grpc_port),
    }
    print(json.dumps(["field numbers", check_field_numbers()]), flush=True)
    for name, protocol in protocols.items():
        for check in [*CHECKS, check_messages] if name == "grpc" else CHECKS:
            try:
                problem = check(protocol, sentences)
            except Exception:
                problem = traceback.format_exc()
            print(json.dumps([f"{name}: {check.__name__}", problem]), flush=True)


if __name__ == "__main__":
    main()
