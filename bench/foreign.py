"""CPU time that others took while an engine was measured."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SHARE = 0.05
"""Of the CPU time of our cores: with more, a measurement is repeated."""
_TICK = 1.0 / os.sysconf("SC_CLK_TCK")


def busy(text: str, cores: Iterable[int]) -> float:
    """Seconds that these cores were not idle, of the text of /proc/stat; time stolen by other machines counts."""
    wanted, ticks = {f"cpu{core}" for core in cores}, 0
    for line in text.splitlines():
        name, *fields = line.split()
        if name in wanted:
            # guest and guest_nice are in user and nice already; iowait is idle time.
            user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks * _TICK


def process_seconds(pid: int) -> float:
    """CPU seconds of a process and all its threads, to the nanosecond."""
    # The clock of another process, as clock_getcpuclockid makes it; Python has no function for that.
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


@dataclass(frozen=True)
class Reading:
    """The state of all clocks at a moment."""

    wall: float
    busy: float
    own: float


class Watch:
    """Tells how much CPU time went to others since `start`, on the cores that this process may use."""

    def __init__(self, pids: Iterable[int]):
        self.pids = [os.getpid(), *pids]
        self.cores = sorted(os.sched_getaffinity(0))
        self._start = self._read()

    def start(self) -> None:
        """From here."""
        self._start = self._read()

    def disturbed(self) -> bool:
        """Whether more went to others since `start` than may."""
        return disturbed(self._start, self._read(), len(self.cores))

    def _read(self) -> Reading:
        text = Path("/proc/stat").read_text(encoding="ascii")
        return Reading(time.perf_counter(), busy(text, self.cores), sum(map(process_seconds, self.pids)))


def disturbed(before: Reading, after: Reading, cores: int) -> bool:
    """Whether others took more than `SHARE`. The kernel counts in ticks, one or two of which may come too much."""
    foreign = (after.busy - before.busy) - (after.own - before.own)
    return foreign > max(SHARE * cores * (after.wall - before.wall), 2 * _TICK)
