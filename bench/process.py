"""An engine's process, seen from outside: it runs when it is asked something, and is stopped otherwise."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import engines, isa

ROOT = Path(__file__).resolve().parents[1]


class Failed(Exception):
    """The engine said no, died, or took too long."""


@dataclass(frozen=True)
class Launch:
    """What a process runs, and how."""

    engine: str
    workload: str
    threads: int
    cache: Path
    isa: str = engines.NATIVE
    variant: str = ""
    allocator: str = ""
    """One of `allocators()`; empty is the C library's."""
    inductor: Path | None = None
    """Where Inductor keeps what it compiled, for other processes of the run."""

    @property
    def form(self) -> str:
        """The variant and the allocator, as results name them."""
        return ", ".join(part for part in (self.variant, self.allocator) if part)

    def environment(self) -> dict[str, str]:
        """The variables that it is started with."""
        result = {
            **os.environ,
            # Compile times are those of a first compilation.
            "DISC_CODE_CACHE": "",
            "OMP_NUM_THREADS": str(self.threads),
            "TVM_NUM_THREADS": str(self.threads),
            "PYTHONPATH": os.pathsep.join(map(str, self.path())),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        if self.inductor is not None:
            result["TORCHINDUCTOR_CACHE_DIR"] = str(self.inductor)
        if self.isa != engines.NATIVE:
            result |= hidden(self.isa, self.cache)
        if self.allocator:
            result["LD_PRELOAD"] = f"{result.get('LD_PRELOAD', '')} {allocators()[self.allocator]}".strip()
        return result

    def path(self) -> list[Path]:
        """Where it finds modules besides its environment's."""
        own = engines.load(self.engine).environment == ".venv"
        return [ROOT, ROOT / "python"] if own else [ROOT]

    def python(self) -> Path:
        """Its interpreter."""
        return ROOT / engines.load(self.engine).environment / "bin" / "python"


hidden = functools.cache(isa.environment)
"""What makes every engine take the machine for a lesser one. Looked for once in all libraries, which takes seconds."""


def allocators() -> dict[str, str]:
    """The files of the allocators that are installed and may replace the C library's."""
    names = {"tcmalloc": "libtcmalloc_minimal.so.4", "jemalloc": "libjemalloc.so.2"}
    found = {name: sorted(Path("/usr/lib").glob(f"*/{file}")) for name, file in names.items()}
    return {name: str(files[0]) for name, files in found.items() if files}


def read_line(descriptor: int, buffer: bytearray, timeout: float) -> bytes:
    """The next line of a pipe; what comes after it stays in the buffer. BrokenPipeError at the end of the pipe."""
    end = time.monotonic() + timeout
    while b"\n" not in buffer:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise Failed(f"no answer within {timeout:.0f} s")
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            raise BrokenPipeError
        buffer += chunk
    line, _, rest = buffer.partition(b"\n")
    buffer[:] = rest
    return bytes(line)


class Turns:
    """A program that answers commands. Between answers the process is stopped, threads and all: many engines let their
    threads spin for a while after a call, which would slow down whoever has the next turn.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path):
        self.log = log
        self.log.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=ROOT,
        )
        self.pid = self._process.pid
        self._buffer = bytearray()

    def ask(self, do: str, timeout: float = 120.0, **arguments: Any) -> dict[str, Any]:
        """One command and its answer."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._line(timeout))
        except BrokenPipeError:
            raise Failed(self._death()) from None
        self._signal(signal.SIGSTOP)
        if "failed" in answer:
            raise Failed(answer["failed"])
        return answer

    def alive(self) -> bool:
        """Whether it can still be asked something."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _line(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        try:
            return read_line(self._process.stdout.fileno(), self._buffer, timeout)
        except BrokenPipeError:
            raise Failed(self._death()) from None
        except Failed:
            self.close()
            raise

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def _death(self) -> str:
        code = self._process.wait()
        cause = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        try:
            last = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        except OSError:
            last = []
        return ": ".join([f"the process died ({cause})", *last])[:300]


class EngineProcess(Turns):
    """Starts `bench.worker`."""

    def __init__(self, launch: Launch):
        log = launch.cache / f"{launch.workload}.{launch.engine}.log"
        context = [launch.engine, launch.variant, launch.workload, str(launch.threads), launch.isa]
        command = [str(launch.python()), "-m", "bench.worker", *context, str(launch.cache), str(log)]
        super().__init__(command, launch.environment(), log)
