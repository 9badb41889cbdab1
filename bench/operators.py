"""Where DISC loses: every operator of PyTorch's OpInfo database against eager and torch.compile, on one thread.

    python -m bench.operators                         # all; half an hour, since torch.compile takes seconds for each
    python -m bench.operators --without-inductor      # all, in a quarter of an hour
    python -m bench.operators erfinv 'fft.*' --keep   # these; the table keeps the others' last results
    python -m bench.operators --report                # only the tables, of the results that are there

Each operator is compiled once for all shapes, and again for a size only where its arguments differ. Results are
compared with eager's. Runs in DISC's environment.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import random
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .intervals import of_ratio
from .machine import cpu, dirty, revision
from .process import ROOT, Failed, read_line
from .report import markdown_table, number
from .results import geomean

RESULTS = Path(__file__).resolve().parent / "results"
LIMIT = 120.0
"""Seconds for an operator, compilation included."""
MEMORY = 16 << 30
"""Bytes of address space of the process that measures."""
ROUNDS = 30
TURN = 0.5e-3
"""Seconds of one turn, in which short calls are repeated."""
MOST = 0.6
"""Seconds for all rounds of an operator at a size; an operator that takes long gets fewer rounds."""


@dataclass
class Row:
    """An operator in a dtype at a size."""

    operator: str
    dtype: str
    size: str = ""
    shapes: str = ""
    best: dict[str, float] = field(default_factory=dict)
    """Of each engine, the seconds of a call in its fastest round."""
    rounds: dict[str, list[float]] = field(default_factory=dict)
    """The seconds of a call in each round."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why an engine has no figures."""
    view: bool = False
    """Whether eager's result is a view of an input: it computes nothing, and its time is that of making the view."""

    def ratio(self, peer: str) -> float | None:
        """The peer's time over ours, both of their fastest rounds."""
        return self.best[peer] / self.best["disc"] if peer in self.best and "disc" in self.best else None

    def lowest(self) -> float | None:
        """That of the fastest peer."""
        return min((r for peer in self.best if (r := self.ratio(peer)) is not None and peer != "disc"), default=None)

    def verdict(self) -> str:
        """Whether DISC is faster than the fastest peer, slower, or neither for sure."""
        peers = [figures for name, figures in self.rounds.items() if name != "disc"]
        interval = of_ratio(peers, self.rounds.get("disc", ()))
        return "–" if interval is None else interval.verdict


# -- measuring, in the worker ----------------------------------------------------------------------


def measure_operator(name: str, dtype: str, inductor: bool) -> list[Row]:
    """All sizes of an operator."""
    import torch

    from . import operator_cases as cases

    torch.set_num_threads(1)
    try:
        calls = cases.calls(name, dtype)
    except Exception as error:
        return [Row(name, dtype, problems={"inputs": _short(error)})]
    compilers: dict[str, Callable[..., Any]] = {"disc": _disc} | ({"inductor": _inductor} if inductor else {})
    models: dict[str, Any] = {}
    rows, before = [], None
    for size, call in calls.items():
        row = Row(name, dtype, size, call.label())
        if before is None or not before.like(call):
            models = {}
        before = call
        args, kwargs = call.arguments(call.tensors)
        runs: dict[str, Callable[[], Any]] = {"eager": lambda op=call.op, a=args, k=kwargs: op(*a, **k)}  # type: ignore
        with torch.inference_mode():
            expected = runs["eager"]()
        row.view = is_view(expected, call.tensors)
        for engine, compile_ in compilers.items():
            try:
                if engine not in models:
                    models[engine] = compile_(call)
                run = _bound(models[engine], call.tensors)
                with torch.inference_mode():
                    try:
                        actual = run()
                    except Exception:
                        # Compiled for the other size, and it says that it is not for this one.
                        models[engine] = compile_(call)
                        run = _bound(models[engine], call.tensors)
                        actual = run()
                    problem = difference(actual, expected, cases.values_matter(name))
            except Exception as error:
                row.problems[engine] = _short(error)
                continue
            if problem:
                row.problems[engine] = problem
            else:
                runs[engine] = run
        with torch.inference_mode():
            row.rounds = rounds(runs, random.Random(f"{name} {dtype} {size}"))
        row.best = {engine: min(figures) for engine, figures in row.rounds.items()}
        rows.append(row)
    return rows


def _bound(model: Callable[..., Any], tensors: Sequence[Any]) -> Callable[[], Any]:
    return lambda: model(*tensors)


