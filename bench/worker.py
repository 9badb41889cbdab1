"""One engine in a process of its own: `python -m bench.worker ENGINE VARIANT WORKLOAD THREADS ISA CACHE LOG`.

It takes one JSON object a line on standard input and answers each with one on standard output. Whatever engines print
goes to the log.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import inspect
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from . import engines, workloads
from .engines import Context, Engine

Answer = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]


def memory(field: str) -> int:
    """A figure of /proc/self/status in bytes: VmRSS is what is resident, VmHWM what was at most."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(field + ":"))


def trim() -> None:
    """Gives back what the allocator keeps of memory that was freed, so that only what is in use counts."""
    import gc

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def digest(files: Iterable[Path], *words: str) -> str:
    """Changes when one of the files or words does."""
    result = hashlib.sha256(" ".join(words).encode())
    for file in files:
        result.update(file.read_bytes())
    return result.hexdigest()[:16]


def sources() -> list[Path]:
    """The files that say what the workloads are."""
    folders = (ROOT / "bench" / "workloads", ROOT / "examples" / "dynamic")
    return [*sorted(f for folder in folders for f in folder.rglob("*.py")), ROOT / "examples" / "sentence_embedder.py"]


class Worker:
    """The commands, one method each."""

    def __init__(self, engine: type[Engine], context: Context):
        self.kind = engine
        self.context = context
        self.workload = context.workload
        self.engine: Engine | None = None
        self.before = 0
        self.run: Callable[[], Any] = lambda: None

    def prepare(self) -> Answer:
        """Makes the engine's file unless the cache has it; how long that took is kept beside it."""
        self._take()
        path = self.kind.artifact(self.context)
        if path is None:
            return {"seconds": 0.0}
        files = [ROOT / "bench" / "engines" / "exports.py", Path(inspect.getfile(self.kind))]
        versions = [f"{tool} {importlib.metadata.version(tool)}" for tool in (*self.kind.tools, *self.kind.packages)]
        record, key = path.with_suffix(path.suffix + ".json"), digest(files, self.context.fingerprint, *versions)
        if path.exists() and record.exists():
            known = json.loads(record.read_text(encoding="utf-8"))
            if known["key"] == key:
                return {"seconds": known["seconds"]}
        start = time.perf_counter()
        reused = self.kind.prepare(self.context) or 0.0
        seconds = time.perf_counter() - start + reused
        record.write_text(json.dumps({"key": key, "seconds": seconds}), encoding="utf-8")
        return {"seconds": seconds}

    def _take(self) -> None:
        if self.workload.precision not in self.kind.precisions:
            raise engines.NotSupported(f"the bench has no {self.workload.precision} of it")

    def load(self) -> Answer:
        """Compiles, or loads what was prepared."""
        self._take()
        self.engine = self.kind(self.context)
        self.engine.start()
        trim()
        self.before = memory("VmRSS")
        start = time.perf_counter()
        self.engine.compile()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "version": self.kind.version()}

    def weights(self) -> Answer:
        """The size of the model's parameters and buffers."""
        tensors = {t.data_ptr(): t.nbytes for t in self.workload.build().state_dict(keep_vars=True).values()}
        return {"bytes": sum(tensors.values())}

    def bind(self, shape: list[int], peak: bool = False) -> Answer:
        """Makes ready for a shape, and calls once; `peak` measures the memory of calls at it."""
        assert self.engine is not None
        extents = tuple(shape)
        start = time.perf_counter()
        self.inputs = self.workload.inputs(extents)
        self.run = self.engine.bind(extents, self.inputs)
        if peak and not self.kind.recompiles:
            return self._peak()
        self.run()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, **(self._peak() if peak else {})}

    def save(self, path: str) -> Answer:
        """Writes the outputs to a file, for others to compare with."""
        assert self.engine is not None
        torch.save(self.engine.outputs(self.run()), path)
        return {}

    def check(self, path: str) -> Answer:
        """The largest difference from the outputs in a file."""
        assert self.engine is not None
        actual = self.engine.outputs(self.run())
        return {"error": self.workload.largest_difference(actual, torch.load(path, mmap=True))}

    def _peak(self) -> Answer:
        """What calls need at most: above a moment ago, and above what the process had before the model was loaded."""
        trim()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        resident, start = memory("VmRSS"), time.perf_counter()
        for _ in range(3):
            self.run()
        highest = memory("VmHWM")
        return {"seconds": time.perf_counter() - start, "process": highest - self.before, "calls": highest - resident}

    def time(self, warm: float, seconds: float, most: int) -> Answer:
        """One turn: calls that are not counted until the machine is ours again, then as many as fit, at least one."""
        run, clock = self.run, time.perf_counter
        end = clock() + warm
        while clock() < end:
            run()
        samples: list[float] = []
        end = clock() + seconds
        while not samples or (len(samples) < most and clock() < end):
            before = clock()
            run()
            samples.append(clock() - before)
        return {"samples": samples}


CALLS = ("bind", "save", "check", "time")
"""The commands that call the model."""


def reason(error: BaseException) -> str:
    """What went wrong, in a line or two: engines put the place in their own sources first, and the cause later."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error))  # colours of terminals
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Exception from", "/"))]
    name = "" if isinstance(error, engines.NotSupported) else f"{type(error).__name__}: "
    return (name + " ".join(lines))[:240]


def main() -> None:
    """Answers commands until standard input ends."""
    engine, variant, workload, threads, isa, cache, log = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    torch.set_grad_enabled(False)
    context = Context(
        workload=workloads.load(workload),
        name=workload,
        threads=int(threads),
        cache=Path(cache),
        fingerprint=digest(sources(), torch.__version__),
        variant=variant,
        isa=isa,
    )
    worker = Worker(engines.load(engine), context)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            do = command.pop("do")
            # Engines are called in inference mode. Models are made and exported outside it: exporters want parameters
            # that are ordinary tensors.
            with torch.inference_mode(do in CALLS):
                answer = getattr(worker, do)(**command)
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": reason(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
