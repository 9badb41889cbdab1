"""Models on a local cluster of Ray: what replicas answer, survive and share, and batch inference over files."""

import asyncio
import json
import linecache
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.export import Dim

import disc
import served_models
from disc.errors import ArgumentTypeError, ArgumentValueError, CallError, DeadlineError, InputTypeError, ShapeError
from disc.serve import Padded
from disc.serve.served_model import portable
from doc_pages import blocks
from error_examples import examples

WHY = "Ray is not installed (54 packages, 650 MB): `make nightly` installs requirements-ray.txt and runs these tests"
ray = pytest.importorskip("ray", reason=WHY)
serve = pytest.importorskip("ray.serve", reason=WHY)
pa = pytest.importorskip("pyarrow", reason=WHY)
parquet = pytest.importorskip("pyarrow.parquet", reason=WHY)

import disc.serve.ray as disc_ray  # noqa: E402

PADDED = Padded(mask="attention_mask", requests=16)
REPLICAS = 2
"""Processes that share weights."""
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def embedder(folder):
    return served_models.write_embedder(folder / "libembedder.so")


@pytest.fixture(scope="module")
def cluster(embedder, folder):
    """A cluster with all applications of this file: its start takes longer than they do."""
    with pytest.MonkeyPatch.context() as patch:
        # Processes of Ray import what these tests import; the token is that of this cluster alone.
        paths = [str(ROOT / "python"), str(ROOT / "test/python"), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.setenv("RAY_AUTH_TOKEN", os.urandom(16).hex())
        ray.init(
            num_cpus=16,
            object_store_memory=80 << 20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": free_port()})
            yield run_applications(folder)
        finally:
            serve.shutdown()
            ray.shutdown()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run_applications(folder):
    """The handles of all applications, by name."""
    wide = served_models.Wide().eval()
    shapes = {"x": {0: Dim("batch", min=1, max=64)}}
    disc.aot_compile(wide, (torch.ones(2, 4096),), dynamic_shapes=shapes, output=folder / "libwide.so")
    module = served_models.embedder()
    save_file(module.state_dict(), folder / "original.safetensors")
    save_file({"out.weight": module.out.weight.T.contiguous()}, folder / "wrong.safetensors")
    with torch.no_grad():
        module.out.weight.mul_(-3)
    save_file(module.state_dict(), folder / "other.safetensors")
    library = folder / "libembedder.so"
    scaled = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 4, "upscale_delay_s": 600}
    probe = {"input_ids": np.ones((1, 4), np.int64), "attention_mask": np.ones((1, 4), np.int64)}
    applications = {
        "padded": disc_ray.deployment(library, batching=PADDED, num_replicas=2),
        "wide": disc_ray.deployment(folder / "libwide.so").options(num_replicas=REPLICAS, max_ongoing_requests=1),
        "scaled": disc_ray.deployment(
            library,
            probe=probe,
            autoscaling_config=scaled,
            user_config={"weights": str(folder / "other.safetensors")},
            health_check_period_s=0.5,
        ),
    }
    targets = [
        serve.RunTarget(application.bind(), name=name, route_prefix=f"/{name}")
        for name, application in applications.items()
    ]
    return dict(zip(applications, serve.run_many(targets), strict=True))


def replicas(application):
    """The processes of an application's replicas."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if command.startswith(f"ray::ServeReplica:{application}:".encode()):
                found.append(int(process.name))
    return found


def requests(count):
    generator = np.random.default_rng(count)
    return [generator.integers(0, 100, generator.integers((1, 2), (4, 60))) for _ in range(count)]


def assert_embedded(embedder, ids, found):
    expected = embedder(ids, np.ones_like(ids))
    for name in ("embedding", "tokens"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_requests_of_unequal_shape(count, cluster, embedder):
    arrays = requests(count)
    for begin in range(0, count, 1000):
        part = arrays[begin : begin + 1000]
        responses = [cluster["padded"].remote(input_ids=ids) for ids in part]
        for ids, response in zip(part, responses, strict=True):
            assert_embedded(embedder, ids, response.result())


BAD = {
    "range": ({"input_ids": np.ones((2, 600), np.int64)}, ShapeError, "DISC0101", "input 'input_ids', dim 1"),
    "dtype": ({"input_ids": np.ones((2, 6))}, InputTypeError, "DISC0104", "input 'input_ids', dtype"),
    "name": ({"ids": np.ones((2, 6))}, CallError, "DISC0102", "input 'ids' does not exist"),
    "index": ({"input_ids": np.full((2, 6), 100)}, IndexError, None, "aten.embedding at .*index 100 is out of range"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_among_others(name, cluster, embedder):
    arguments, kind, code, message = BAD[name]
    arrays = requests(20)
    responses = [cluster["padded"].remote(input_ids=ids) for ids in arrays]
    bad = cluster["padded"].remote(**arguments)
    with pytest.raises(kind, match=message) as caught:
        bad.result()
    assert getattr(caught.value, "code", None) == code
    if kind is ShapeError:
        assert (caught.value.input, caught.value.dim, caught.value.symbol) == ("input_ids", 1, "length")
    for ids, response in zip(arrays, responses, strict=True):
        assert_embedded(embedder, ids, response.result())


def test_deadlines(cluster, embedder):
    handle = cluster["padded"]
    ids = requests(1)[0]
    with pytest.raises(DeadlineError, match="not answered within 1e-06 s") as caught:
        handle.within.remote(1e-6, input_ids=ids).result()
    assert (caught.value.code, caught.value.seconds) == ("DISC0401", 1e-6)
    assert_embedded(embedder, ids, handle.within.remote(60, input_ids=ids).result())
    with pytest.raises(ArgumentValueError, match="seconds: expected seconds, more than 0"):
        handle.within.remote(-1, input_ids=ids).result()


@pytest.mark.nightly
def test_sources(cluster, embedder):
    """A model that is sent to the replica, and one that is compiled there; library and file: test_joined_calls.py."""
    ids = requests(1)[0]
    tensor = torch.from_numpy(ids)
    for source in (served_models.compiled(), served_models.compiled_for_two):
        application = disc_ray.deployment(source, batching=PADDED, ray_actor_options={"num_cpus": 2}, name="source")
        handle = serve.run(application.bind(), name="source", route_prefix=None)
        found = handle.remote(tensor, torch.ones_like(tensor)).result()
        assert isinstance(found["tokens"], torch.Tensor)
        assert_embedded(embedder, ids, found)
        with pytest.raises(ShapeError, match="input_ids"):
            handle.remote(tensor.tile(1, 600)).result()


def test_replicas_share_the_memory_of_weights(cluster):
    size = 4096 * 4096 * 4
    x = np.random.default_rng(0).random((2, 4096), np.float32)
    for response in [cluster["wide"].remote(x) for _ in range(60)]:
        response.result()
    processes = replicas("wide")
    assert len(processes) == REPLICAS
    mapped = [memory_of_library(process, "libwide.so") for process in processes]
    read = [sizes for sizes in mapped if sizes["Rss"] >= size]
    # The router chooses the replicas that answer.
    assert len(read) >= 2
    assert sum(sizes["Pss"] for sizes in mapped) < 1.1 * size + (4 << 20)
    assert all(sizes["Private_Dirty"] < 4 << 20 for sizes in mapped)


def memory_of_library(process, name):
    """Bytes of the mappings of a file, by the fields of /proc/PID/smaps."""
    total = {"Rss": 0, "Pss": 0, "Private_Dirty": 0}
    counted = False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        field, _, rest = line.partition(":")
        if field in total:
            total[field] += int(rest.split()[0]) * 1024 if counted else 0
        elif "-" in line.split()[0]:
            counted = line.endswith(f"/{name}")
    return total


def test_weights_are_swapped_in_a_running_replica(cluster, folder, embedder):
    """As Ray does when ``user_config`` changes in a configuration file; at its start the replica took ``other``."""
    handle, before = cluster["scaled"], replicas("scaled")
    other = disc.load(folder / "libembedder.so", threads=1)
    other.swap_weights(folder / "other.safetensors")
    for expected in (other, embedder):
        for ids in requests(20):
            assert_embedded(expected, ids, handle.remote(ids, np.ones_like(ids)).result())
        handle.reconfigure.remote({"weights": str(folder / "original.safetensors")}).result()
    assert replicas("scaled") == before
    with pytest.raises(disc.WeightsError, match="DISC0302"):
        handle.reconfigure.remote({"weights": str(folder / "wrong.safetensors")}).result()
    with pytest.raises(ArgumentValueError, match=r"user_config: expected {'weights': PATH}, got {'weight': 1}"):
        handle.reconfigure.remote({"weight": 1}).result()


def test_autoscaling_and_health_checks(cluster, embedder):
    arrays = requests(30)
    responses = [cluster["scaled"].remote(ids, np.ones_like(ids)) for ids in arrays]
    for ids, response in zip(arrays, responses, strict=True):
        assert_embedded(embedder, ids, response.result())
    status = serve.status().applications["scaled"]
    assert status.status == "RUNNING" and status.deployments["embedder"].status in ("HEALTHY", "UPSCALING")


def test_a_probe_that_fails_and_the_deadline_of_a_deployment(embedder, folder, monkeypatch):
    """What a replica does, in this process."""
    monkeypatch.setattr(disc_ray, "_assigned_cpus", lambda: 2)
    source, ids = portable(folder / "libembedder.so"), np.ones((1, 4), np.int64)
    for probe, kind in (
        ({"input_ids": ids}, CallError),
        ({"input_ids": ids, "attention_mask": ids * 1.0}, InputTypeError),
    ):
        with pytest.raises(kind):
            asyncio.run(disc_ray._Replica(source, None, None, 1, probe).check_health())
    replica = disc_ray._Replica(source, None, 1e-6, 1, {"input_ids": ids, "attention_mask": ids})
    asyncio.run(replica.check_health())
    with pytest.raises(DeadlineError, match="1e-06 s"):
        asyncio.run(replica(ids, ids))


def test_http(cluster, embedder):
    address = serve.status().proxies and f"http://127.0.0.1:{_http_port()}/padded"
    with urllib.request.urlopen(address) as response:
        described = json.load(response)
    assert described["inputs"][0] == {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]}
    ids = np.array([[1, 2, 3], [4, 5, 6]])
    tensor = {"name": "input_ids", "shape": [2, 3], "datatype": "INT64", "data": ids.tolist()}
    answer = post(address, {"id": "7", "inputs": [tensor]})
    assert answer["id"] == "7"
    found = {x["name"]: np.array(x["data"], np.float32).reshape(x["shape"]) for x in answer["outputs"]}
    assert_embedded(embedder, ids, found)
    for change, message in [
        ({"shape": [2, 2]}, "input 'input_ids', data: expected 4 elements for .2, 2., got 6"),
        ({"datatype": "FP32"}, "input 'input_ids', datatype: expected 'INT64', got 'FP32'"),
        ({"data": [[1, 2], [3]]}, "input 'input_ids', data: expected int64"),
        ({"name": "ids"}, "input 'ids' does not exist; the inputs are: 'input_ids', 'attention_mask'"),
        ({"shape": [2, 1], "data": [1, 2]}, "dim 1 .length. is out of range"),
    ]:
        with pytest.raises(RuntimeError, match=f"400.*{message}"):
            post(address, {"inputs": [{**tensor, **change}]})
    answer = post(address, {"inputs": [tensor], "outputs": [{"name": "tokens"}]})
    assert [output["name"] for output in answer["outputs"]] == ["tokens"]
    with pytest.raises(RuntimeError, match=r"400.*output 'x' does not exist; the outputs are: 'embedding', 'tokens'"):
        post(address, {"inputs": [tensor], "outputs": [{"name": "x"}]})
    with pytest.raises(RuntimeError, match=r"400.*must be a JSON object"):
        post(address, [1])


def _http_port():
    from ray.serve.context import _get_global_client

    return _get_global_client().http_config.port


def post(address, body):
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{error.code}: {json.load(error)['error']}") from None


def test_a_killed_replica_loses_at_most_what_it_was_answering(cluster, embedder):
    handle = cluster["padded"]
    arrays = requests(400)
    responses = [handle.remote(input_ids=ids) for ids in arrays]
    responses[0].result()
    before = replicas("padded")
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    lost = 0
    for ids, response in zip(arrays, responses, strict=True):
        try:
            assert_embedded(embedder, ids, response.result())
        except ray.exceptions.RayActorError:
            lost += 1
    assert lost <= 2 * PADDED.requests
    end = time.monotonic() + 60
    while len(set(replicas("padded")) - set(before)) < 1:
        assert time.monotonic() < end, "Ray started no other replica"
        time.sleep(0.1)
    for ids in arrays[:50]:
        assert_embedded(embedder, ids, handle.remote(input_ids=ids).result())


@pytest.mark.parametrize("error", examples(), ids=lambda error: type(error).__name__)
def test_errors_of_a_replica(error, cluster):
    """Ray's class, with the class, text and attributes of DISC's error."""
    remote = ray.exceptions.RayTaskError("call", "traceback", pickle.loads(pickle.dumps(error)))
    found = pickle.loads(ray.cloudpickle.dumps(remote)).as_instanceof_cause()
    assert isinstance(found, type(error)) and isinstance(found, ray.exceptions.RayTaskError)
    assert found.code == error.code and str(found.cause) == str(error)
    for name, value in vars(error).items():
        if name not in ("traced", "error"):
            assert getattr(found, name) == value


def test_arguments_of_deployments(folder):
    library = folder / "libembedder.so"
    with pytest.raises(ArgumentTypeError, match=r"batching: expected None, disc\.serve.Stacked"):
        disc_ray.deployment(library, batching=8)
    with pytest.raises(ArgumentValueError, match="deadline_s: expected seconds"):
        disc_ray.deployment(library, deadline_s=0)
    with pytest.raises(ArgumentValueError, match="concurrent_calls: expected a number from 1 on"):
        disc_ray.deployment(library, concurrent_calls=0)
    with pytest.raises(ArgumentValueError, match="mask: the model has no input 'mask'"):
        disc_ray.deployment(disc.load(library), batching=Padded(mask="mask"))
    application = disc_ray.deployment(library, batching=Padded(requests=50), max_ongoing_requests=7)
    assert (application.name, application.max_ongoing_requests) == ("embedder", 7)
    assert disc_ray.deployment(library, batching=Padded(requests=50)).max_ongoing_requests == 100


def test_the_code_of_the_documentation_runs(cluster, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    page = ROOT / "docs/howto/ray.md"
    found = [block for block in blocks(page.read_text()) if block.language == "python"]
    file = folder / "ray_page.py"
    file.write_text("\n".join(block.code for block in found))
    linecache.checkcache(str(file))
    # As in a script: Ray sends functions of __main__ as code.
    exec(compile(file.read_text(), str(file), "exec"), {"__name__": "__main__", "__file__": str(file)})
    out = capsys.readouterr().out
    assert "DISC0401 1e-06" in out and "DISC0101 input_ids 1 input 'input_ids', dim 1 (length)" in out
    assert "3 of 4 files, 0 of them from an earlier run\nfailed: " in out


# -- Ray Data ----------------------------------------------------------------------------------------------------------

ROWS = 8


def table(number):
    generator = np.random.default_rng(number)
    tokens = [generator.integers(0, 100, generator.integers(2, 30)).tolist() for _ in range(ROWS)]
    return pa.table({"id": [number * ROWS + n for n in range(ROWS)], "tokens": tokens})


def check_rows(embedder, found):
    expected = {row["id"]: row["tokens"] for n in range(100) for row in table(n).to_pylist()}
    for row in found.to_pylist():
        ids = np.array([expected[row["id"]]])
        assert row["tokens"] == expected[row["id"]]
        np.testing.assert_allclose(row["vector"], embedder(ids, np.ones_like(ids))["embedding"][0], atol=1e-6)


COLUMNS = {"input_ids": "tokens"}
RESULTS = {"embedding": "vector"}


@pytest.mark.nightly
def test_a_dataset(cluster, embedder, folder):
    dataset = ray.data.from_arrow([table(0), table(1)])
    results = disc_ray.map_batches(
        dataset, folder / "libembedder.so", batching=PADDED, columns=COLUMNS, results=RESULTS, concurrency=1
    )
    found = pa.concat_tables(ray.get(results.to_arrow_refs()))
    assert sorted(found["id"].to_pylist()) == list(range(2 * ROWS))
    check_rows(embedder, found)
    bad = ray.data.from_arrow([pa.table({"id": [1, 2], "tokens": [[1, 2], [3]]})])
    results = disc_ray.map_batches(bad, folder / "libembedder.so", batching=PADDED, columns=COLUMNS)
    with pytest.raises(ray.exceptions.RayTaskError, match=r"RowError: row 1: input 'input_ids', dim 1 .*DISC0101"):
        results.take_all()


SCRIPT = """
import ray, disc.serve.ray
from disc.serve import Padded

ray.init(address={address!r}, logging_level="ERROR", log_to_driver=False)
disc.serve.ray.map_files({library!r}, {inputs!r}, {output!r}, batching=Padded(mask="attention_mask", requests=1),
    columns={columns!r}, results={results!r})
"""


def test_files_are_complete_after_a_kill(cluster, embedder, folder):
    inputs, output = folder / "inputs", folder / "output"
    (inputs / "part").mkdir(parents=True)
    for n in range(100):
        name = inputs / ("part" if n >= 50 else "") / f"{n:02}.parquet"
        parquet.write_table(table(n), name)
    (inputs / "13.parquet").write_bytes(b"PAR1 is not all that a file needs")
    (inputs / "_SUCCESS").write_text("")

    library = str(folder / "libembedder.so")
    script = SCRIPT.format(
        address=ray.get_runtime_context().gcs_address,
        library=library,
        inputs=str(inputs),
        output=str(output),
        columns=COLUMNS,
        results=RESULTS,
    )
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.PIPE) as job:
        while len(list(output.rglob("*.parquet"))) < 10:
            assert job.poll() is None, job.stderr.read().decode()
            time.sleep(0.01)
        job.kill()
    first = {path: path.stat().st_ino for path in output.rglob("*.parquet")}
    assert 10 <= len(first) < 99

    report = disc_ray.map_files(
        library, inputs, output, batching=PADDED, columns=COLUMNS, results=RESULTS, concurrency=2, rows=3
    )
    assert list(report.failed) == [str(inputs / "13.parquet")]
    assert "ArrowInvalid: " in report.failed[str(inputs / "13.parquet")]
    assert len(report.results) == 100 and report.rows == 99 * ROWS
    # What was complete was not computed again.
    assert sum(result.existed for result in report.results) >= len(first)
    assert all(path.stat().st_ino == inode for path, inode in first.items())
    found = pa.concat_tables(parquet.read_table(path) for path in sorted(output.rglob("*.parquet")))
    assert found["id"].to_pylist() == [n * ROWS + i for n in range(100) if n != 13 for i in range(ROWS)]
    check_rows(embedder, found)
    assert not [path for path in output.rglob("*") if path.is_file() and path.suffix != ".parquet"]

    parquet.write_table(table(13), inputs / "13.parquet")
    again = disc_ray.map_files(library, inputs, output, batching=PADDED, columns=COLUMNS, results=RESULTS)
    assert not again.failed and again.rows == 100 * ROWS
    assert [result.file for result in again.results if not result.existed] == [str(inputs / "13.parquet")]
    assert str(again).startswith("100 of 100 files, 99 of them from an earlier run")
