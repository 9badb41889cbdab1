"""Runs a workload: every engine at every shape, in turns."""

from __future__ import annotations

import contextlib
import datetime
import math
import random
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import engines, variants, workloads
from .engines import NATIVE
from .foreign import Watch
from .machine import Machine
from .process import EngineProcess, Failed, Launch
from .results import FEW_ROUNDS, Cell, Disturbance, EngineResult, Shape, WorkloadResult, cell
from .variants import Trial, choose, known
from .workloads import Workload

CACHE = Path(__file__).resolve().parent / ".cache"
COMPILE_LIMIT = 900.0
ROUNDS = 30
# Peers so much slower than the fastest get few rounds.
SLOW = 8.0
# Calls of a fastest peer that takes longer vary little: so much slower peers get few rounds then.
STEADY_CALL = 0.03
SLOW_AT_STEADY = 1.25
# A call that takes longer needs none before it to bring its data back into the caches.
LONG_CALL = 0.1
# Variants are not tried at shapes where a call of eager takes longer, unless all shapes do.
LONG_TRIAL = 0.5
# All rounds of the fastest peer at a shape may take so many seconds, unless that leaves too few for an interval.
LONGEST_SHAPE = 60.0
FEWEST_ROUNDS = 10

Step = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What to measure, and for how long."""

    engines: tuple[str, ...]
    threads: int
    seconds: float
    """Measured time of one engine at one shape, if its calls are short."""
    rounds: int = ROUNDS
    quick: bool = False
    shapes: tuple[Shape, ...] | None = None
    """Instead of the workload's own."""
    isa: str = NATIVE
    seed: int = 0
    """Of the order of engines in each round."""
    allocators: tuple[str, ...] = ()
    """What peers are tried with besides the C library's."""
    allocator: str = ""
    """What peers that can are run with, without a trial."""
    choices: Path | None = None
    """A folder of results: the variants that were the fastest there are taken, and no others are tried."""

    def shapes_of(self, workload: Workload) -> tuple[Shape, ...]:
        """The shapes to run at."""
        return self.shapes or (workload.quick if self.quick else workload.shapes)

    def describe(self) -> str:
        """One line."""
        isa = "all instructions" if self.isa == NATIVE else f"no instructions beyond {self.isa.upper()}"
        return (
            f"{self.threads} threads, {isa}, {self.rounds} rounds in random order (seed {self.seed}), "
            f"{self.seconds:g} s per engine and shape"
            + (f", variants as in {self.choices.name}" if self.choices else "")
            + (f", {self.allocator}" if self.allocator else "")
        )