def _disc(call: Any) -> Callable[..., Any]:
    from torch.export import Dim

    import disc

    from .operator_cases import Program

    shapes = (tuple(dict.fromkeys(range(t.dim()), Dim.AUTO) for t in call.tensors),) if call.tensors else None
    options = disc.Options(threads=1, progress=False)
    return disc.compile(Program(call).eval(), call.tensors, dynamic_shapes=shapes, options=options)


def _inductor(call: Any) -> Callable[..., Any]:
    import torch

    from .operator_cases import Program

    torch._dynamo.reset()
    model: Callable[..., Any] = torch.compile(Program(call).eval(), dynamic=True)
    with torch.inference_mode():
        model(*call.tensors)
    return model


def is_view(result: Any, inputs: Sequence[Any]) -> bool:
    """Whether a result shares the memory of an input."""
    import torch
    import torch.utils._pytree as pytree

    own = {t.untyped_storage().data_ptr() for t in inputs if t.layout == torch.strided}
    found = (leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
    return any(t.layout == torch.strided and t.numel() and t.untyped_storage().data_ptr() in own for t in found)


def difference(actual: Any, expected: Any, values: bool) -> str:
    """What is wrong, if something is; results of which only the shapes are certain are compared by those."""
    import torch
    import torch.utils._pytree as pytree

    ours, theirs = (
        [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(tree) if leaf is not None] for tree in (actual, expected)
    )
    if [(t.shape, t.dtype) for t in ours] != [(t.shape, t.dtype) for t in theirs]:
        return "another shape or dtype"
    for mine, other in zip(ours, theirs, strict=True) if values else ():
        if other.is_floating_point() or other.is_complex():
            bound = 3e-2 if other.dtype in (torch.bfloat16, torch.float16) else 2e-3
            scale = float(other.abs().nan_to_num(0.0, 0.0, 0.0).max()) if other.numel() else 0.0
            right = torch.allclose(mine, other, rtol=bound, atol=bound * max(scale, 1e-3), equal_nan=True)
        else:
            right = torch.equal(mine, other)
        if not right:
            return "other values"
    return ""


def rounds(runs: dict[str, Callable[[], Any]], order: random.Random) -> dict[str, list[float]]:
    """Seconds of a call of each engine in each round, in random order."""
    clock = time.perf_counter
    turns = {}
    for name, run in runs.items():
        run()
        start = clock()
        run()
        turns[name] = max(1, min(1000, int(TURN / max(clock() - start, 1e-7))))
    found: dict[str, list[float]] = {name: [] for name in runs}
    names, end = list(runs), clock() + MOST
    for done in range(ROUNDS):
        if done >= 3 and clock() > end:
            break
        order.shuffle(names)
        for name in names:
            run, count = runs[name], turns[name]
            run()
            start = clock()
            for _ in range(count):
                run()
            found[name].append(float(f"{(clock() - start) / count:.4g}"))
    return found


def _short(error: BaseException) -> str:
    text = str(error).replace(f"{ROOT}/", "")
    return f"{type(error).__name__}: {' '.join(text.split())}"[:200]


def work() -> None:
    """Answers lines on standard input: a JSON list of arguments each."""
    warnings.simplefilter("ignore")
    # An operator that wants more fails by itself, and takes nothing else of the machine down.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        rows = measure_operator(*json.loads(line))
        answers.write(json.dumps([asdict(row) for row in rows]) + "\n")
        answers.flush()


# -- all of them -----------------------------------------------------------------------------------


class Worker:
    """A process that measures operators; it is started again when one of them takes it down."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, name: str, dtype: str, inductor: bool) -> list[Row]:
        """The rows of an operator."""
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([name, dtype, inductor]).encode() + b"\n")
            self._process.stdin.flush()
            line = read_line(self._process.stdout.fileno(), bytearray(), LIMIT)
        except (BrokenPipeError, Failed) as error:
            self.close()
            return [Row(name, dtype, problems={"process": str(error) or "died"})]
        return [Row(**row) for row in json.loads(line)]

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python")]),
        }
        command = [sys.executable, "-m", "bench.operators", "--worker"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether an operator is asked for."""
    return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def save(folder: Path, rows: Sequence[Row], about: dict[str, str]) -> None:
    """Writes operators.json, a row on a line."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(asdict(row)) for row in rows)
    text = f'{{"about": {json.dumps(about)},\n"rows": [\n{lines}\n]}}\n'
    (folder / "operators.json").write_text(text, encoding="utf-8")


def load(folder: Path) -> tuple[list[Row], dict[str, str]]:
    """Reads it."""
    data = json.loads((folder / "operators.json").read_text(encoding="utf-8"))
    return [Row(**row) for row in data["rows"]], data["about"]


def markdown(rows: Sequence[Row], about: dict[str, str]) -> str:
    """The page of tables."""
    measured = sorted((r for r in rows if r.lowest() is not None), key=lambda r: r.lowest() or 0.0)
    slower = [row for row in measured if row.verdict() == "slower" and not row.view]
    views = [row for row in measured if row.verdict() == "slower" and row.view]
    lines = ["# Operators", "", "Made by `python -m bench.operators`: every operator of PyTorch's OpInfo database, one"]
    lines += [
        "thread. Times are of the fastest of up to 30 rounds; ratios are the peer's time over DISC's. DISC is *slower*"
    ]
    lines += ["or *faster* where the 95 % interval of the ratio of medians excludes 1.", ""]
    lines += [
        f"{about['cpu']}, {about['date']}, DISC at {about['revision']}"
        + " (with changes)" * dirty(about["revision"])
        + ".",
        "",
    ]
    verdicts = [row.verdict() for row in measured]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("faster", "same", "slower"))
    means = {p: number(geomean(r.ratio(p) for r in measured)) for p in ("eager", "inductor")}
    lines += [
        f"{len(measured)} rows: {counts}. Geomean eager/DISC {means['eager']}, torch.compile/DISC {means['inductor']}.",
        "",
    ]
    lines += [f"## Slower than the fastest peer: {len(slower)} rows", "", *_table(slower)]
    lines += ["", f"## Views in eager: {len(views)} rows where it is faster", ""]
    lines += ["Eager computes nothing here: its time is that of making a view of an input.", "", *_table(views)]
    problems = [row for row in rows if row.problems]
    lines += ["", "## Without a figure", ""]
    header = ["operator", "dtype", "size", "engine", "why"]
    lines += markdown_table(
        header, [[r.operator, r.dtype, r.size, e, why] for r in problems for e, why in r.problems.items()]
    )
    lines += ["", "## All", "", *_table(measured)]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row]) -> list[str]:
    header = ["operator", "dtype", "shapes", "eager µs", "torch.compile µs", "DISC µs"]
    header += ["eager/DISC", "torch.compile/DISC", "fastest peer/DISC", "DISC is"]

    def micro(row: Row, engine: str) -> str:
        return number(row.best[engine] * 1e6 if engine in row.best else None, "{:.4g}")

    return markdown_table(
        header,
        [
            [row.operator, row.dtype, row.shapes, *(micro(row, engine) for engine in ("eager", "inductor", "disc"))]
            + [number(row.ratio("eager")), number(row.ratio("inductor")), number(row.lowest()), row.verdict()]
            for row in rows
        ],
    )


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", help="names or patterns; default: all")
    parser.add_argument("--dtypes", nargs="+", help="only these")
    parser.add_argument("--without-inductor", action="store_true", help="only eager and DISC")
    parser.add_argument("--keep", action="store_true", help="keep other operators' last results")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of operators.json and operators.md")
    parser.add_argument("--allow-dirty", action="store_true", help="measure files that differ from the commit")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the table again")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work()
        return
    about = {"cpu": cpu(), "date": time.strftime("%Y-%m-%d"), "revision": revision()}
    rows: list[Row] = []
    if args.report or args.keep:
        rows, old = load(args.out)
        about = old if args.report else about
    if not args.report:
        if dirty(about["revision"]) and not args.allow_dirty:
            parser.error("files differ from the commit, so that figures would be of none: commit, or --allow-dirty")
        from .operator_cases import selection

        chosen = [(n, d) for n, d in selection() if matches(n, args.operators) and d in (args.dtypes or [d])]
        rows = [row for row in rows if (row.operator, row.dtype) not in chosen]
        worker = Worker()
        for done, (name, dtype) in enumerate(chosen, 1):
            found = worker.ask(name, dtype, not args.without_inductor)
            rows += found
            said = "  ".join(f"{row.size} {number(row.lowest())}" for row in found if row.best)
            why = "; ".join(f"{engine}: {text}" for row in found for engine, text in row.problems.items())
            print(f"{done}/{len(chosen)} {name} {dtype}  {said}  {why[:150]}", flush=True)
            if done % 20 == 0:
                save(args.out, rows, about)
        worker.close()
        save(args.out, rows, about)
    (args.out / "operators.md").write_text(markdown(rows, about), encoding="utf-8")


if __name__ == "__main__":
    main()
