"""The service's process."""

from __future__ import annotations

import atexit
import os
import re
import select
import signal
import subprocess
import time
import urllib.request
from pathlib import Path


class Server:
    """Starts the program on a port of its own and waits until it listens."""

    def __init__(self, program: Path, vocabulary: Path | None, *options: str):
        command = [str(program), "--port", "0", *options]
        command += ["--vocab", str(vocabulary)] if vocabulary else []
        began = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        atexit.register(self.process.kill)  # Without effect if it has ended.
        lines: list[str] = []
        while not lines or "listening" not in lines[-1]:
            line = self._line(60)
            if not line:
                raise RuntimeError(f"{program} ended with {self.process.wait()}")
            lines.append(line)
        self.start_seconds = time.perf_counter() - began
        self.name = lines[0].strip()
        self.port = int(lines[-1].rpartition(":")[2])

    def _line(self, timeout: float) -> str:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            self.process.kill()
            raise RuntimeError(f"it did not listen within {timeout:.0f} s")
        line, char = b"", b""
        while char != b"\n":
            char = os.read(self.process.stdout.fileno(), 1)
            if not char:
                break
            line += char
        return line.decode()

    def memory_mib(self) -> tuple[float, float]:
        """What is resident now, and what was at most."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        now, most = (re.search(rf"^{key}:\s+(\d+) kB", text, re.M) for key in ("VmRSS", "VmHWM"))
        assert now is not None and most is not None
        return int(now[1]) / 1024, int(most[1]) / 1024

    def cpu_seconds(self) -> float:
        """Processor time that it used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metrics(self) -> dict[str, float]:
        """Those without labels, and those of models; without their buckets."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        samples = (
            line.rpartition(" ") for line in lines if line[0] != "#" and "{le=" not in line and ",le=" not in line
        )
        return {name: float(value) for name, _, value in samples}

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout: float = 60) -> int:
        """The exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise RuntimeError("it did not stop") from None


def machine_cpu_seconds() -> float:
    """Processor time that all processes of this machine used so far, and what a hypervisor took from it."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _wait, irq, soft_irq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
