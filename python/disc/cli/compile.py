"""``disc compile``: a library that C, C++ and Python programs use, from an exported or an ONNX model."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import os
import sys
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .. import pipeline, targets
from ..errors import CompileError
from ..header import c_identifier
from ..options import Options
from ..profile import PERFETTO_SUFFIXES
from . import commands, text

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ..aot import Artifact

_COMPILE_ERROR = text.FAILURE
_USAGE_ERROR = text.USAGE
_SUFFIXES = {"shared": ".so", "static": ".a", "obj": ".o", "llvm": ".ll", "asm": ".s"}
_STAGES = (pipeline.IMPORT, *pipeline.default().names)
_LIKELY = ("host", "x86-64-v3", "x86-64-v4", "aarch64-linux-gnu", "cuda", "rocm")
"""Targets and kinds of CPU that errors name as examples."""
_path = click.Path(path_type=Path)

_EXAMPLES = """\
disc compile minilm.pt2 -o libminilm.so --header minilm.h
disc compile minilm.pt2 --prefix /opt/minilm --cpu x86-64-v4,x86-64-v3 --weights minilm.safetensors
disc compile minilm.pt2 --target aarch64-linux-gnu --cpu cortex-a76 -o libminilm.so
disc compile minilm.onnx --dims batch=1:64 -o libminilm.so
disc compile minilm.pt2 --compile-to fusion -o -
"""


def _complete_machines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [n for n in ("host",) if n.startswith(incomplete)] + commands.complete_targets(ctx, param, incomplete)


@click.command(
    "compile",
    cls=commands.Command,
    short_help="Compile a .pt2 or ONNX model into a library for C, C++ and Python.",
    examples=_EXAMPLES,
)
@click.argument("model", metavar="MODEL.pt2|.onnx", type=_path)
@click.option(
    "-o", "--output", metavar="FILE", help="By default libNAME.so, libNAME.a, NAME.o, .ll or .s, depending on --emit."
)
@click.option("--header", metavar="FILE", type=_path, help="Write the C header of the model, and disc.h beside it.")
@click.option("--prefix", metavar="DIR", type=_path, help="Install library, headers, CMake and pkg-config files here.")
@click.option("--name", help="The library's name in C, disc_library_NAME; by default that of the output or the model.")
@click.option(
    "--dims",
    metavar="INPUT=NAME,...",
    multiple=True,
    help="Names of the dynamic dims of an input, which a .pt2 file does not store: --dims ids=batch,length (static "
    "ones are left empty). For an ONNX model, whose dims have names, the range or the size of one: --dims batch=1:64.",
)
@click.option(
    "--weights",
    metavar="FILE|embed",
    default="embed",
    show_default=True,
    help="Write the weights to this safetensors file beside the library, or embed them in the library.",
)
@click.option(
    "--packed/--no-packed",
    default=True,
    show_default=True,
    help="Also store the weights in the layout that the code reads, so that loading computes nothing.",
)
@click.option(
    "--target",
    metavar="MACHINE",
    shell_complete=_complete_machines,
    default="host",
    show_default=True,
    help="The machine: host, aarch64-linux-gnu, arm-linux-gnueabihf, cuda, rocm; or a kind of CPU of this machine.",
)
@click.option(
    "--cpu",
    metavar="CPU[,CPU...]",
    help="Kinds of CPU: host, x86-64-v3, cortex-a76, neoverse-v1+sve256, ... The library chooses the best when it is "
    "loaded.",
)
@click.option("--emit", type=click.Choice(list(_SUFFIXES)), default="shared", show_default=True, help="What to write.")
@click.option("--opt-level", type=click.IntRange(0, 3), default=3, show_default=True, help="LLVM's optimisation level.")
@click.option(
    "--precision",
    type=click.Choice(["f32", "bf16"]),
    default="f32",
    show_default=True,
    help="bf16: store the f32 weights of matrix products as bf16.",
)
@click.option(
    "--winograd/--no-winograd",
    default=True,
    show_default=True,
    help="Compute 3 x 3 convolutions with fewer multiplications where that is faster.",
)
@click.option(
    "--memory-budget",
    metavar="BYTES",
    help="Default memory limit: 512MiB, 2GB, ...",
)
@click.option(
    "--memory-plans",
    metavar="N",
    type=click.IntRange(0, 64),
    help="Plans for budgets (default: 8).",
)
@click.option(
    "--sanitize", is_flag=True, help="Check every memory access while the model runs, to find bugs in DISC (slow)."
)
@click.option(
    "--backend",
    "backends",
    metavar="NAME",
    multiple=True,
    help="Let this external back end compile parts of the model; several, in order of precedence.",
)
@click.option("--explain", is_flag=True, help="Print the back end chosen for each operation, and why.")
@click.option("--dump-ir", metavar="DIR", type=_path, help="Write the IR after each stage, LLVM IR and assembly.")
@click.option(
    "--compile-to",
    metavar="STAGE",
    type=click.Choice(_STAGES),
    help=f"Only write the IR after a stage: {', '.join(_STAGES)}.",
)
@click.option(
    "--trace",
    metavar="FILE.pftrace",
    type=_path,
    help="Write when each stage of the compilation ran, for https://ui.perfetto.dev.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Show progress also in files, and torch's own logs.")
@commands.version_option
def command(**options: Any) -> None:
    """Compile an exported PyTorch model, or an ONNX model, into a library for C, C++ and Python.

    The model is exported in Python, with its dynamic dims:

    \b
      program = disc.export(module, args, dynamic_shapes=...)
      torch.export.save(program, "model.pt2")

    torch.export.export works too, for models without recurrent layers and without branches or loops on data. The
    dynamic dims of an ONNX model are its dim_params.
    """
    if options["quiet"] and options["verbose"]:
        text.fail("--quiet and --verbose contradict each other", _USAGE_ERROR)
    # Both kinds of warning are about torch's own code, not the user's.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        _run(argparse.Namespace(**options))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command as ``disc-compile``; returns its exit status."""
    return commands.run(command, "disc-compile", argv)


