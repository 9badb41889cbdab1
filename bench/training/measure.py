"""Trains a model with every engine at every shape, in turns."""

from __future__ import annotations

import datetime
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.foreign import Watch
from bench.machine import Machine
from bench.process import ROOT, Failed, Turns
from bench.results import Cell, Disturbance, EngineResult, Shape, WorkloadResult, cell

from . import models
from .engines import ENGINES, REFERENCE

COMPILE_LIMIT = 600.0
TOLERANCE = 2e-3
"""Relative, of the losses of the first steps in f32: rounding errors of two updates are in it."""
FEWEST_ROUNDS = 3
MOST_STEPS = 200
"""Of a turn."""


@dataclass(frozen=True)
class Settings:
    """The engines, and how long each is measured."""

    engines: tuple[str, ...]
    threads: int
    seconds: float
    """For all engines at one shape."""
    rounds: int
    quick: bool
    seed: int = 0

    def describe(self) -> str:
        """One line."""
        return (
            f"whole training steps in f32, {self.threads} threads, up to {self.rounds} rounds in random order "
            f"(seed {self.seed}), {self.seconds:g} s per shape"
        )


class Run:
    """One model's engines, from their start to their end."""

    def __init__(self, name: str, settings: Settings, machine: Machine, step: Callable[[str], None]):
        self.name, self.settings, self.step = name, settings, step
        self.model = models.load(name)
        self.shapes = self.model.quick if settings.quick else self.model.shapes
        self.names = list(dict.fromkeys((REFERENCE, *settings.engines)))
        self.processes: dict[str, Turns] = {}
        self.result = WorkloadResult(
            name=name,
            title=self.model.title,
            dims=list(self.model.dims),
            machine=machine,
            date=datetime.date.today().isoformat(),
            settings=settings.describe(),
            engines={name: EngineResult(ENGINES[name].title) for name in self.names},
        )
        self._random = random.Random(f"{settings.seed} {name}")

    def run(self) -> WorkloadResult:
        """Everything."""
        with tempfile.TemporaryDirectory(prefix="disc-training-") as folder:
            try:
                for name in self.names:
                    self.step(f"{self.name}: {ENGINES[name].title}")
                    self._start(name, Path(folder))
                # The largest comes first: memory that an engine keeps must not hide what it needs.
                self._memory(max(self.shapes, key=math.prod))
                for shape in self.shapes:
                    self.step(f"{self.name} {'x'.join(map(str, shape))}")
                    self.result.shapes[shape] = self._shape(shape)
                for name, process in self.processes.items():
                    self.result.engines[name].recompilations = process.ask("recompilations")["count"]
            finally:
                for process in self.processes.values():
                    process.close()
        return self.result

    def _start(self, name: str, folder: Path) -> None:
        log = folder / f"{name}.log"
        threads = str(self.settings.threads)
        environment = {
            **os.environ,
            # Compile times are those of a first compilation.
            "DISC_CODE_CACHE": "",
            "TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor-{name}"),
            "OMP_NUM_THREADS": threads,
            "PYTHONPATH": os.pathsep.join(
                [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT), str(ROOT / "python")]
            ),
        }
        command = [sys.executable, "-m", "bench.training.worker", name, self.name, threads, str(log)]
        self.processes[name] = Turns(command, environment, log)
        try:
            answer = self.processes[name].ask("load", COMPILE_LIMIT)
        except Failed as failure:
            self._drop(name, str(failure))
            return
        self.result.engines[name].compile_seconds = answer["seconds"]
        self.result.engines[name].version = answer["version"]

    def _drop(self, name: str, why: str) -> None:
        if name == REFERENCE:
            raise SystemExit(f"{self.name}: {ENGINES[name].title} failed: {why}")
        self.result.engines[name].failed = why
        self.processes.pop(name).close()

    def _losses(self, name: str, shape: Shape) -> list[float]:
        """The losses of the first steps. Seconds of a step that compiled are added to the compile time."""
        answer = self.processes[name].ask("losses", COMPILE_LIMIT, shape=shape)
        figures = self.result.engines[name]
        if ENGINES[name].recompiles and answer["seconds"] > 2.0 and figures.compile_seconds is not None:
            figures.compile_seconds += answer["seconds"]
        losses: list[float] = answer["losses"]
        return losses

    def _memory(self, shape: Shape) -> None:
        self.result.memory_shape = shape
        for name in list(self.processes):
            try:
                self._losses(name, shape)
                answer = self.processes[name].ask("peak", COMPILE_LIMIT)
            except Failed as failure:
                self._drop(name, f"at {shape}: {failure}")
                continue
            figures = self.result.engines[name]
            figures.peak_of_calls, figures.peak_over_weights = answer["calls"], answer["process"]

    def _shape(self, shape: Shape) -> dict[str, Cell]:
        """Compares the losses of all engines, then times those that are right."""
        cells: dict[str, Cell] = {}
        errors: dict[str, float] = {}
        expected: list[float] = []
        for name in list(self.processes):
            try:
                losses = self._losses(name, shape)
            except Failed as failure:
                cells[name] = Cell(failed=str(failure))
                if not self.processes[name].alive():
                    self._drop(name, f"at {shape}: {failure}")
                continue
            expected = losses if name == REFERENCE else expected
            error = max(abs(a - e) / max(1.0, abs(e)) for a, e in zip(losses, expected, strict=True))
            if error <= TOLERANCE:
                errors[name] = error
            else:
                cells[name] = Cell(error=error if math.isfinite(error) else None, failed=f"wrong losses: {losses}")
        samples, self.result.disturbances[shape] = self._rounds(list(errors))
        for name, rounds in samples.items():
            cells[name] = cell(rounds, errors[name])
        return {name: cells[name] for name in self.names if name in cells}

    def _rounds(self, names: list[str]) -> tuple[dict[str, list[list[float]]], Disturbance]:
        """The samples of each engine in each round.

        A round that other programs disturbed is measured again, while there is time: at most half of the rounds.
        """
        quickest = dict.fromkeys(names, math.inf)
        for name in [*names, *names]:
            quickest[name] = min(quickest[name], *self._turn(name, 0.0, 0.02))
        # A turn is a step that is not counted, and one that is.
        shortest = 2 * sum(quickest.values())
        budget = self.settings.seconds
        rounds = max(FEWEST_ROUNDS, min(self.settings.rounds, int(budget / shortest)))
        turn = max(0.0, budget / rounds / len(names) / 2)
        samples: dict[str, list[list[float]]] = {name: [] for name in names}
        watch = Watch(self.processes[name].pid for name in names)
        repeated = kept = done = 0
        end = time.monotonic() + 1.5 * budget
        while done < rounds:
            self._random.shuffle(names)
            watch.start()
            found = {name: self._turn(name, min(turn, max(quickest[name], 0.01)), turn) for name in names}
            if watch.disturbed():
                if repeated < rounds // 2 and time.monotonic() < end:
                    repeated += 1
                    continue
                kept += 1
            for name, steps in found.items():
                samples[name].append(steps)
            done += 1
            for name in names:
                self.processes[name].ask("reset")
        return samples, Disturbance(repeated, kept)

    def _turn(self, name: str, warm: float, seconds: float) -> list[float]:
        arguments: dict[str, Any] = {"warm": warm, "seconds": seconds, "most": MOST_STEPS}
        samples: list[float] = self.processes[name].ask("time", COMPILE_LIMIT, **arguments)["samples"]
        return samples
