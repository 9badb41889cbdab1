"""Measures one model in a process of its own: `python -m bench.memory.worker MODEL FOLDER PEERS SECONDS SHAPES`.

One thread. Times are CPU times of this thread (`time.thread_time`), so that other programs disturb them less. In each
round every variant takes an uncounted step and a counted one, in random order.
"""

from __future__ import annotations

import datetime
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench import machine
from bench.worker import reason

from .models import MODELS
from .ours import ENOUGH, Ours
from .peers import Eager, TooLong, compiled, peers
from .results import At, Peer, Result, load, paired

FEWEST, MOST = 7, 15
"""Rounds."""
USUAL = "usual"
Call = Callable[[], Any]


def log(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def clocked(call: Call) -> float:
    """CPU seconds."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def interleaved(
    variants: dict[str, tuple[Call, Call]], seconds: float, reset: Call = lambda: None
) -> dict[str, list[float]]:
    """The times of each variant in each round. A variant is what comes before its turn, and a step."""
    quickest = {}
    for name, (before, step) in variants.items():
        before()
        quickest[name] = min(clocked(step), clocked(step))
    rounds = max(FEWEST, min(MOST, int(seconds / (2 * sum(quickest.values())))))
    names = list(variants)
    order = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        order.shuffle(names)
        reset()
        for name in names:
            before, step = variants[name]
            before()
            step()
            # Short steps are repeated: the clock's resolution and interrupts matter less.
            count = max(1, min(20, int(0.02 / max(quickest[name], 1e-6))))
            times[name].append(min(clocked(step) for _ in range(count)))
    return times


def start(found: list[Peer], makers: list[Callable[[], Eager]], batch: tuple[Any, ...]) -> dict[str, Eager]:
    """Creates peers, eager first, and measures their memory. Those that fail are found without figures."""
    engines: dict[str, Eager] = {}
    expected = 0.0
    for make in makers:
        engine = make()
        peer = Peer(engine.name, engine.title)
        found.append(peer)
        log(engine.title)
        try:
            engine.prepare(batch)
            engine.reset()
            loss = engine.step(*batch).item()
            expected = expected if engines else loss
            peer.loss_error = abs(loss / expected - 1)
            peer.compile_seconds = engine.compile_seconds
            peer.peak, peer.beside_gradients = engine.peaks(batch)
        except Exception as error:
            peer.failed = reason(error)
            log(f"{engine.title}: {peer.failed}")
            # Inductor may wrap it in an error of its own. Other budgets would take as long.
            if TooLong.__name__ in peer.failed:
                break
            continue
        engines[engine.name] = engine
    return engines


def add_compiled(name: str, folder: Path, seconds: float) -> None:
    """Adds `torch.compile` to the result of a model, at its large shape.

    Its times are measured in turns with eager's in this process, and stored as parts of eager's time beside DISC.
    """
    model, result = MODELS[name], load(folder / f"{name}.json")
    at = result.shapes[-1]
    eager = at.peer("eager")
    if eager is None or not eager.seconds:
        raise SystemExit(f"{name}: eager has not been measured")
    batch = model.training.data(tuple(at.shape))
    found: list[Peer] = []
    engines = start(found, [lambda: Eager(model), *compiled(model)], batch)
    nothing: Call = lambda: None  # noqa: E731
    variants: dict[str, tuple[Call, Call]] = {}
    for n, engine in engines.items():
        variants[n] = (nothing, lambda engine=engine: engine.step(*batch))  # type: ignore[misc]

    def reset() -> None:
        for engine in engines.values():
            engine.reset()

    times = interleaved(variants, seconds, reset)
    for peer in found[1:]:
        if peer.name in times:
            peer.seconds = eager.seconds * paired(times[peer.name], times["eager"])
    at.peers = [p for p in at.peers if p.name in ("eager", "checkpoint")] + found[1:]
    result.save(folder)


class Run:
    """One model."""

    def __init__(self, name: str, with_peers: bool, seconds: float, shapes: str):
        self.name, self.model, self.seconds = name, MODELS[name], seconds
        self.with_peers = with_peers
        training = self.model.training
        self.shapes = training.shapes[-1:] if shapes == "large" else training.shapes
        self.result = Result(
            name=name,
            title=training.title,
            dims=list(training.dims),
            paper=self.model.paper,
            machine=machine.cpu(),
            revision=machine.revision(),
            date=datetime.date.today().isoformat(),
            settings="one thread, CPU time (time.thread_time), medians of interleaved rounds in one process",
        )

    def run(self, folder: Path) -> None:
        """Everything; results are saved after each part."""
        try:
            log(f"{self.name}: DISC compiles")
            self.ours = Ours(self.model)
            self.result.compile_seconds = self.ours.compile_seconds
            log(f"{self.name}: {self.ours.compile_seconds:.1f} s")
        except Exception as error:
            self.result.failed = reason(error)
            self.result.save(folder)
            raise
        self.result.save(folder)
        for shape in self.shapes:
            log(f"{self.name} {shape}")
            self.result.shapes.append(self._shape(shape))
            self.result.save(folder)
        self._fit()
        self.result.save(folder)

    def _shape(self, shape: tuple[int, ...]) -> At:
        batch = self.model.training.data(shape)
        at = self.ours.at(shape, batch)
        step, budget = self.ours.step, self.ours.step.set_memory_budget
        # All variants of DISC have a budget: plan 0's is so large that everything fits.
        variants: dict[str, tuple[Call, Call]] = {USUAL: (lambda: budget(ENOUGH), lambda: step(*batch))}
        for plan in at.plans:
            if not plan.error:
                variants[f"plan {plan.plan}"] = (lambda total=plan.total: budget(total), lambda: step(*batch))  # type: ignore[misc]
        engines = start(at.peers, peers(self.model), batch) if self.with_peers else {}
        for name, engine in engines.items():
            variants[name] = (lambda: None, lambda engine=engine: engine.step(*batch))  # type: ignore[misc]

        def reset() -> None:
            self.ours.reset()
            for engine in engines.values():
                engine.reset()

        times = interleaved(variants, self.seconds, reset)
        # Plan 0 with a budget does the same as without one: their mean is a steadier base.
        usual = [(a + b) / 2 for a, b in zip(times[USUAL], times.get("plan 0", times[USUAL]), strict=True)]
        at.usual, at.rounds = median(times[USUAL]), len(times[USUAL])
        for plan in at.plans:
            if found := times.get(f"plan {plan.plan}"):
                plan.seconds, plan.measured = median(found), paired(found, usual) - 1
        for peer in at.peers:
            if found := times.get(peer.name):
                peer.seconds = median(found)
        budget(None)
        return at

    def _fit(self) -> None:
        """The budget is what eager needs at the large shape; without peers, what DISC needs there."""
        at = self.result.shapes[-1]
        eager = at.peer("eager")
        budget = eager.peak if eager and eager.peak else at.peak
        try:
            self.result.fit = self.ours.largest(budget, self.shapes[-1])
        except Exception as error:
            self.result.notes.append(f"largest size: {reason(error)}")


def main() -> None:
    """Runs the model of the command line."""
    name, folder, with_peers, seconds, shapes = sys.argv[1:]
    torch.set_num_threads(1)
    if shapes == "compiled":
        add_compiled(name, Path(folder), float(seconds))
        return
    Run(name, with_peers == "1", float(seconds), shapes).run(Path(folder))


if __name__ == "__main__":
    main()
