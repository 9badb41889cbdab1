"""Runs a workload: every engine at every shape, in turns."""

from __future__ import annotations

import contextlib
import datetime
import math
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import engines, workloads
from .machine import Machine
from .process import EngineProcess, Failed
from .results import Cell, EngineResult, Shape, WorkloadResult, cell
from .workloads import Workload

CACHE = Path(__file__).resolve().parent / ".cache"
COMPILE_LIMIT = 900.0
# Engines much slower than the best get fewer calls: nobody needs their second digit.
SLOW = 4.0

Step = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What to measure, and for how long."""

    engines: tuple[str, ...]
    threads: int
    seconds: float
    """Measured time of one engine at one shape."""
    rounds: int = 8
    quick: bool = False
    shapes: tuple[Shape, ...] | None = None
    """Instead of the workload's own."""

    def shapes_of(self, workload: Workload) -> tuple[Shape, ...]:
        """The shapes to run at."""
        return self.shapes or (workload.quick if self.quick else workload.shapes)

    def describe(self) -> str:
        """One line."""
        return f"{self.threads} threads, {self.seconds:g} s per engine and shape in up to {self.rounds} rounds"


def turns(seconds_per_call: float, fastest: float, settings: Settings) -> int:
    """How many rounds an engine takes part in."""
    if seconds_per_call > SLOW * fastest:
        return 2
    # A turn has a call that is not counted, and one that is.
    return max(3, min(settings.rounds, math.floor(settings.seconds / (2 * seconds_per_call))))


class Run:
    """One workload's engines, from their start to their end."""

    def __init__(self, name: str, settings: Settings, machine: Machine, step: Step):
        self.name, self.settings, self.step = name, settings, step
        self.workload = workloads.load(name)
        self.processes: dict[str, EngineProcess] = {}
        self.result = WorkloadResult(
            name=name,
            title=self.workload.title,
            dims=list(self.workload.dims),
            machine=machine,
            date=datetime.date.today().isoformat(),
            settings=settings.describe(),
        )
        # The reference comes first, whether or not it is among those that are asked for.
        self.names = list(dict.fromkeys((engines.REFERENCE, *settings.engines)))
        self.result.engines = {name: EngineResult(engines.load(name).title) for name in self.names}
        self._files: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def run(self) -> WorkloadResult:
        """Everything."""
        CACHE.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            # In turns, so that compile times are of an otherwise idle machine; a quick run does not care.
            with ThreadPoolExecutor(2 if self.settings.quick else 1) as pool:
                list(pool.map(self._start, self.names))
            if engines.REFERENCE not in self.processes:
                raise SystemExit(f"{self.name}: eager failed: {self.result.engines[engines.REFERENCE].failed}")
            self.result.weights = self.processes[engines.REFERENCE].ask("weights")["bytes"]
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="disc-bench-"))
            shapes = self.settings.shapes_of(self.workload)
            # The largest comes first: memory that an engine keeps from one shape must not hide what the next one needs.
            self._memory(min(shapes, key=math.prod), max(shapes, key=math.prod))
            for shape in shapes:
                self.step(f"{self.name} {'x'.join(map(str, shape))}")
                self.result.shapes[shape] = self._shape(shape, Path(folder) / "expected.pt")
        return self.result

    def _start(self, name: str) -> None:
        """Prepares and loads an engine; one that cannot is a reason instead."""
        self.step(f"{self.name}: {engines.load(name).title}")
        figures = self.result.engines[name]
        try:
            with self._lock_of(name):
                seconds = self._ask_once(name, "prepare")
            process = self._spawn(name)
            self.processes[name] = process
            answer = process.ask("load", COMPILE_LIMIT)
            figures.version = answer["version"]
            figures.compile_seconds = seconds + answer["seconds"]
        except Failed as failure:
            self._drop(name, str(failure))

    def _ask_once(self, name: str, do: str) -> float:
        """The seconds that a command takes in a process of its own."""
        process = self._spawn(name)
        try:
            return float(process.ask(do, COMPILE_LIMIT)["seconds"])
        finally:
            process.close()

    def _spawn(self, name: str) -> EngineProcess:
        return EngineProcess(name, self.name, self.settings.threads, CACHE)

    def _lock_of(self, name: str) -> threading.Lock:
        """Engines that read the same file must not make it twice."""
        return self._files["onnx" if "onnx" in name else name]

    def _drop(self, name: str, why: str) -> None:
        self.result.engines[name].failed = why
        process = self.processes.pop(name, None)
        if process is not None:
            process.close()

    def _close(self) -> None:
        for process in self.processes.values():
            process.close()

    def _bind(self, name: str, shape: Shape, **options: Any) -> dict[str, Any]:
        answer = self.processes[name].ask("bind", COMPILE_LIMIT, shape=shape, **options)
        seconds = float(answer["seconds"])
        figures = self.result.engines[name]
        # More than a call can take: the engine compiled something.
        if engines.load(name).recompiles and seconds > 1.0 and figures.compile_seconds is not None:
            figures.compile_seconds += seconds
        return answer

    def _memory(self, smallest: Shape, shape: Shape) -> None:
        """Peak memory at a shape, after a call at the smallest one that touches what is made or read only once."""
        self.result.memory_shape = shape
        for name in list(self.processes):
            try:
                self._bind(name, smallest)
                answer = self._bind(name, shape, peak=True)
            except Failed as failure:
                self._drop(name, f"at {shape}: {failure}")
                continue
            figures = self.result.engines[name]
            figures.peak_of_calls = answer["calls"]
            figures.peak_over_weights = answer["process"] - self.result.weights

    def _shape(self, shape: Shape, expected: Path) -> dict[str, Cell]:
        """Checks all engines at a shape, then times those that were right."""
        cells: dict[str, Cell] = {}
        errors: dict[str, float] = {}
        # The reference first: it saves what the others are compared with.
        for name in sorted(self.processes, key=lambda name: name != engines.REFERENCE):
            try:
                self._bind(name, shape)
                if name == engines.REFERENCE:
                    self.processes[name].ask("save", path=str(expected))
                errors[name] = self.processes[name].ask("check", path=str(expected))["error"]
            except Failed as failure:
                cells[name] = Cell(failed=str(failure))
                if self._dead(name):
                    self._drop(name, f"at {shape}: {failure}")
                continue
            if not errors[name] <= self.workload.tolerance:
                cells[name] = Cell(error=errors.pop(name), failed="wrong result")
        for name, samples in self._rounds(list(errors)).items():
            cells[name] = cell(samples, errors[name])
        return {name: cells[name] for name in self.names if name in cells}

    def _dead(self, name: str) -> bool:
        try:
            self.processes[name].ask("time", warm=0.0, seconds=0.0, most=1)
        except Failed:
            return True
        return False

    def _rounds(self, names: list[str]) -> dict[str, list[float]]:
        """The samples of each engine."""
        samples: dict[str, list[float]] = {name: [] for name in names}
        quickest = {name: min(self._turn(name, 0.02, 0.05)) for name in names}
        left = {name: turns(quickest[name], min(quickest.values()), self.settings) for name in names}
        turn = self.settings.seconds / self.settings.rounds
        for done in range(self.settings.rounds):
            for name in names:
                if done < left[name]:
                    samples[name] += self._turn(name, min(turn / 4, 0.02), turn)
        return samples

    def _turn(self, name: str, warm: float, seconds: float) -> list[float]:
        """One turn of an engine."""
        found: list[float] = self.processes[name].ask("time", warm=warm, seconds=seconds, most=2000)["samples"]
        return found