def _run(args: argparse.Namespace) -> None:
    _check(args)
    if not args.verbose:
        # torch.export logs the errors that it raises.
        logging.getLogger("torch.export").setLevel(logging.CRITICAL)
    program = load_model(args.model)
    args.dynamic_shapes = None
    if args.dims:
        args.dynamic_shapes = dynamic_shapes(program, args.dims)
    options = Options(
        opt_level=args.opt_level,
        precision=args.precision,
        memory_budget=args.memory_budget,
        memory_plans=args.memory_plans,
        winograd=args.winograd,
        sanitize=args.sanitize,
        dump_ir=args.dump_ir,
        progress=False if args.quiet else True if args.verbose else None,
        stop_after=args.compile_to,
        backends=args.backends,
    )
    with compile_errors():
        if args.compile_to is not None:
            _write_ir(args, program, options)
        else:
            _compile(args, program, options)


@contextlib.contextmanager
def compile_errors() -> Iterator[None]:
    """Turns exceptions of the compiler into errors of the command."""
    try:
        yield
    except CompileError as error:
        _fail(str(error))
    except ValueError as error:
        # A value that only the compiler can check, such as a kind of CPU.
        _fail(text.shortened(str(error), _LIKELY, targets.names()), _USAGE_ERROR)
    except BrokenPipeError:
        raise
    except (ImportError, OSError, MemoryError) as error:
        _fail(text.reason(error))


def dynamic_shapes(program: ExportedProgram | Path, items: Sequence[str]) -> Any:
    """The value of ``--dims`` as ``dynamic_shapes`` of :func:`disc.compile`."""
    return _ranges(items) if isinstance(program, Path) else _named_dims(program, items)


