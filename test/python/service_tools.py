"""Builds examples/service and talks to it."""

import fcntl
import os
import shutil
import subprocess
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


UNITY = (
    # Several files in one compilation: the headers of HTTP, JSON and gRPC are read once instead of in each.
    "-DCMAKE_UNITY_BUILD=ON",
    # A program then takes functions that it does not call out of the archive, and what those need.
    "-DCMAKE_CXX_FLAGS=-ffunction-sections",
    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--gc-sections",
)


def build(folder, *targets, prefix=None, settings=(), unity=True):
    """Builds targets of the service and copies them to `folder`; the model's library is found in `prefix`.

    Without it, the service has no model of sentences and links disc's own library. Without `unity` each file is
    compiled alone, as users do.
    """
    settings = [f"-DSERVICE_WITH_MODEL={'ON' if prefix else 'OFF'}", *settings, *(UNITY if unity else ())]
    if shutil.which("ccache"):
        settings.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    # Shared by all tests with these settings, and by the next run of them. CMake would keep a prefix from then.
    tree = ROOT / "build" / "service-tests" / f"{zlib.crc32(' '.join(settings).encode()):08x}"
    settings += ["-Uminilm_DIR", f"-DCMAKE_PREFIX_PATH={prefix}"] if prefix else [f"-DDISC_ROOT={ROOT}/python/disc"]
    # One at a time: what one build compiles, the next ones find in the compiler's cache.
    with open(ROOT / "build" / "service-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run("cmake", "-S", ROOT / "examples" / "service", "-B", tree, "-G", "Ninja", *settings)
        run("cmake", "--build", tree, "--target", *targets)
        for target in targets:
            shutil.copy2(tree / target, folder)


def run(*command, **keywords):
    """The output of a command; its messages are in the failure, if it fails."""
    environment = {**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, encoding="utf-8", env=environment, **keywords
    )
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
