"""Models beside fork(), spawn, Ctrl-C and a system that refuses threads."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

N = Dim("N", min=1, max=4096)


class Counter(nn.Module):
    """With state: calls take turns."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("weight", torch.randn(64, 64))

    def forward(self, x):
        self.calls.add_(1)
        return torch.tanh(x @ self.weight) @ self.weight + self.calls


class Sum(nn.Module):
    """A loop as long as its data says."""

    def forward(self, x, steps):
        i = torch.zeros((), dtype=torch.long)
        while i < steps:
            x = torch.sin(x) + 1
            i = i + 1
        return x


def ended_well(child, seconds=60):
    """Whether a child process exits with 0 in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def forks(call, count):
    """Forks while two other threads call; whether each child could call, too."""
    stop = threading.Event()

    def load():
        while not stop.is_set():
            call()

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(count):
            child = os.fork()
            if child == 0:
                try:
                    call()
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            if not ended_well(child):
                return False
        return True
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_forks_while_a_compiled_model_runs():
    model = disc.compile(Counter(), (torch.randn(5, 64),), dynamic_shapes=({0: N},), options=disc.Options(threads=2))
    x = torch.randn(300, 64)
    assert forks(lambda: model(x), 50)


FORKS = """
import sys
import numpy as np
sys.path[:0] = sys.argv[2:]
import disc
from test_processes_forks import forks
model = disc.load(sys.argv[1], threads=2)
x = np.ones((300, 64), dtype=np.float32)
sys.exit(0 if forks(lambda: model(x), 300) else 1)
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    path = tmp_path_factory.mktemp("counter") / "libcounter.so"
    disc.aot_compile(Counter(), (torch.randn(5, 64),), dynamic_shapes=({0: N},), output=path)
    return path


def test_forks_while_a_library_runs(counter, tmp_path):
    """In a process without torch, which forks faster; test/runtime does it a thousand times."""
    import inspect

    source = "import os, signal, threading, time\n" + inspect.getsource(ended_well) + inspect.getsource(forks)
    (tmp_path / "test_processes_forks.py").write_text(source)
    command = [sys.executable, "-W", "ignore", "-c", FORKS, counter, tmp_path]
    assert subprocess.run(command, timeout=300).returncode == 0


SPAWNS = """
import multiprocessing, sys
import numpy as np
import disc

def run(library, x, queue):
    queue.put(library(x))

if __name__ == "__main__":
    library, x = disc.load(sys.argv[1], threads=2), np.ones((3, 64), dtype=np.float32)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=run, args=(library, x, queue))
    process.start()
    got = queue.get(timeout=200)
    process.join()
    assert np.array_equal(got, library(x))  # its state begins anew
"""


