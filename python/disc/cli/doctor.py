"""``disc doctor``: versions, CPU, limits and settings of this machine, and a model compiled and run as a test."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from .. import __version__, code_cache
from . import commands, text

_EXAMPLES = """\
disc doctor
disc doctor --json
disc doctor --no-test        # without compiling a model
"""
_DISTRIBUTIONS = ("disc-compiler", "disc-compiler-runtime")
_FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "sve",
    "bf16",
)
_SLOW_SETTINGS = {
    "OMP_WAIT_POLICY": ("active", "threads of PyTorch spin between its operations and take DISC's cores"),
    "KMP_BLOCKTIME": ("infinite", "threads of PyTorch never sleep and take DISC's cores"),
    "GOMP_SPINCOUNT": ("infinity", "threads of PyTorch never sleep and take DISC's cores"),
}


class Finding(NamedTuple):
    """One line of the report."""

    section: str
    name: str
    value: str
    state: str = "ok"
    """``ok``, ``warning`` (slow or incomplete) or ``error`` (compiling or running does not work)."""


@click.command(
    "doctor",
    cls=commands.Command,
    short_help="Check versions, CPU, limits and caches; test a small model.",
    examples=_EXAMPLES,
)
@click.option("--test/--no-test", default=True, help="Compile and run a small model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@commands.version_option
def command(test: bool, as_json: bool) -> int:
    """Check this machine: versions, CPU, threads and limits, caches, and a small model as a test.

    The exit status is 1 if something is wrong that keeps models from being compiled or run.
    """
    findings = list(examine(test))
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        _print(findings)
    return text.FAILURE if any(finding.state == "error" for finding in findings) else 0


def examine(test: bool = True) -> Iterator[Finding]:
    """All findings."""
    for section in (_versions, _cpu, _threads, _settings, _folders, _devices):
        yield from section()
    if test:
        yield _self_test()


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _versions() -> Iterator[Finding]:
    section = "versions"
    yield Finding(section, "Python", f"{platform.python_version()} ({sys.executable})")
    installed = [name for name in _DISTRIBUTIONS if _installed(name)]
    yield Finding(section, "disc", f"{__version__} ({', '.join(installed) or 'not installed by pip'})")
    if len(installed) > 1:
        yield Finding(
            section,
            "distributions",
            "disc-compiler and disc-compiler-runtime are both installed; they share files. Run: pip uninstall -y "
            "disc-compiler-runtime && pip install --force-reinstall --no-deps disc-compiler",
            "warning",
        )
    yield from _torch(section)
    for name in ("torch-mlir", "numpy"):
        found = _installed(name)
        needed = name == "numpy" or "disc-compiler" in installed
        state = "ok" if found or not needed else "error"
        yield Finding(section, name, found or f"not installed; run: pip install {name}", state)
    yield Finding(section, "onnx", _installed("onnx") or "not installed; ONNX models need it: pip install onnx")
    name, version = platform.libc_ver()
    yield Finding(section, "C library", f"{name or 'unknown'} {version}")
    yield Finding(section, "Linux", platform.release())


def _torch(section: str) -> Iterator[Finding]:
    from ..torch_version import names, unsupported

    found = _installed("torch")
    if found is None:
        yield Finding(section, "torch", "not installed; compiling needs it, disc.load does not", "warning")
    elif problem := unsupported(found):
        yield Finding(section, "torch", problem, "error")
    else:
        yield Finding(section, "torch", f"{found} (supported: {names()})")


def _cpu() -> Iterator[Finding]:
    section, info = "CPU", _cpu_info()
    yield Finding(section, "model", info.get("model name", platform.machine()))
    flags = set((info.get("flags") or info.get("Features") or "").split())
    yield Finding(section, "features", " ".join(name for name in _FEATURES if name in flags) or "none that DISC uses")
    try:
        from .. import _native
    except ImportError as error:
        yield Finding(section, "code", f"the compiler cannot be loaded: {error}", "warning")
        return
    host = _native.host_target()
    yield Finding(section, "code", f"for {host['cpu']}: vectors of {host['vector_bits']} bits, FMA {_yes(host['fma'])}")
    caches = [(n, host.get(f"{n}_bytes", 0)) for n in ("l1d", "l2", "l3")]
    known = ", ".join(f"{n.upper()} {size // 1024} KiB" for n, size in caches if size)
    yield Finding(section, "caches", known or "unknown", "ok" if known else "warning")


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _cpu_info() -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    try:
        block = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0]
    except OSError:
        return {}
    return {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in block.splitlines())}


def _threads() -> Iterator[Finding]:
    section = "limits"
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    yield Finding(section, "cores", f"{usable} of {present} may be used; a call takes {usable} threads by default")
    quota = cpu_quota()
    if quota is None:
        yield Finding(section, "CPU quota", "none")
    elif quota < usable:
        advice = f"{quota:.1f} cores of {usable}: pass threads={max(1, int(quota))}, or calls wait for the quota"
        yield Finding(section, "CPU quota", advice, "warning")
    else:
        yield Finding(section, "CPU quota", f"{quota:.1f} cores")
    memory, limit = _memory(), memory_limit()
    where = f"{text.size(memory)} available" if memory else "unknown"
    least = 2 * 10**9
    state = "warning" if min(memory or least, limit or least) < least else "ok"
    note = "; compiling with PyTorch takes about 2 GB" if state == "warning" else ""
    yield Finding(section, "memory", where + (f", cgroup limit {text.size(limit)}" if limit else "") + note, state)


def _read(*paths: str) -> str:
    """The text of the first file that can be read; "" if there is none."""
    for path in paths:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError:
            continue
    return ""


def cpu_quota(root: str = "/sys/fs/cgroup") -> float | None:
    """Cores that this control group may use at a time; None if there is no limit."""
    quota, _, period = _read(f"{root}/cpu.max").partition(" ")
    if not quota:
        quota, period = _read(f"{root}/cpu/cpu.cfs_quota_us"), _read(f"{root}/cpu/cpu.cfs_period_us")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def memory_limit(root: str = "/sys/fs/cgroup") -> int | None:
    """Bytes that this control group may use; None if there is no limit."""
    limit = _read(f"{root}/memory.max", f"{root}/memory/memory.limit_in_bytes")
    return int(limit) if limit.isdecimal() and int(limit) < 1 << 60 else None


def _memory() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _settings() -> Iterator[Finding]:
    section = "settings"
    for name, (slow, why) in _SLOW_SETTINGS.items():
        value = os.environ.get(name)
        if value is not None:
            bad = value.lower() == slow
            yield Finding(section, name, f"{value}: {why}" if bad else value, "warning" if bad else "ok")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "DISC_CODE_CACHE"):
        if name in os.environ:
            yield Finding(section, name, os.environ[name] or "(empty)")
    if not any(name in os.environ for name in (*_SLOW_SETTINGS, "OMP_NUM_THREADS", "MKL_NUM_THREADS")):
        yield Finding(section, "OpenMP", "nothing is set")


def _folders() -> Iterator[Finding]:
    section = "folders"
    folder = code_cache.folder(None)
    if not folder:
        yield Finding(section, "code cache", f"off ({code_cache.VARIABLE} is empty)", "warning")
    else:
        existing = next((p for p in (Path(folder), *Path(folder).parents) if p.exists()), Path("/"))
        if not os.access(existing, os.W_OK):
            yield Finding(
                section, "code cache", f"{folder} cannot be written to; every compilation starts anew", "warning"
            )
        else:
            used = sum(p.stat().st_size for p in Path(folder).glob("*") if p.is_file())
            yield Finding(section, "code cache", f"{folder}, {text.size(used)} in use")
    program = Path(__file__).parents[1] / "lib" / "disc-call"
    found = program.is_file()
    yield Finding(section, "disc-call", str(program) if found else "not installed", "ok" if found else "warning")
    temporary = tempfile.gettempdir()
    writable = os.access(temporary, os.W_OK)
    yield Finding(
        section,
        "temporary files",
        temporary + ("" if writable else " cannot be written to"),
        "ok" if writable else "error",
    )


def _devices() -> Iterator[Finding]:
    from .. import targets
    from ..toolchain import find_ptxas

    section = "devices"
    for name in ("cuda", "rocm"):
        try:
            missing = targets.find(name).target.missing()
        except ImportError as error:
            missing = f"disc._runtime cannot be loaded: {error}"
        yield Finding(section, name, missing or "ready")
    yield Finding(
        section, "ptxas", find_ptxas() or "not found; the CUDA driver assembles kernels when a model is loaded"
    )


def _self_test() -> Finding:
    """Compiles a small model and compares it with eager PyTorch; without torch, loads the extension modules."""
    start = time.perf_counter()
    try:
        result = _compile_and_run() if importlib.util.find_spec("torch") else _load_runtime()
    except Exception as error:  # Whatever is wrong with the installation.
        return Finding("self test", "compile and run", f"{type(error).__name__}: {error}", "error")
    return Finding("self test", "compile and run", f"{result} ({text.seconds(time.perf_counter() - start)})")


def _compile_and_run() -> str:
    import torch
    from torch.export import Dim

    from .. import Options, compile

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.nn.functional.gelu(self.first(x))).softmax(-1)

    module = Model().eval()
    options = Options(progress=False, code_cache=False)
    model = compile(module, (torch.zeros(3, 16),), dynamic_shapes=({0: Dim("n", min=1, max=64)},), options=options)
    for n in (1, 17, 64):
        x = torch.randn(n, 16)
        with torch.no_grad():
            torch.testing.assert_close(model(x), module(x), rtol=1e-4, atol=1e-5)
    return f"three shapes agree with eager PyTorch, compiled in {text.seconds(sum(model.timings.values()))}"


def _load_runtime() -> str:
    from .. import _runtime

    version = _runtime.version
    return f"the runtime {version >> 16}.{version >> 8 & 255}.{version & 255} loads; compiling needs torch"


def _print(findings: list[Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    marks: dict[str, str] = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "error": "[red]error[/]"}
    table = Table.grid(padding=(0, 2))
    section: str | None = None
    for finding in findings:
        if finding.section != section:
            section = finding.section
            table.add_row(f"[bold]{section}[/]")
        table.add_row(f"  {escape(finding.name)}", marks[finding.state], escape(finding.value))
    console = text.console()
    console.print(table)
    count: Callable[[str], int] = lambda state: sum(f.state == state for f in findings)  # noqa: E731
    console.print(f"\n{count('error')} errors, {count('warning')} warnings")
