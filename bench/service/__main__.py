"""python -m bench.service: the service under load, on DISC and on ONNX Runtime.

Clients in a closed loop send sentences of 1 to 200 words; every answer is compared with eager PyTorch. Then it is
stopped under load, and overloaded. Results go to bench/results/service.json.
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
from .pool import ROOT, Pool, make_pool
from .server import Server


class Wrong(Exception):
    """The service did what it must not."""


class Bench:
    """One engine."""

    def __init__(self, engine: str, program: Path, options: list[str], pool: Pool, vocabulary: Path):
        self.engine, self.program, self.options, self.pool, self.vocabulary = engine, program, options, pool, vocabulary
        self.rounds: list[dict[str, Any]] = []

    def start(self, *options: str) -> Server:
        """A new process of the service."""
        return Server(self.program, self.vocabulary, *self.options, *options)

    def load(self, seconds: float, clients: int) -> dict[str, Any]:
        """A round of load on a new process; the answers must all be right."""
        server = self.start()
        self.name = server.name
        idle, _ = server.memory_mib()
        Load(server.port, self.pool, clients, seed=-1).run(1.0)
        before = server.metrics()
        load = Load(server.port, self.pool, clients, seed=len(self.rounds))
        took = load.run(seconds)
        after = server.metrics()
        resident, _ = server.memory_mib()
        status = server.terminate()
        self.expect(load.statuses().keys() == {200}, f"answers by status: {load.statuses()}")
        self.expect(status == 0, f"exit status {status}")
        worst = load.worst()
        self.expect(worst <= TOLERANCE, f"an answer differs by {worst}")
        change = {key: after[key] - before[key] for key in after}
        runs = change["service_run_seconds_count"]
        tokens, padding = change["service_tokens_total"], change["service_padding_tokens_total"]
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
            "sentences_per_run": change["service_batch_sentences_sum"] / runs,
            "padding": padding / (tokens + padding),
            "busy": change["service_run_seconds_sum"] / took,
            "start_ms": server.start_seconds * 1e3,
            "idle_mib": idle,
            "resident_mib": resident,
        }
        self.rounds.append(result)
        return result

    def drain(self, clients: int) -> dict[str, Any]:
        """SIGTERM under load: what was sent before it is answered, with its embedding or with 503.

        Who comes later gets 503, no connection, or the end of one.
        """
        server = self.start()
        load = Load(server.port, self.pool, clients)
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
        server = self.start("--queue", "8", "--max-sentences", "8", "--connections", str(clients))
        load = Load(server.port, self.pool, clients)
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
    add("--engines", default="disc,onnxruntime", help="default: %(default)s")
    add("--seconds", type=float, default=60, help="of load for each engine, over all rounds (default: %(default)s)")
    add("--rounds", type=int, default=2, help="the engines take turns so often (default: %(default)s)")
    add("--clients", type=int, default=8, help="default: %(default)s")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of one run (default: all cores)")
    add("--pool", type=int, default=400, help="different sentences (default: %(default)s)")
    add("--seed", type=int, default=0)
    add("--only-load", action="store_true", help="neither stop nor overload it")
    add("--output", type=Path, default=ROOT / "bench" / "results" / "service.json")
    add("options", nargs="*", help="for the service, after --")
    args = parser.parse_args()

    cache = ROOT / "bench" / ".cache"
    cache.mkdir(exist_ok=True)
    pool = make_pool(args.pool, args.seed, cache)
    benches = []
    for engine in args.engines.split(","):
        program, options = build.build(engine, cache)
        options += ["--threads", str(args.threads), *args.options]
        benches.append(Bench(engine, program, options, pool, build.vocabulary()))
    for number in range(args.rounds):
        for bench in benches:
            result = bench.load(args.seconds / args.rounds, args.clients)
            print(f"round {number + 1}: {bench.engine}: {summary(result)}", flush=True)
    report: dict[str, Any] = {
        "machine": machine.measure(args.threads).describe(),
        "options": args.options,
        "engines": {},
    }
    for bench in benches:
        entry: dict[str, Any] = {"name": bench.name, "rounds": bench.rounds, "start_ms": bench.start_times()}
        if not args.only_load:
            entry["drain"] = bench.drain(args.clients)
            entry["overload"] = bench.overload(48)
            print(f"{bench.engine}: stopped under load: {entry['drain']}; overloaded: {entry['overload']}")
        print(f"{bench.engine}: starts in {entry['start_ms']:.0f} ms")
        report["engines"][bench.engine] = entry
    args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def summary(result: dict[str, Any]) -> str:
    """One line."""
    parts = [
        f"{result['requests']} requests, {result['errors']} errors, {result['per_second']:.1f}/s",
        f"p50 {result['p50_ms']:.1f} ms, p99 {result['p99_ms']:.1f} ms",
        f"{result['sentences_per_run']:.2f} sentences a run, padding {result['padding']:.1%}",
        f"busy {result['busy']:.0%}",
        f"{result['resident_mib']:.0f} MiB, difference at most {result['worst']:.1e}",
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Wrong, subprocess.CalledProcessError) as error:
        sys.exit(f"bench.service: {error}")
