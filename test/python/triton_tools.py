"""Triton Inference Server with examples/triton-backend, and its official clients."""

import contextlib
import fcntl
import os
import pickle
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

import service_tools
from kserve_tools import CLIENT_PYTHON, DATATYPES, ROOT

_SERVERS = sorted((ROOT / ".venv-clients").glob("lib/python3.*/site-packages/pytriton/tritonserver/bin/tritonserver"))
SERVER = _SERVERS[-1] if _SERVERS else None
"""The program, or None if it is not installed."""


def build():
    """The folder for --backend-directory. Built once, and again after a change."""
    tree = ROOT / "build" / "triton-tests"
    settings = [f"-DDISC_ROOT={ROOT}/python/disc", "-DCMAKE_UNITY_BUILD=ON"]
    if shutil.which("ccache"):
        settings.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    with open(ROOT / "build" / "triton-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        service_tools.run("cmake", "-S", ROOT / "examples" / "triton-backend", "-B", tree, "-G", "Ninja", *settings)
        service_tools.run("cmake", "--build", tree)
    return tree / "backends"


class Repository:
    """A folder of models."""

    def __init__(self, folder):
        self.folder = folder

    def add(self, name, library, config="", serving="", *, file="model.so", version=1):
        """A model from a library. `config`: what config.pbtxt has beside the backend; `serving`: batching, as JSON."""
        folder = self.folder / name / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        # By renaming: an earlier file may be mapped.
        shutil.copy2(library, folder / "new")
        os.replace(folder / "new", folder / file)
        (self.folder / name / "config.pbtxt").write_text(f'backend: "disc"\n{config}\n')
        if serving:
            (folder / file).with_suffix(".serving.json").write_text(serving)


class Refused(Exception):
    """The text of an error of the server's."""


class Server:
    """A process of the server in which nothing is loaded at first, and one of its clients."""

    def __init__(self, backends, repository, folder, *options):
        self.log_file = folder / "server.log"
        command = [SERVER, f"--backend-directory={backends}", f"--model-repository={repository.folder}"]
        command += ["--model-control-mode=explicit", "--allow-metrics=0", *options]
        for _ in range(3):
            if self._start(command):
                break
            assert "in use" in self.log(), self.log()  # Another process took a port in the meantime.
        ask = [str(CLIENT_PYTHON), str(ROOT / "test/python/triton_clients.py"), *map(str, self.ports.values())]
        self.clients = subprocess.Popen(ask, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _start(self, command):
        """Whether it is ready; otherwise it has ended."""
        self.ports = {protocol: _free_port() for protocol in ("http", "grpc")}
        for protocol, port in self.ports.items():
            command = [*command, f"--{protocol}-address=127.0.0.1", f"--{protocol}-port={port}"]
        with open(self.log_file, "w") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}/v2/health/ready", timeout=5).close()
                return True
            if time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(self.log())
            time.sleep(0.05)
        return False

    def log(self):
        return self.log_file.read_text()

    def resident_bytes(self):
        """Memory of the server's process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _ask(self, function, *arguments, **keywords):
        pickle.dump((function, arguments, keywords), self.clients.stdin)
        self.clients.stdin.flush()
        kind, value = pickle.load(self.clients.stdout)
        if kind == "error":
            raise Refused(value)
        return value

    def infer(self, model, inputs, *, protocol="http", outputs=None, **settings):
        """The results by name of arrays, or pairs of a datatype and an array, by name."""
        return self._ask("infer", protocol, model, _typed(inputs), outputs, **settings)

    def infer_together(self, model, requests, *, protocol="http"):
        """The results of requests sent at the same time; texts of errors in their places."""
        return self._ask("together", protocol, model, [_typed(inputs) for inputs in requests])

    def infer_shared(self, model, inputs, output, output_bytes):
        """One output, with all tensors in memory that the client shares with the server."""
        return self._ask("infer_shared", model, inputs, output, output_bytes)

    def call(self, method, *arguments, **keywords):
        """A method of the HTTP client."""
        return self._ask("call", method, *arguments, **keywords)

    def batches(self, model):
        """How many runs there were of each batch size."""
        stats = self.call("get_inference_statistics", model)["model_stats"][0]
        return {entry["batch_size"]: entry["compute_infer"]["count"] for entry in stats["batch_stats"]}

    def stop(self):
        """SIGTERM; the exit status."""
        self.clients.stdin.close()
        self.clients.wait(60)
        self.clients.stdout.close()
        self.process.terminate()
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()


def _typed(inputs):
    pairs = {}
    for name, value in inputs.items():
        pairs[name] = value if isinstance(value, tuple) else (DATATYPES[np.asarray(value).dtype], np.asarray(value))
    return pairs


def _free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]
