"""Tasks in worker processes that may crash or hang without harm to the others."""

from __future__ import annotations

import logging
import multiprocessing as mp
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

Task = tuple[Callable[..., Any], tuple[Any, ...]]


class Lost(Exception):
    """Given as the result of a task whose worker died or took too long."""


class _Worker:
    def __init__(self) -> None:
        # Forked: importing PyTorch and its database takes longer than most tasks.
        context = mp.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.task = -1
        self.left = 0.0

    def give(self, place: int, task: Task, seconds: float) -> None:
        self.task, self.left = place, seconds
        self.connection.send(task)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def _serve(connection: Connection) -> None:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    while True:
        try:
            fn, args = connection.recv()
        except EOFError:
            return
        try:
            result = fn(*args)
        except Exception as error:
            result = Lost(f"{type(error).__name__}: {error}")
        connection.send(result)


def run(tasks: Sequence[Task], processes: int, seconds: float) -> Iterator[tuple[int, Any]]:
    """(place, result) of every task, as they end; :class:`Lost` for one that crashed or took over ``seconds``."""
    workers = [_Worker() for _ in range(min(processes, len(tasks)))]
    pending = list(range(len(tasks)))[::-1]
    try:
        while pending or any(w.task >= 0 for w in workers):
            for worker in workers:
                if worker.task < 0 and pending:
                    place = pending.pop()
                    worker.give(place, tasks[place], seconds)
            busy = [w for w in workers if w.task >= 0]
            before = time.monotonic()
            ready = wait([w.connection for w in busy], timeout=1.0)
            # A machine that was suspended meanwhile, with its workers, has lost no more than this.
            passed = min(time.monotonic() - before, 2.0)
            for i, worker in enumerate(workers):
                if worker.task < 0:
                    continue
                worker.left -= passed
                place, late = worker.task, worker.left < 0
                if worker.connection in ready:
                    try:
                        result = worker.connection.recv()
                        worker.task = -1
                    except EOFError:
                        worker.process.join()
                        result = Lost(f"crash: exit code {worker.process.exitcode}")
                elif late:
                    result = Lost(f"takes over {seconds:.0f} s")
                else:
                    continue
                if isinstance(result, Lost) and worker.task >= 0:
                    worker.stop()
                    workers[i] = _Worker()
                yield place, result
    finally:
        for worker in workers:
            worker.stop()
