"""Programs that failed once, one module each: written by the fuzzer, run by `test/python/e2e/test_programs.py`."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

from ..program import IMPORTS, Input, Parameter, Program, Step

FOLDER = Path(__file__).parent


def write(folder: Path, program: Program, seed: int, way: str, what: str) -> Path:
    """Writes a program as a module that :func:`read` reads; copy it to this folder to keep it as a test."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"\W+", "_", f"{program.name.lower()} {seed} {way}".strip()) + ".py")
    inputs = [(i.name, i.dtype, i.dims) for i in program.inputs]
    steps = [(s.result, s.text, s.op) for s in program.steps]
    held = [(p.name, p.code) for p in program.parameters]
    imports = IMPORTS if "F." in program.source else IMPORTS.replace("import torch.nn.functional as F\n", "")
    path.write_text(
        f'"""{" ".join(what.split())[:90]}"""\n\n{imports}{program.source}\n\n'
        f"SEED = {seed}\nWAY = {way!r}\nINPUTS = {inputs!r}\nMINIMUM = {dict(program.minimum)!r}\n"
        f"OUTPUTS = {program.outputs!r}\n"
        + (f"PARAMETERS = {held!r}\n" if held else "")
        + "STEPS = [\n"
        + "".join(f"    {step!r},\n" for step in steps)
        + "]\n"
    )
    return path


def read(path: Path) -> tuple[Program, int, str]:
    """The program of a file, the seed of its inputs, and the way it is compiled."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    load: Callable[..., None] = spec.loader.exec_module
    load(found)
    name = next(n for n in vars(found) if re.fullmatch(r"P\d+[RW]*", n))
    inputs = tuple(Input(*i) for i in found.INPUTS)
    steps = tuple(Step(*s) for s in found.STEPS)
    parameters = tuple(Parameter(*p) for p in getattr(found, "PARAMETERS", ()))
    return Program(name, inputs, steps, tuple(found.OUTPUTS), found.MINIMUM, parameters), found.SEED, found.WAY


def paths() -> list[Path]:
    """The files in this folder."""
    return sorted(p for p in FOLDER.glob("*.py") if p.name != "__init__.py")
