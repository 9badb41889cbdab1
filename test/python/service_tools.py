"""Builds examples/service and talks to it."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(folder, *targets, prefix=None, settings=()):
    """Builds targets of the service in `folder`; those that need the model's library find it in `prefix`.

    Without it, the service has no model of sentences and links disc's own library.
    """
    settings = [f"-DSERVICE_WITH_MODEL={'ON' if prefix else 'OFF'}", *settings]
    settings.append(f"-DCMAKE_PREFIX_PATH={prefix}" if prefix else f"-DDISC_ROOT={ROOT / 'python' / 'disc'}")
    if shutil.which("ccache"):
        settings.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    # One at a time: what one build compiles, the next ones find in the compiler's cache.
    with open(ROOT / "build" / "service-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run("cmake", "-S", ROOT / "examples" / "service", "-B", folder, "-G", "Ninja", *settings)
        run("cmake", "--build", folder, "--target", *targets)


def run(*command, **keywords):
    """The output of a command; its messages are in the failure, if it fails."""
    environment = {**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, encoding="utf-8", env=environment, **keywords
    )
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
