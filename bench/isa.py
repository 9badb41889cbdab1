"""Programs that take this machine for one without AVX-512, or without AVX.

    python -m bench.isa avx2 python -m bench minilm

Engines ask the processor (CPUID) and the operating system (XGETBV) what they may use. `isa_audit.c` answers the second
question for every library that a process loads. Environment variables of the engines' own do not suffice: with
ONEDNN_MAX_CPU_ISA=AVX2, OpenVINO 2026.4 still multiplies f32 matrices with AVX-512.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import capstone

LEVELS = {"avx2": "x86-64-v3", "sse": "x86-64-v2"}
"""What stays visible, and LLVM's name for such a processor."""

XGETBV = b"\x0f\x01\xd0"
EXECUTABLE, PROGBITS = 4, 1
# glibc asks before any library is loaded.
GLIBC = {
    "avx2": ("AVX512F", "AVX512VL", "AVX512BW", "AVX512DQ", "AVX512CD"),
    "sse": ("AVX512F", "AVX512VL", "AVX512BW", "AVX512DQ", "AVX512CD", "AVX2", "AVX", "FMA"),
}


def sections(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Offset, address and size of an ELF file's sections of code."""
    if data[:5] != b"\x7fELF\x02":
        return
    (table,) = struct.unpack_from("<Q", data, 40)
    entry, count = struct.unpack_from("<HH", data, 58)
    for i in range(count):
        _, kind, flags, address, offset, size = struct.unpack_from("<IIQQQQ", data, table + i * entry)
        if kind == PROGBITS and flags & EXECUTABLE:
            yield offset, address, size


def is_instruction(code: bytes, at: int) -> bool:
    """Whether an instruction begins at `at`.

    Decoding that starts somewhere before falls into step within a few instructions: of many starts, a good part arrives
    at a true beginning and none at bytes inside of another one.
    """
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    starts = range(max(at - 64, 0), at - 15)
    arrived = 0
    for start in starts:
        position = start
        for address, size, _, _ in decoder.disasm_lite(code[start : at + 15], start):
            if address >= at:
                break
            position = address + size
        arrived += position == at
    return arrived > 0.15 * len(starts)


def instructions(path: Path) -> list[int]:
    """The addresses of a file's `xgetbv` instructions."""
    data = path.read_bytes()
    found = []
    for offset, address, size in sections(data):
        code = data[offset : offset + size]
        found += [address + m.start() for m in re.finditer(re.escape(XGETBV), code) if is_instruction(code, m.start())]
    return found


def files() -> list[Path]:
    """Whatever a process of this environment, or of another of the project's, may load or start."""
    root = Path(__file__).resolve().parent.parent
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    folders = [Path(f) for f in sys.path if f and Path(f).is_dir()]
    folders += [*root.glob(".venv*/lib/*/site-packages"), root / "python"]
    folders += [Path("/usr/lib", multiarch), Path("/usr/lib/llvm-22/lib")]
    found = {p.resolve() for folder in folders for p in folder.glob("**/*.so*") if p.is_file()}
    programs = [Path(sys.executable), *(Path("/usr/bin").glob("*g++*")), *(Path("/usr/bin").glob("clang*"))]
    return sorted(found | {p.resolve() for p in programs if p.is_file()})


def environment(level: str, cache: Path) -> dict[str, str]:
    """Environment variables for processes that shall see `level` at most; the library and its list go to `cache`."""
    source = Path(__file__).with_name("isa_audit.c")
    cache.mkdir(parents=True, exist_ok=True)
    library = cache / f"isa-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so"
    if not library.exists():
        compiler = next(name for name in ("cc", "gcc", "clang", "clang-22") if shutil.which(name))
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    paths = files()
    states = [f"{p} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in paths]
    listing = cache / f"isa-{hashlib.sha256(chr(10).join(states).encode()).hexdigest()[:12]}.list"
    if not listing.exists():
        lines = [f"{address:x} {path}" for path in paths for address in instructions(path)]
        listing.write_text("".join(line + "\n" for line in lines))
    return {
        "BENCH_ISA": level,
        "BENCH_ISA_LIST": str(listing),
        "LD_AUDIT": str(library),
        "LD_PRELOAD": str(library),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{name}" for name in GLIBC[level]),
    }


def main() -> None:
    """Replaces this process by a program that sees less."""
    if len(sys.argv) < 3 or sys.argv[1] not in LEVELS:
        sys.exit(f"usage: python -m bench.isa {'|'.join(LEVELS)} COMMAND ...")
    env = environment(sys.argv[1], Path(__file__).resolve().parent / ".cache")
    os.execvpe(sys.argv[2], sys.argv[2:], os.environ | env)


if __name__ == "__main__":
    main()
