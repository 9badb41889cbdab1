"""Models for examples/service, the service itself, and a plain HTTP client of the Open Inference Protocol."""

import http.client
import json
import signal
import subprocess
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.export import Dim

import disc

ROOT = Path(__file__).resolve().parents[2]
CLIENT_PYTHON = ROOT / ".venv-clients" / "bin" / "python"
DATATYPES = {
    **{np.dtype(f"{kind}{bits}"): f"{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{np.dtype(f"float{bits}"): f"FP{bits}" for bits in (16, 32, 64)},
    np.dtype(bool): "BOOL",
}
DTYPES = {name: dtype for dtype, name in DATATYPES.items()}


class Masked(nn.Module):
    """Two inputs, int64 and bool; two outputs, int64 and float32."""

    def forward(self, values, mask):
        """[batch, length] each -> total [batch], scaled [batch, length]."""
        kept = torch.where(mask, values, torch.zeros_like(values))
        return {"total": kept.sum(1), "scaled": kept.to(torch.float32) * 0.5}


class Select(nn.Module):
    """A data-dependent output size."""

    def forward(self, x, threshold):
        """[n], [] -> [k], [k, 1]."""
        return {"chosen": x[x > threshold], "where": torch.nonzero(x > threshold)}


class Everything(nn.Module):
    """Every datatype, in and out."""

    def forward(self, *tensors):
        """[n] each -> [n] each, the same values."""
        return tuple(torch.flip(torch.flip(tensor, [0]), [0]) for tensor in tensors)


class Sequences(nn.Module):
    """Sequences one behind the other: a value for each token, and for each sequence."""

    def __init__(self, by_lengths):
        super().__init__()
        self.by_lengths = by_lengths
        self.linear = nn.Linear(4, 3)

    def forward(self, values, marks):
        """[tokens, 4], offsets [n + 1] or lengths [n] -> [tokens, 3], [n, 3]."""
        ends = marks.cumsum(0) if self.by_lengths else marks[1:]
        each = self.linear(values)
        sequence = torch.bucketize(torch.arange(values.shape[0]), ends, right=True)
        return {"each": each, "sums": torch.zeros(ends.shape[0], 3).index_add(0, sequence, each)}


class Lookup(nn.Module):
    """Rows of a table, scaled: ids beyond the table are an error of the run; `scale` has no batch."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids, scale):
        """[batch, length], [] -> [batch, 4]."""
        return {"mean": self.table(ids).mean(1) * scale}


class Counter(nn.Module):
    """Has state."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        """[batch] -> [batch]."""
        self.count += 1
        return x + self.count


EVERY_DTYPE = (
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
)


def compile_models(folder):
    """Compiles them into `folder`; returns the modules by name."""
    torch.manual_seed(0)
    batch, length, n = Dim("batch", min=1, max=64), Dim("length", min=1, max=128), Dim("n", min=0, max=1000)
    tokens, sequences = Dim("tokens", min=1, max=1000), Dim("sequences", min=1, max=64)
    ids = torch.ones(2, 3, dtype=torch.int64)
    both = {0: batch, 1: length}
    cases = {
        "masked": (Masked(), (ids, ids > 0), (both, both)),
        "select": (Select(), (torch.ones(5), torch.tensor(0.0)), ({0: n}, None)),
        "everything": (Everything(), tuple(torch.ones(5).to(t) for t in EVERY_DTYPE), (({0: n},) * len(EVERY_DTYPE),)),
        "offsets": (
            Sequences(by_lengths=False),
            (torch.ones(7, 4), torch.tensor([0, 3, 7])),
            ({0: tokens}, {0: sequences + 1}),
        ),
        "lengths": (
            Sequences(by_lengths=True),
            (torch.ones(7, 4), torch.tensor([3, 4], dtype=torch.int32)),
            ({0: tokens}, {0: sequences}),
        ),
        "lookup": (Lookup(), (ids, torch.tensor(1.0)), (both, None)),
        "counter": (Counter(), (ids[0],), ({0: batch},)),
    }
    for name, (module, example, shapes) in cases.items():
        disc.aot_compile(module.eval(), example, dynamic_shapes=shapes, output=folder / f"lib{name}.so", name=name)
    return {name: module for name, (module, _, _) in cases.items()}


class Service:
    """A process of the service. `models`: name -> library; `configs`: name -> what its JSON file contains."""

    def __init__(self, program, folder, models, *options, configs=None):
        command = [str(program), "--port", "0", *options]
        for name, library in models.items():
            command += ["--model", f"{name}={library}"]
        for name, config in (configs or {}).items():
            file = folder / f"{name}.json"
            file.write_text(json.dumps(config))
            command += ["--model-config", f"{name}={file}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines, self.grpc_port = [], None
        while not self.lines or "listening" not in self.lines[-1]:
            line = self.process.stdout.readline()
            assert line, f"it ended with {self.process.wait()}"
            self.lines.append(line.strip())
            if line.startswith("gRPC on"):
                self.grpc_port = int(line.rpartition(":")[2])
        self.port = int(self.lines[-1].rpartition(":")[2])

    def metrics(self):
        """Samples by name with labels."""
        _, _, text = ask(self.port, "GET", "/metrics")
        lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def stop(self):
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self.process.stdout.close()


def ask(port, method, path, body=None, headers=None):
    """Status, headers and body of one request over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


class Refused(Exception):
    """An answer that is not a success."""

    def __init__(self, status, error):
        super().__init__(f"{status}: {error}")
        self.status, self.error = status, error


def infer(port, model, inputs, *, parameters=None, outputs=None):
    """The results by name of arrays by name, all in binary."""
    described, blobs = [], []
    for name, array in inputs.items():
        array = np.asarray(array, order="C")
        blobs.append(array.tobytes())
        entry = {"name": name, "datatype": DATATYPES[array.dtype], "shape": list(array.shape)}
        described.append({**entry, "parameters": {"binary_data_size": len(blobs[-1])}})
    request = {"inputs": described, "parameters": {"binary_data_output": True, **(parameters or {})}}
    if outputs:
        request["outputs"] = [{"name": name} for name in outputs]
    head = json.dumps(request).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    status, headers, body = ask(port, "POST", f"/v2/models/{model}/infer", head + b"".join(blobs), headers)
    if status != 200:
        raise Refused(status, json.loads(body)["error"])
    size = int(headers["Inference-Header-Content-Length"])
    results, begin = {}, size
    for output in json.loads(body[:size])["outputs"]:
        end = begin + output["parameters"]["binary_data_size"]
        values = np.frombuffer(body[begin:end], DTYPES[output["datatype"]])
        results[output["name"]] = values.reshape(output["shape"])
        begin = end
    assert begin == len(body)
    return results