def rounds_of(quickest: dict[str, float], rounds: int) -> dict[str, int]:
    """How many rounds each engine takes part in, by the seconds of a call."""
    fastest = min((quickest[name] for name in quickest if name not in engines.OWN), default=math.inf)
    limit = fastest * (SLOW_AT_STEADY if fastest > STEADY_CALL else SLOW)
    slow = {name for name in quickest if name not in engines.OWN and quickest[name] > limit}
    if math.isfinite(fastest):
        rounds = min(rounds, max(FEWEST_ROUNDS, int(LONGEST_SHAPE / fastest)))
    return {name: min(FEW_ROUNDS, rounds) if name in slow else rounds for name in quickest}


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
            isa=settings.isa,
        )
        # The reference comes first, whether or not it is among those that are asked for.
        self.names = list(dict.fromkeys((engines.REFERENCE, *settings.engines)))
        self.result.engines = {name: EngineResult(engines.load(name).title) for name in self.names}
        self._files: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        # The variants of each engine whose compile time is known of their trial: later ones find it in caches.
        self._tried: defaultdict[str, set[str]] = defaultdict(set)
        self._random = random.Random(f"{settings.seed} {name}")
        self._seconds: dict[Shape, float] = {}
        """Of a call of eager."""

    def run(self) -> WorkloadResult:
        """Everything."""
        CACHE.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="disc-bench-")))
            self._expect()
            # In turns, so that compile times are of an otherwise idle machine; a quick run does not care.
            with ThreadPoolExecutor(2 if self.settings.quick else 1) as pool:
                list(pool.map(self._start, self.names))
            # The largest comes first: memory that an engine keeps from one shape must not hide what the next one needs.
            self._memory(min(self.shapes, key=math.prod), max(self.shapes, key=math.prod))
            for shape in self.shapes:
                self.step(f"{self.name} {'x'.join(map(str, shape))}")
                self.result.shapes[shape] = self._shape(shape)
        return self.result

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """What is measured."""
        return self.settings.shapes_of(self.workload)

    def _expect(self) -> None:
        """Saves what outputs are compared with."""
        process = EngineProcess(self._launch(engines.REFERENCE))
        try:
            process.ask("load", COMPILE_LIMIT)
            self.result.weights = process.ask("weights")["bytes"]
            for shape in self.shapes:
                process.ask("bind", COMPILE_LIMIT, shape=shape)
                process.ask("save", path=str(self._expected(shape)))
                self._seconds[shape] = process.ask("time", COMPILE_LIMIT, warm=0.0, seconds=0.0, most=1)["samples"][0]
        except Failed as failure:
            raise SystemExit(f"{self.name}: eager failed: {failure}") from failure
        finally:
            process.close()

    def _launch(self, name: str) -> Launch:
        """An engine in its default form."""
        chosen, inductor = self.settings, self.folder / "inductor"
        return Launch(name, self.name, chosen.threads, CACHE, chosen.isa, inductor=inductor)

    def _expected(self, shape: Shape) -> Path:
        return self.folder / f"{'x'.join(map(str, shape))}.pt"

    def _start(self, name: str) -> None:
        """Prepares and loads an engine in its fastest variant; one that cannot is a reason instead."""
        self.step(f"{self.name}: {engines.load(name).title}")
        try:
            with self._lock_of(name):
                launch, compiled = self._choose(name)
            process = EngineProcess(launch)
            self.processes[name] = process
            answer = process.ask("load", COMPILE_LIMIT)
        except Failed as failure:
            self._drop(name, str(failure))
            return
        figures = self.result.engines[name]
        figures.version = answer["version"]
        figures.variant = launch.form
        figures.compile_seconds = compiled[launch.variant]
        if launch.variant not in self._tried[name]:
            figures.compile_seconds += answer["seconds"]

    def _choose(self, name: str) -> tuple[Launch, dict[str, float]]:
        """The fastest variant, prepared, and the compile times of all as far as they are known."""
        plain, kind = self._launch(name), engines.load(name)
        others: tuple[str, ...] = ()
        if kind.any_allocator and name not in engines.OWN:
            plain, others = replace(plain, allocator=self.settings.allocator), self.settings.allocators
        compiled: dict[str, float] = {}
        if not plain.python().exists():
            raise Failed("not installed: bench/setup.sh says why")
        context = engines.Context(self.workload, self.name, plain.threads, CACHE, "", isa=plain.isa)
        names = kind.variants(context)
        launches = [replace(plain, variant=variant) for variant in names]
        chosen = self.settings.choices and known(self.settings.choices, launches)
        if chosen:
            compiled[chosen.variant] = self._prepare(chosen)
            return chosen, compiled
        reasons: dict[str, str] = {}
        for launch in launches:
            try:
                compiled[launch.variant] = self._prepare(launch)
            except Failed as failure:
                reasons[launch.variant] = str(failure)
        ready = [launch for launch in launches if launch.variant in compiled]
        if not ready:
            raise Failed(reasons[names[0]])
        if len(names) == 1 and not others:
            return ready[0], compiled
        trials = [self._try(launch, compiled) for launch in ready]
        best = choose(trials)
        # The allocator matters little to the choice among files, and each trial takes time.
        trials += [self._try(replace(best.launch, allocator=other), compiled) for other in others if best.times]
        best = choose(trials)
        self.result.engines[name].variants = reasons | {trial.label: trial.against(best) for trial in trials}
        if not best.times:
            raise Failed(best.problem)
        return best.launch, compiled

    def _prepare(self, launch: Launch) -> float:
        """Makes the variant's file in a process of its own; the seconds that took."""
        process = EngineProcess(launch)
        try:
            return float(process.ask("prepare", COMPILE_LIMIT)["seconds"])
        finally:
            process.close()

    def _try(self, launch: Launch, compiled: dict[str, float]) -> Trial:
        """Checks a variant, and measures it for a moment. A first trial's compile time counts."""
        trial = Trial(launch)
        process = EngineProcess(launch)
        try:
            seconds = process.ask("load", COMPILE_LIMIT)["seconds"]
            for shape in self._trial_shapes():
                try:
                    bound = process.ask("bind", COMPILE_LIMIT, shape=shape)["seconds"]
                    seconds += bound if self._compiled(launch.engine, bound) else 0.0
                    error = process.ask("check", path=str(self._expected(shape)))["error"]
                    if not error <= self.workload.tolerance:
                        raise Failed("wrong result")
                    arguments = {"warm": 0.0, "seconds": variants.SECONDS, "most": 100}
                    trial.times[shape] = min(process.ask("time", COMPILE_LIMIT, **arguments)["samples"])
                except Failed as failure:
                    trial.problem = trial.problem or f"at {shape}: {failure}"
                    if not process.alive():
                        break
            # Later trials of the variant find what it compiled in caches.
            if launch.variant not in self._tried[launch.engine]:
                compiled[launch.variant] += seconds
                self._tried[launch.engine].add(launch.variant)
        except Failed as failure:
            trial.problem = str(failure)
        finally:
            process.close()
        return trial

    def _trial_shapes(self) -> list[Shape]:
        """Where variants are tried."""
        longest = max(LONG_TRIAL, min(self._seconds.values()))
        return [shape for shape in self.shapes if self._seconds[shape] <= longest]

    def _compiled(self, name: str, seconds: float) -> bool:
        """Whether a first call at a shape took longer than a call can: the engine compiled something."""
        return engines.load(name).recompiles and seconds > 1.0

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
        if figures.compile_seconds is not None and not self._tried[name] and self._compiled(name, seconds):
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

    def _shape(self, shape: Shape) -> dict[str, Cell]:
        """Checks all engines at a shape, then times those that were right."""
        cells: dict[str, Cell] = {}
        errors: dict[str, float] = {}
        for name in list(self.processes):
            try:
                self._bind(name, shape)
                errors[name] = self.processes[name].ask("check", path=str(self._expected(shape)))["error"]
            except Failed as failure:
                cells[name] = Cell(failed=str(failure))
                if not self.processes[name].alive():
                    self._drop(name, f"at {shape}: {failure}")
                continue
            if not errors[name] <= self.workload.tolerance:
                cells[name] = Cell(error=errors.pop(name), failed="wrong result")
        rounds, self.result.disturbances[shape] = self._rounds(list(errors))
        for name, samples in rounds.items():
            cells[name] = cell(samples, errors[name])
        return {name: cells[name] for name in self.names if name in cells}

    def _rounds(self, names: list[str]) -> tuple[dict[str, list[list[float]]], Disturbance]:
        """The samples of each engine in each round; rounds that others disturbed are measured again, up to a limit.

        A whole round is judged and repeated: a turn may be shorter than the tick by which the kernel counts the time of
        others, and figures are compared within a round.
        """
        samples: dict[str, list[list[float]]] = {name: [] for name in names}
        # Twice, in turns: the first calls at a shape may be many times slower than later ones.
        quickest = dict.fromkeys(names, math.inf)
        for name in [*names, *names]:
            quickest[name] = min(quickest[name], *self._turn(name, 0.02, 0.05))
        wanted = rounds_of(quickest, self.settings.rounds)
        turn = self.settings.seconds / self.settings.rounds
        watch = Watch(self.processes[name].pid for name in names)
        repeated = kept = done = 0
        rounds = max(wanted.values(), default=0)
        while done < rounds:
            order = [name for name in names if done < wanted[name]]
            self._random.shuffle(order)
            watch.start()
            found = {}
            for name in order:
                warm = 0.0 if quickest[name] > LONG_CALL else max(quickest[name], min(turn / 4, 0.02))
                found[name] = self._turn(name, warm, turn)
            if watch.disturbed():
                if repeated < rounds:
                    repeated += 1
                    continue
                kept += 1
            for name, calls in found.items():
                samples[name].append(calls)
            done += 1
        return samples, Disturbance(repeated, kept)

    def _turn(self, name: str, warm: float, seconds: float) -> list[float]:
        """One turn of an engine."""
        found: list[float] = self.processes[name].ask("time", warm=warm, seconds=seconds, most=2000)["samples"]
        return found