def _check(args: argparse.Namespace) -> None:
    """Checks the options that do not depend on the model, before it is read."""
    if args.compile_to is None and args.output == "-":
        _fail("only IR (--compile-to) can be written to the standard output", _USAGE_ERROR)
    if args.compile_to is not None and (args.prefix or args.header):
        _fail("--compile-to writes only IR: leave out --prefix and --header", _USAGE_ERROR)
    if args.prefix and args.emit not in ("shared", "static"):
        _fail(f"--prefix installs libraries: expected --emit shared or static, got {args.emit}", _USAGE_ERROR)
    args.target, args.cpu = _names(args.target), None if args.cpu is None else _names(args.cpu)
    for option, names in (("--target", args.target), ("--cpu", args.cpu)):
        if names == []:
            _fail(f"{option} names no kind of CPU", _USAGE_ERROR)
        if args.compile_to is not None and names is not None and len(names) > 1:
            _fail(f"--compile-to takes one {option}", _USAGE_ERROR)
    if args.trace is not None:
        if args.trace.suffix not in PERFETTO_SUFFIXES:
            _fail(f"--trace {args.trace}: expected a name that ends in {' or '.join(PERFETTO_SUFFIXES)}", _USAGE_ERROR)
        if importlib.util.find_spec("perfetto") is None:
            _fail("--trace needs the package perfetto; run: pip install 'disc-compiler[viewers]'")
    for path in (args.output, args.header, args.trace, args.weights if args.weights != "embed" else None):
        if path in (None, "-"):
            continue
        if not str(path):
            _fail("a file's name is empty", _USAGE_ERROR)
        if Path(path).is_dir():
            _fail(f"{path} is a folder")
        if not (folder := Path(path).absolute().parent).is_dir():
            _fail(f"{path}: there is no folder {folder}")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def load_model(path: Path) -> ExportedProgram | Path:
    """The exported program in a file; the path of an ONNX file, which is read later."""
    if path.suffix == ".onnx":
        try:
            path.open("rb").close()
        except OSError as error:
            _fail(text.reason(error))
        return path
    try:
        with open(path, "rb"):
            is_archive = zipfile.is_zipfile(path)
    except OSError as error:
        _fail(text.reason(error))
    except zipfile.BadZipFile:
        is_archive = False
    wanted = "torch.export.save writes them"
    if not is_archive:
        _fail(f"{path} is not an exported program ({wanted})")
    try:
        import torch
    except ImportError as error:
        _fail(f"{error}; compiling needs torch")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()]
    except Exception as error:  # Damage is found in many places, as many kinds of exception.
        _fail(f"{path} is not an exported program ({wanted}): the archive is damaged: {error}")
    if not any(name.startswith("models/") for name in names) and "data.pkl" not in names:
        _fail(f"{path} is not an exported program ({wanted})")
    if "data.pkl" in names:
        what = "a TorchScript program" if any(name.startswith("code/") for name in names) else "a file of torch.save"
        _fail(f"{path} is not an exported program but {what} (torch.export.save writes exported programs)")
    try:
        with open(path, "rb") as file:
            return torch.export.load(file)
    except Exception as error:  # A damaged file, or one of another version, raises many kinds of exception.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        _fail(f"{path} is not an exported program that torch {torch.__version__} reads ({wanted}): {lines[0]}")


def _ranges(items: Sequence[str]) -> dict[str, Any]:
    """The ranges and sizes that --dims sets for an ONNX model."""
    from torch.export import Dim

    ranges: dict[str, Any] = {}
    for item in items:
        name, _, bounds = item.partition("=")
        low, colon, high = bounds.partition(":")
        if not name or not low.isdecimal() or (high and not high.isdecimal()) or bool(high) != bool(colon):
            _fail(f"--dims {item}: expected NAME=NUMBER or NAME=MIN:MAX", _USAGE_ERROR)
        if not colon:
            ranges[name] = int(low)
        elif int(low) >= int(high):
            _fail(f"--dims {item}: the range is empty", _USAGE_ERROR)
        else:
            ranges[name] = Dim(name if name.isidentifier() else "_", min=int(low), max=int(high))
    return ranges


