"""python -m bench.service: the service under load, on DISC and on ONNX Runtime.

Clients in a closed loop send sentences of 1 to 200 words; every answer is compared with eager PyTorch. Then it is
stopped under load, and overloaded. Results go to bench/results/service/load.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .. import machine
from . import build
from .load import TOLERANCE, Load, percentile
from .pool import ROOT, Pool, as_tensors, make_pool
from .server import Server, machine_cpu_seconds

MEANS = (
    *("tokens_per_second", "sentences_per_run", "padding", "service_cpu", "client_cpu", "others_cpu"),
    *("idle_mib", "resident_mib"),
)
DISTURBED = 0.05
"""The share of the machine that other processes may take during a round."""


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


class Wrong(Exception):
    """The service did what it must not."""


class Bench:
    """One engine with so many runs at a time, and so many threads for each."""

    def __init__(self, engine: str, layout: str, program: Path, options: list[str], pool: Pool):
        workers, threads = layout.split("x")
        self.engine = f"{engine} {layout}"
        self.program, self.pool = program, pool
        self.vocabulary = build.vocabulary() if pool.headers is None else None
        self.path = "/embed" if pool.headers is None else "/v2/models/minilm/infer"
        self.options = [*options, "--workers", workers, "--threads", threads]
        self.rounds: list[dict[str, Any]] = []
        self.number = 0

    def start(self, *options: str) -> Server:
        """A new process of the service."""
        return Server(self.program, self.vocabulary, *self.options, *options)

    def load(self, seconds: float, clients: int) -> dict[str, Any]:
        """A round of load on a new process; the answers must all be right."""
        server = self.start()
        self.name = server.name
        self.number += 1
        idle, _ = server.memory_mib()
        Load(server.port, self.pool, clients, seed=-1, path=self.path).run(1.0)
        before, cpu = server.metrics(), (machine_cpu_seconds(), server.cpu_seconds(), time.process_time())
        load = Load(server.port, self.pool, clients, seed=self.number, path=self.path)
        took = load.run(seconds)
        used, service, client = (
            now - then
            for now, then in zip((machine_cpu_seconds(), server.cpu_seconds(), time.process_time()), cpu, strict=True)
        )
        after = server.metrics()
        resident, _ = server.memory_mib()
        status = server.terminate()
        self.expect(load.statuses().keys() == {200}, f"answers by status: {load.statuses()}")
        self.expect(status == 0, f"exit status {status}")
        worst = load.worst()
        self.expect(worst <= TOLERANCE, f"an answer differs by {worst}")
        change = {key: after[key] - before.get(key, 0) for key in after}
        runs, sentences, busy, tokens, padding = self.figures(change)
        latencies = load.latencies()
        result = {
            "seconds": took,
            "clients": clients,
            "requests": len(load.answers),
            "errors": 0,
            "worst": worst,
            "per_second": len(load.answers) / took,
            "tokens_per_second": tokens / took,
            "p50_ms": percentile(latencies, 50) * 1e3,
            "p90_ms": percentile(latencies, 90) * 1e3,
            "p99_ms": percentile(latencies, 99) * 1e3,
            "max_ms": latencies[-1] * 1e3,
            "latencies_ms": [round(latency * 1e3, 1) for latency in latencies],
            "sentences_per_run": sentences / runs,
            "padding": padding / (tokens + padding),
            "busy": busy / took,
            # Shares of the machine's cores.
            "service_cpu": service / took / cores(),
            "client_cpu": client / took / cores(),
            "others_cpu": (used - service - client) / took / cores(),
            "start_ms": server.start_seconds * 1e3,
            "idle_mib": idle,
            "resident_mib": resident,
        }
        return result

    def figures(self, change: dict[str, float]) -> list[float]:
        """Runs, their requests and seconds, tokens without padding, and padding."""
        if self.pool.headers is None:
            names = (
                "run_seconds_count",
                "batch_sentences_sum",
                "run_seconds_sum",
                "tokens_total",
                "padding_tokens_total",
            )
            return [change[f"service_{name}"] for name in names]
        names = ("run_seconds_count", "run_requests_sum", "run_seconds_sum", "elements_total", "padding_total")
        return [change[f'service_model_{name}{{model="minilm"}}'] for name in names]

    def total(self) -> dict[str, Any]:
        """All rounds as one."""
        latencies = sorted(latency for entry in self.rounds for latency in entry["latencies_ms"])
        seconds, requests = (sum(entry[key] for entry in self.rounds) for key in ("seconds", "requests"))
        result = {key: statistics.fmean(entry[key] for entry in self.rounds) for key in MEANS}
        result.update(
            seconds=seconds,
            requests=requests,
            errors=sum(entry["errors"] for entry in self.rounds),
            worst=max(entry["worst"] for entry in self.rounds),
            per_second=requests / seconds,
            p50_ms=percentile(latencies, 50),
            p90_ms=percentile(latencies, 90),
            p99_ms=percentile(latencies, 99),
            max_ms=latencies[-1],
        )
        return result

    def drain(self, clients: int) -> dict[str, Any]:
        """SIGTERM under load: what was sent before it is answered, with its embedding or with 503.

        Who comes later gets 503, no connection, or the end of one.
        """
        server = self.start()
        load = Load(server.port, self.pool, clients, path=self.path)
        load.start()
        time.sleep(2)
        began = time.perf_counter()
        server.process.terminate()
        status = server.wait()
        took = time.perf_counter() - began
        load.finish()
        statuses = load.statuses()
        self.expect(statuses.keys() <= {0, 200, 503}, f"while it stopped, answers by status: {statuses}")
        lost = sum(answer.status == 0 and answer.began < began for answer in load.answers)
        self.expect(lost == 0, f"{lost} requests were lost when it stopped")
        self.expect(status == 0, f"exit status {status}")
        self.expect(load.worst() <= TOLERANCE, "a wrong answer while it stopped")
        late = [answer for answer in load.answers if answer.status == 200 and answer.began + answer.seconds > began]
        refused = statuses.get(503, 0) + statuses.get(0, 0) + load.refused
        return {
            "answered": statuses[200],
            "of them after SIGTERM": len(late),
            "refused": refused,
            "lost": lost,
            "seconds": took,
        }

    def overload(self, clients: int) -> dict[str, Any]:
        """More clients than the queue holds: embeddings or 503, and nothing else."""
        limits = ["--queue", "8", "--connections", str(clients)]
        limits += ["--max-sentences", "8"] if self.pool.headers is None else []
        server = self.start(*limits)
        load = Load(server.port, self.pool, clients, path=self.path)
        load.run(5)
        status = server.terminate()
        statuses = load.statuses()
        self.expect(statuses.keys() == {200, 503}, f"under overload, answers by status: {statuses}")
        self.expect(all(a.retry_after for a in load.answers if a.status == 503), "a 503 without Retry-After")
        self.expect(status == 0, f"exit status {status}")
        self.expect(load.worst() <= TOLERANCE, "a wrong answer under overload")
        return {"clients": clients, "queue": 8, "answered": statuses[200], "refused": statuses[503]}

    def start_times(self, count: int = 5) -> float:
        """Milliseconds from the start of the process until it listens, the median."""
        times = []
        for _ in range(count):
            server = self.start()
            times.append(server.start_seconds * 1e3)
            server.terminate()
        return statistics.median(times)

    def expect(self, holds: bool, problem: str) -> None:
        """Raises if the service did wrong."""
        if not holds:
            raise Wrong(f"{self.engine}: {problem}")


def main() -> int:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.service", description=__doc__.split("\n\n")[1])
    add = parser.add_argument
    add("--protocol", choices=("embed", "kserve"), default="embed", help="sentences to /embed, or token ids to /v2")
    add("--engines", default="disc,onnxruntime", help="default: %(default)s")
    add(
        "--layouts",
        default=f"1x{cores()},{cores()}x1",
        help="runs at the same time x threads of each; every one for each engine (default: %(default)s)",
    )
    add("--seconds", type=float, default=60, help="of load for each, over all rounds (default: %(default)s)")
    add("--rounds", type=int, default=4, help="they take turns so often (default: %(default)s)")
    add("--clients", type=int, default=8, help="default: %(default)s")
    add("--pool", type=int, default=400, help="different sentences (default: %(default)s)")
    add("--seed", type=int, default=0)
    add("--only-load", action="store_true", help="neither stop nor overload it")
    add("--output", type=Path, help="default: bench/results/service/load.json, or kserve.json")
    add("options", nargs="*", help="for the service, after --")
    args = parser.parse_args()
    if args.output is None:
        name = "load.json" if args.protocol == "embed" else "kserve.json"
        args.output = ROOT / "bench" / "results" / "service" / name

    cache = ROOT / "bench" / ".cache"
    cache.mkdir(exist_ok=True)
    pool = make_pool(args.pool, args.seed, cache)
    if args.protocol == "kserve":
        pool = as_tensors(pool)
    programs = {engine: build.build(engine, cache, args.protocol) for engine in args.engines.split(",")}
    benches = [
        Bench(engine, layout, program, [*options, *args.options], pool)
        for layout in args.layouts.split(",")
        for engine, (program, options) in programs.items()
    ]
    report: dict[str, Any] = {"engines": {}}
    report.update(machine=machine.measure(cores()).describe(), clients=args.clients, options=args.options)

    take_turns(benches, args.rounds, args.seconds / args.rounds, args.clients)
    for bench in benches:
        entry: dict[str, Any] = {"name": bench.name}
        report["engines"][bench.engine] = entry
        if bench.rounds:
            entry["total"] = bench.total()
            entry["rounds"] = [{k: v for k, v in one.items() if k != "latencies_ms"} for one in bench.rounds]
        if not args.only_load:
            entry.update(start_ms=bench.start_times(), drain=bench.drain(args.clients), overload=bench.overload(48))
            print(f"{bench.engine}: stopped under load: {entry['drain']}; overloaded: {entry['overload']}")
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(table(report))
    return 0


def take_turns(benches: list[Bench], rounds: int, seconds: float, clients: int) -> None:
    """Rounds of all engines; those in which other processes took part of the machine are done again, once each."""
    good = 0
    for _ in range(2 * rounds):
        results = []
        for bench in benches:
            results.append(bench.load(seconds, clients))
            print(f"{bench.engine}: {summary(results[-1])}", flush=True)
        if max(result["others_cpu"] for result in results) > DISTURBED:
            print("  does not count: other processes took too much of the machine", flush=True)
            continue
        for bench, result in zip(benches, results, strict=True):
            bench.rounds.append(result)
        good += 1
        if good == rounds:
            return
    print(f"only {good} of {rounds} rounds count")


def table(report: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = [
        "| engine, runs x threads | requests/s | p50 ms | p90 ms | p99 ms | requests | errors | MiB | start ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for engine, entry in report["engines"].items():
        total = entry.get("total")
        if total is None:
            continue
        start = f"{entry['start_ms']:.0f}" if "start_ms" in entry else ""
        cells = [engine, f"{total['per_second']:.1f}", *(f"{total[f'p{p}_ms']:.1f}" for p in (50, 90, 99))]
        cells += [f"{total['requests']}", f"{total['errors']}", f"{total['resident_mib']:.0f}", start]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(result: dict[str, Any]) -> str:
    """One line."""
    parts = [
        f"{result['requests']} requests, {result['errors']} errors, {result['per_second']:.1f}/s",
        f"p50 {result['p50_ms']:.1f} ms, p99 {result['p99_ms']:.1f} ms",
        f"{result['sentences_per_run']:.2f} sentences a run, padding {result['padding']:.1%}",
        f"processors: service {result['service_cpu']:.0%}, clients {result['client_cpu']:.0%}, "
        f"others {result['others_cpu']:.0%}",
        f"{result['resident_mib']:.0f} MiB, difference at most {result['worst']:.1e}",
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (Wrong, subprocess.CalledProcessError) as error:
        sys.exit(f"bench.service: {error}")
