"""One engine in a process of its own: `python -m bench.training.worker ENGINE MODEL THREADS LOG`.

It reads one JSON object a line from standard input and answers each with one on standard output. Other output goes to
the log.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from bench.worker import memory, reason, trim

from . import models
from .engines import ENGINES, Engine, NotSupported

Answer = dict[str, Any]
COMPARED = 3
"""Steps whose losses are compared with the reference's: the third depends on two updates."""


class Worker:
    """The commands, one method each."""

    def __init__(self, engine: str, model: str, threads: int):
        self.kind, self.threads = ENGINES[engine], threads
        self.model = models.load(model)
        self.engine: Engine
        self.before = 0
        self.batch: tuple[Any, ...] = ()
        self.shape: models.Shape = ()

    def load(self) -> Answer:
        """Builds the network and compiles the step."""
        import torch._dynamo  # the memory of PyTorch's own modules is not counted

        if self.kind is ENGINES["disc"]:
            import disc  # noqa: F401
        trim()
        self.before = memory("VmRSS")
        self.engine = self.kind(self.model, self.threads)
        start = time.perf_counter()
        self.engine.compile()
        return {"seconds": time.perf_counter() - start, "version": f"torch {torch.__version__}"}

    def losses(self, shape: list[int]) -> Answer:
        """The losses of some steps from the first weights, at a shape. Later calls of `time` repeat that step."""
        self.engine.reset()
        size = tuple(shape)
        batches = [self.model.data(size, seed) for seed in range(COMPARED)]
        start = time.perf_counter()
        losses = [self.engine.step(*batch).item() for batch in batches]
        seconds = time.perf_counter() - start
        self.batch, self.shape = batches[0], size
        return {"losses": losses, "seconds": seconds}

    def peak(self) -> Answer:
        """Bytes that steps need: above those before the step, and above those before the network was loaded."""
        self.engine.idle()
        trim()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        resident = memory("VmRSS")
        for _ in range(3):
            self.engine.step(*self.batch)
        highest = memory("VmHWM")
        kept = self.engine.kept(dict(zip(self.model.dims, self.shape, strict=True)))
        # Temporaries that are kept are resident already.
        return {"calls": max(kept, highest - resident), "process": highest - self.before - self.engine.state_bytes()}

    def time(self, warm: float, seconds: float, most: int) -> Answer:
        """One turn: steps that are not counted, then as many as fit, at least one."""
        step, batch, clock = self.engine.step, self.batch, time.perf_counter
        end = clock() + warm
        while clock() < end:
            step(*batch)
        samples: list[float] = []
        end = clock() + seconds
        while not samples or (len(samples) < most and clock() < end):
            before = clock()
            step(*batch)
            samples.append(clock() - before)
        return {"samples": samples}

    def reset(self) -> Answer:
        """The first weights. Without it, the state of parameters that get no gradients decays to denormal numbers."""
        self.engine.reset()
        return {}

    def recompilations(self) -> Answer:
        """Compilations after the first."""
        return {"count": self.engine.recompilations()}


def main() -> None:
    """Answers commands until standard input ends."""
    engine, model, threads, log = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    worker = Worker(engine, model, int(threads))
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": str(error) if isinstance(error, NotSupported) else reason(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