def test_libraries_are_sent_to_spawned_processes(counter, tmp_path):
    (tmp_path / "spawns.py").write_text(SPAWNS)
    done = subprocess.run(
        [sys.executable, tmp_path / "spawns.py", counter], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_pickled_libraries_keep_their_options(libraries, tmp_path):
    made = libraries("mlp")
    x = np.random.default_rng(0).standard_normal((6, 24), dtype=np.float32)
    library = disc.load(made.path, threads=3)
    copy = pickle.loads(pickle.dumps(library))
    assert copy.threads == 3 and np.array_equal(copy(x), library(x))
    other = tmp_path / "other.safetensors"
    save_file({name: 2 * tensor for name, tensor in made.module.state_dict().items()}, other)
    library.swap_weights(other)
    assert not np.array_equal(copy(x), library(x))
    assert np.array_equal(pickle.loads(pickle.dumps(library))(x), library(x))


def test_compiled_models_reach_other_processes():
    model = disc.compile(nn.Linear(4, 4), (torch.randn(2, 4),), dynamic_shapes=({0: torch.export.Dim("rows", max=64)},))
    x = torch.randn(33, 4)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert torch.equal(pool.submit(model, x).result(timeout=240), model(x))


# -- Ctrl-C


@pytest.fixture(autouse=True)
def python_handles_signals():
    """A process that was started in the background ignores SIGINT, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(call, seconds):
    """Ctrl-C after so long: seconds until it took effect, or None if the call was over before."""
    sent = []

    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(seconds, send)
    timer.start()
    try:
        try:
            call()
        finally:
            timer.cancel()
            timer.join()
            time.sleep(0)  # a signal that came meanwhile is handled here
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    return None


# How long a busy machine may take to react, where an idle one takes a twentieth of a second.
REACTION = 5.0


def test_loops_are_interrupted():
    model = disc.compile(Sum(), (torch.randn(3, 4), torch.tensor(5)), dynamic_shapes=({0: N}, None))
    for shape in ((1, 4), (4096, 4)):  # steps of nanoseconds, and of launches
        x = torch.randn(*shape)
        reaction = interrupted(lambda x=x: model(x, torch.tensor(2**62)), 0.3)
        assert reaction is not None and reaction < REACTION
        torch.testing.assert_close(model(x, torch.tensor(7)), Sum()(x, torch.tensor(7)))


def test_handlers_that_do_not_raise_let_loops_go_on():
    model = disc.compile(Sum(), (torch.randn(3, 4), torch.tensor(5)), dynamic_shapes=({0: N}, None))
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        started = time.monotonic()
        while not seen or time.monotonic() - started < 0.2:
            model(torch.randn(3, 4), torch.tensor(2_000_000))
        assert seen
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_libraries_are_interrupted(tmp_path):
    path = tmp_path / "libsum.so"
    disc.aot_compile(Sum(), (torch.randn(3, 4), torch.tensor(5)), dynamic_shapes=({0: N}, None), output=path)
    library = disc.load(path)
    x = np.ones((2, 4), dtype=np.float32)
    reaction = interrupted(lambda: library(x, np.array(2**62)), 0.3)
    assert reaction is not None and reaction < REACTION
    torch.testing.assert_close(torch.from_numpy(library(x, np.array(3))), Sum()(torch.ones(2, 4), torch.tensor(3)))


def test_compilations_are_interrupted():
    """At any stage, and the next one is as good as ever."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2)]
    module, x = nn.Sequential(*layers, nn.LSTM(32, 16)).eval(), torch.randn(5, 7, 32)

    def compile():
        return disc.compile(module, (x,), dynamic_shapes=({0: N},))

    started = time.monotonic()
    compile()
    whole = time.monotonic() - started
    for part in (0.3, 0.6, 0.75, 0.9):
        reaction = interrupted(compile, whole * part)
        assert reaction is None or reaction < REACTION
    with torch.no_grad():
        torch.testing.assert_close(compile()(x), module(x), rtol=1e-4, atol=1e-5)


FIRST = """
import os, signal, sys, threading, time
import torch
import disc
for delay in map(float, sys.argv[1:]):
    child = os.fork()
    if child:
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            sys.exit(f"after an interrupt at {delay} s")
        continue
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        disc.compile(torch.nn.Linear(4, 4), (torch.randn(2, 4),))
        timer.join()
        time.sleep(0.1)
    except KeyboardInterrupt:
        pass
    model, module, x = None, torch.nn.Linear(4, 4), torch.randn(2, 4)
    torch.testing.assert_close(disc.compile(module, (x,))(x), module(x))
    os._exit(0)
"""


def test_the_first_compilation_is_interrupted():
    """While dialects and rules are registered, too, which happens once in a process."""
    command = [sys.executable, "-c", FIRST, *map(str, (0.02, 0.2, 0.5, 1.0))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


# -- Threads

DAEMON = """
import sys, threading, time
import numpy as np
import disc
model, x = disc.load(sys.argv[1]), np.ones((4096, 64), np.float32)
def call():
    while True:
        model(x)
threading.Thread(target=call, daemon=True).start()
time.sleep(0.2)
"""


def test_a_process_ends_while_a_daemon_thread_calls(counter):
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", DAEMON, counter], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")


REFUSES = """
#include <errno.h>
#include <pthread.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  return EAGAIN;
}
"""

REFUSES_AFTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
static atomic_int left = LEFT;
typedef int create_t(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  if (atomic_fetch_sub(&left, 1) <= 0)
    return EAGAIN;
  return ((create_t *)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, start, argument);
}
"""


def test_libraries_run_without_threads(counter, tmp_path):
    """Where pthread_create always fails, the calling thread does the work."""
    (tmp_path / "refuses.c").write_text(REFUSES)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "refuses.so", tmp_path / "refuses.c"], check=True)
    code = (
        "import sys, numpy as np, disc\n"
        "model = disc.load(sys.argv[1], threads=4)\n"
        "print(model.threads, model(np.ones((4096, 64), dtype=np.float32)).shape)\n"
    )
    environment = {**os.environ, "LD_PRELOAD": str(tmp_path / "refuses.so"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, counter]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "1 (4096, 64)"), done.stderr


COMPILES = """
import torch, disc
from torch.export import Dim
torch.manual_seed(0)
nn = torch.nn
module = nn.Sequential(nn.Linear(16, 32), nn.Softmax(-1), nn.Linear(32, 4), nn.LayerNorm(4)).eval()
x = torch.randn(3, 16)
model = disc.compile(module, (x,), dynamic_shapes=({0: Dim("n", min=1)},))
torch.testing.assert_close(model(x[:2]), module(x[:2]).detach(), rtol=1e-4, atol=1e-5)
print(model.threads)
"""


@pytest.mark.parametrize("threads", [0, 1])
def test_models_are_compiled_without_threads(threads, tmp_path):
    """Also where the system has one thread more, and then none."""
    (tmp_path / "refuses.c").write_text(REFUSES_AFTER.replace("LEFT", str(threads)))
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", tmp_path / "refuses.so", tmp_path / "refuses.c", "-ldl"], check=True
    )
    environment = {**os.environ, "LD_PRELOAD": str(tmp_path / "refuses.so")}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", COMPILES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() in ("1", "2"), done.stderr
