"""The official clients, asked by another process: triton_clients.py HTTP_PORT GRPC_PORT.

test/python/triton_tools.py runs this in .venv-clients, which has tritonclient. Reads pickles of (function, arguments,
keywords) from its input and writes one pickle for each: ("value", result) or ("error", text).
"""

import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shared_memory
from tritonclient.utils import InferenceServerException

MODULES = {"http": triton_http, "grpc": triton_grpc}


class Clients:
    """A client of each protocol."""

    def __init__(self, ports):
        self.ports = ports
        self.clients = {protocol: self.connect(protocol) for protocol in MODULES}

    def connect(self, protocol):
        """A client for one thread."""
        return MODULES[protocol].InferenceServerClient(f"127.0.0.1:{self.ports[protocol]}")

    def infer(self, protocol, model, inputs, outputs=None, client=None, **settings):
        """The results by name. `inputs`: name -> (datatype, array)."""
        module, tensors = MODULES[protocol], []
        for name, (datatype, array) in inputs.items():
            tensors.append(module.InferInput(name, list(array.shape), datatype))
            tensors[-1].set_data_from_numpy(array)
        requested = [module.InferRequestedOutput(name) for name in outputs] if outputs else None
        result = (client or self.clients[protocol]).infer(model, tensors, outputs=requested, **settings)
        response = result.get_response()
        names = [o["name"] for o in response["outputs"]] if protocol == "http" else [o.name for o in response.outputs]
        return {name: result.as_numpy(name) for name in names}

    def together(self, protocol, model, requests):
        """The results of requests that are sent at the same time; texts of errors in their places."""

        def ask(inputs):
            client = self.connect(protocol)
            try:
                return self.infer(protocol, model, inputs, client=client)
            except InferenceServerException as error:
                return str(error)
            finally:
                client.close()

        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(ask, requests))

    def infer_shared(self, model, inputs, output, output_bytes):
        """One output, with all tensors in shared memory."""
        client, regions, tensors = self.clients["http"], [], []

        def share(name, size):
            regions.append(shared_memory.create_shared_memory_region(name, f"/disc-{os.getpid()}-{name}", size))
            client.register_system_shared_memory(name, f"/disc-{os.getpid()}-{name}", size)
            return regions[-1]

        try:
            for name, (datatype, array) in inputs.items():
                shared_memory.set_shared_memory_region(share(name, array.nbytes), [array])
                tensors.append(triton_http.InferInput(name, list(array.shape), datatype))
                tensors[-1].set_shared_memory(name, array.nbytes)
            region = share(output, output_bytes)
            requested = triton_http.InferRequestedOutput(output)
            requested.set_shared_memory(output, output_bytes)
            shape = client.infer(model, tensors, outputs=[requested]).get_output(output)["shape"]
            return shared_memory.get_contents_as_numpy(region, "float32", shape).copy()
        finally:
            client.unregister_system_shared_memory()
            for region in regions:
                shared_memory.destroy_shared_memory_region(region)

    def call(self, name, *arguments, **keywords):
        """A method of the HTTP client."""
        return getattr(self.clients["http"], name)(*arguments, **keywords)


def main():
    """Answers until the input ends."""
    clients = Clients({"http": int(sys.argv[1]), "grpc": int(sys.argv[2])})
    while True:
        try:
            function, arguments, keywords = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = "value", getattr(clients, function)(*arguments, **keywords)
        except InferenceServerException as error:
            answer = "error", str(error)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
