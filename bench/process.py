"""An engine's process, seen from outside: it runs when it is asked something, and is stopped otherwise."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import engines

ROOT = Path(__file__).resolve().parents[1]


class Failed(Exception):
    """The engine said no, died, or took too long."""


class EngineProcess:
    """Starts `bench.worker`. Between answers the process is stopped, threads and all: many engines let their threads
    spin for a while after a call, which would slow down whoever has the next turn.
    """

    def __init__(self, engine: str, workload: str, threads: int, cache: Path):
        self.engine = engine
        self.log = cache / f"{workload}.{engine}.log"
        self.log.unlink(missing_ok=True)
        python, path = Path(sys.executable), [str(ROOT)]
        if engines.load(engine).home:
            python, path = ROOT / ".venv" / "bin" / "python", [str(ROOT), str(ROOT / "python")]
        environment = {
            **os.environ,
            # Compile times are those of a first compilation.
            "DISC_CODE_CACHE": "",
            "OMP_NUM_THREADS": str(threads),
            "TVM_NUM_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join(path),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        command = [str(python), "-m", "bench.worker", engine, workload, str(threads), str(cache), str(self.log)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT
        )
        self._buffer = b""

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
        descriptor, end = self._process.stdout.fileno(), time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.close()
                raise Failed(f"no answer within {timeout:.0f} s")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                raise Failed(self._death())
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

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
