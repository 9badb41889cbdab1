"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Machine:
    """The processor, and the peak of f32 multiply-adds that it reached just before the run."""

    cpu: str
    cores: int
    threads: int
    memory_gib: float
    peak_one: float | None
    """GFLOP/s of one thread."""
    peak_all: float | None
    """GFLOP/s of `threads` threads."""
    system: str
    revision: str
    """DISC's commit."""

    def describe(self) -> str:
        """One line."""
        peak = "unknown"
        if self.peak_one and self.peak_all:
            peak = f"{self.peak_one:.0f} GFLOP/s on one core, {self.peak_all:.0f} on {self.threads} threads"
        return f"{self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB; FMA peak (f32) {peak}"


def measure(threads: int) -> Machine:
    """This machine."""
    return Machine(
        cpu=cpu(),
        cores=len(os.sched_getaffinity(0)),
        threads=threads,
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        peak_one=fma_peak(1),
        peak_all=fma_peak(threads),
        system=platform.platform(),
        revision=revision(),
    )


def cpu() -> str:
    """The processor's name, family and model; the name alone may be no more than the maker's."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    numbers = [f"{key} {fields[key]}" for key in ("cpu family", "model") if key in fields]
    name = fields.get("model name", platform.processor() or platform.machine())
    return f"{name} ({', '.join(numbers)})" if numbers else name


def fma_peak(threads: int) -> float:
    """GFLOP/s of multiply-adds on registers, measured as ``disc report`` does, in a process of its own."""
    code = f"from disc.reporting.limits import fma_peak; print(fma_peak({threads}) / 1e9)"
    python = ROOT / ".venv" / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return float(result.stdout)


def dirty(text: str) -> bool:
    """Whether a revision says that files differ from it."""
    return text.endswith("+")


def revision() -> str:
    """The commit that is checked out, with a + if files other than the bench's own results differ from it."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", ":!bench/results")
    return (commit or "unknown") + "+" * bool(changed)


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True).stdout.strip()