def _named_dims(program: ExportedProgram, items: Sequence[str]) -> Any:
    """The value of --dims as ``dynamic_shapes`` of the program."""
    from ..torch_compat import pytree

    names = list(program.graph_signature.user_inputs)
    specs: list[dict[int, str] | None] = [None] * len(names)
    for item in items:
        name, _, dims = item.partition("=")
        if name not in names:
            _fail(f"--dims {item}: the inputs are {', '.join(map(str, names))}", _USAGE_ERROR)
        given = {i: dim.strip() for i, dim in enumerate(dims.split(",")) if dim.strip()}
        for dim in given.values():
            if not dim.isidentifier():
                _fail(f"--dims {item}: {dim!r} is not a name; use letters, digits and _", _USAGE_ERROR)
        specs[names.index(name)] = given
    assert program.call_spec.in_spec is not None
    args, kwargs = pytree.tree_unflatten(specs, program.call_spec.in_spec)
    return (*args, *kwargs.values())


def _compile(args: argparse.Namespace, program: ExportedProgram | Path, options: Options) -> None:
    from .. import aot_compile
    from ..viewers import perfetto

    if args.name is None:
        stem = Path(args.output).stem.removeprefix("lib") if args.output else args.model.stem
        args.name = c_identifier(stem)
    output = Path(args.output or _default_output(args))
    output.parent.mkdir(parents=True, exist_ok=True)
    weights = args.weights
    if weights != "embed" and not os.path.dirname(weights):
        weights = output.parent / weights
    artifact = aot_compile(
        program,
        dynamic_shapes=args.dynamic_shapes,
        output=output,
        header=args.header,
        prefix=args.prefix,
        name=args.name,
        weights=weights,
        packed=args.packed,
        target=args.target[0] if len(args.target) == 1 else args.target,
        cpu=args.cpu,
        emit=args.emit,
        options=options,
    )
    if args.trace is not None:
        perfetto.save_spans(args.name, artifact.timeline, args.trace)
    if not args.quiet:
        print(_report(artifact, args))
    if args.explain:
        print(artifact.decisions)


def _default_output(args: argparse.Namespace) -> Path:
    suffix = _SUFFIXES[args.emit]
    file = f"lib{args.name}{suffix}" if args.emit in ("shared", "static") else f"{args.name}{suffix}"
    return args.prefix / "lib" / file if args.prefix else Path(file)


def _report(artifact: Artifact, args: argparse.Namespace) -> str:
    """The files that were written, their sizes, and the time of each step."""
    files = [("library", artifact.path)]
    files += [(what, path) for what, path in (("weights", artifact.weights), ("header", artifact.header)) if path]
    rows = [(what, str(path), text.size(Path(path).stat().st_size)) for what, path in files if Path(path).is_file()]
    parts = [text.columns(rows, right=[2])]
    if args.prefix:
        parts.append(f"  installed to {args.prefix}")
    facts = [("for", ", ".join(map(str, artifact.variants)))]
    facts += [("input", str(spec)) for spec in artifact.interface.inputs]
    facts += [("output", str(spec)) for spec in artifact.interface.outputs]
    facts += [("symbol", str(spec)) for spec in artifact.interface.symbols]
    parts.append(text.columns(facts))
    phases = [(name, text.seconds(value)) for name, value in artifact.timings.items()]
    phases.append(("total", text.seconds(sum(artifact.timings.values()))))
    parts.append(text.columns(phases, right=[1]))
    return "\n".join(parts)


def _write_ir(args: argparse.Namespace, program: ExportedProgram | Path, options: Options) -> None:
    from dataclasses import replace

    from .. import compile
    from ..aot import resolve
    from ..viewers import perfetto

    target, (cpu,) = resolve(args.target, args.cpu)
    options = replace(options, target=target, cpu=None if cpu == "host" else cpu)
    model = compile(program, dynamic_shapes=args.dynamic_shapes, options=options)
    if args.trace is not None:
        perfetto.save_spans(args.model.stem, model.timeline, args.trace)
    ir = model.ir(args.compile_to)
    if args.output in (None, "-"):
        sys.stdout.write(ir)
        sys.stdout.flush()
    else:
        Path(args.output).write_text(ir, encoding="utf-8")


def _fail(message: str, status: int = _COMPILE_ERROR) -> NoReturn:
    text.fail(message, status)


if __name__ == "__main__":
    sys.exit(main())
