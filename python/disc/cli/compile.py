"""``disc-compile``: a library that C, C++ and Python programs use, from an exported or an ONNX model."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .. import __version__, pipeline
from ..errors import CompileError
from ..header import c_identifier
from ..options import Options
from . import text

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ..aot import Artifact

_COMMAND = "disc-compile"
_COMPILE_ERROR = 1
_USAGE_ERROR = 2
_SUFFIXES = {"shared": ".so", "static": ".a", "obj": ".o", "llvm": ".ll", "asm": ".s"}

_DESCRIPTION = "Compiles an exported PyTorch model, or an ONNX one, ahead of time into a library for C, C++ and Python."
_EPILOG = """\
The model is exported in Python, with its dynamic dims:

  program = disc.export(module, args, dynamic_shapes=...)
  torch.export.save(program, "model.pt2")

torch.export.export does, too, for models without recurrent layers and without branches or loops on data.

The dynamic dims of an ONNX model are its dim_params.

examples:
  disc-compile minilm.pt2 -o libminilm.so --header minilm.h
  disc-compile minilm.pt2 --prefix /opt/minilm --cpu x86-64-v4,x86-64-v3 --weights minilm.safetensors
  disc-compile minilm.pt2 --target aarch64-linux-gnu --cpu cortex-a76 -o libminilm.so
  disc-compile minilm.onnx --dims batch=1:64 -o libminilm.so
  disc-compile minilm.pt2 --compile-to fusion -o -

exit status: 0; 1 if the model cannot be compiled or a file not be written; 2 if the command line is wrong.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_COMMAND, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", metavar="MODEL.pt2|.onnx", type=Path, help="what torch.export.save wrote, or an ONNX model")
    add("-o", "--output", metavar="FILE", help="by default libNAME.so, libNAME.a, NAME.o, .ll or .s, as --emit says")
    add("--header", metavar="FILE", type=Path, help="write the C header of the model")
    add(
        "--prefix", metavar="DIR", type=Path, help="install library, headers, CMake and pkg-config files to this folder"
    )
    add("--name", help="the library's name in C, disc_library_NAME; by default that of the output or the model")
    add(
        "--dims",
        metavar="INPUT=NAME,...",
        action="append",
        default=[],
        help="names of the dynamic dims of an input, which the file does not have (static ones are left empty): "
        "--dims ids=batch,length; of an ONNX model, which has names, the range or number of one: batch=1:64",
    )
    add(
        "--weights",
        metavar="FILE|embed",
        default="embed",
        help="a safetensors file to write the weights to, beside the library, where it looks for them; embed (the "
        "default): in the library",
    )
    add(
        "--packed",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="store the weights also as the code wants them, so that loading computes nothing (the default)",
    )
    add(
        "--target",
        metavar="MACHINE",
        default="host",
        help="the machine: host, aarch64-linux-gnu, arm-linux-gnueabihf; or what --cpu says, for those like this one",
    )
    add(
        "--cpu",
        metavar="CPU[,CPU...]",
        help="kinds of CPU: x86-64-v3, cortex-a76, neoverse-v1+sve256, ... or host; of several the best is chosen at "
        "load",
    )
    add("--emit", choices=_SUFFIXES, default="shared", help="what to write (default: %(default)s)")
    add("--opt-level", type=int, choices=range(4), default=3, help="LLVM's optimisation level (default: %(default)s)")
    add(
        "--precision",
        choices=("f32", "bf16"),
        default="f32",
        help="bf16: keep the f32 weights of products as bf16 (default: %(default)s)",
    )
    add(
        "--winograd",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="3 x 3 convolutions in fewer multiplications where that is faster (the default)",
    )
    add(
        "--sanitize",
        action="store_true",
        help="check every memory access while the model runs, to find bugs in DISC (slow)",
    )
    add("--dump-ir", metavar="DIR", type=Path, help="write the IR after each stage, and LLVM IR and assembly")
    stages = (pipeline.IMPORT, *pipeline.default().names)
    add("--compile-to", metavar="STAGE", choices=stages, help=f"only write the IR after a stage: {', '.join(stages)}")
    noise = parser.add_mutually_exclusive_group()
    noise.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    noise.add_argument("-v", "--verbose", action="store_true", help="show progress also in files, and torch's own logs")
    add("--version", action="version", version=f"disc {__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = _parser().parse_args(argv)
    try:
        # Both are about torch's own code, not the user's.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            return _run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _COMPILE_ERROR


def _run(args: argparse.Namespace) -> int:
    _check(args)
    if not args.verbose:
        # It logs what it raises.
        logging.getLogger("torch.export").setLevel(logging.CRITICAL)
    program = _load(args.model)
    args.dynamic_shapes = None
    if args.dims:
        args.dynamic_shapes = _ranges(args.dims) if isinstance(program, Path) else _named_dims(program, args.dims)
    options = Options(
        opt_level=args.opt_level,
        precision=args.precision,
        winograd=args.winograd,
        sanitize=args.sanitize,
        dump_ir=args.dump_ir,
        progress=False if args.quiet else True if args.verbose else None,
        stop_after=args.compile_to,
    )
    try:
        if args.compile_to is not None:
            _write_ir(args, program, options)
        else:
            _compile(args, program, options)
    except CompileError as error:
        _fail(str(error))
    except ValueError as error:
        # An option's value that only the compiler knows, such as a kind of CPU.
        _fail(str(error), _USAGE_ERROR)
    except BrokenPipeError:
        raise
    except (ImportError, OSError) as error:
        _fail(_reason(error))
    except MemoryError as error:
        _fail(str(error) or "there is not enough memory")
    return 0


def _check(args: argparse.Namespace) -> None:
    """What can be said before the model is read."""
    if args.compile_to is None and args.output == "-":
        _fail("only IR (--compile-to) can be written to the standard output", _USAGE_ERROR)
    if args.compile_to is not None and (args.prefix or args.header):
        _fail("--compile-to writes IR alone: --prefix and --header have no use", _USAGE_ERROR)
    if args.prefix and args.emit not in ("shared", "static"):
        _fail(f"--prefix installs libraries: --emit {args.emit} is none", _USAGE_ERROR)
    args.target, args.cpu = _names(args.target), None if args.cpu is None else _names(args.cpu)
    for option, names in (("--target", args.target), ("--cpu", args.cpu)):
        if names == []:
            _fail(f"{option} names no kind of CPU", _USAGE_ERROR)
        if args.compile_to is not None and names is not None and len(names) > 1:
            _fail(f"--compile-to takes one {option}", _USAGE_ERROR)
    for path in (args.output, args.header, args.weights if args.weights != "embed" else None):
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


def _load(path: Path) -> ExportedProgram | Path:
    """The exported program in a file; an ONNX file is read later."""
    if path.suffix == ".onnx":
        try:
            path.open("rb").close()
        except OSError as error:
            _fail(_reason(error))
        return path
    try:
        with open(path, "rb"):
            is_archive = zipfile.is_zipfile(path)
    except OSError as error:
        _fail(_reason(error))
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
    except Exception as error:  # Damage is found at many places, and reported as many kinds of exception.
        _fail(f"{path} is not an exported program ({wanted}): the archive is damaged: {error}")
    if not any(name.startswith("models/") for name in names) and "data.pkl" not in names:
        _fail(f"{path} is not an exported program ({wanted})")
    if "data.pkl" in names:
        what = "a TorchScript program" if any(name.startswith("code/") for name in names) else "what torch.save wrote"
        _fail(f"{path} is not an exported program but {what} (torch.export.save writes exported programs)")
    try:
        with open(path, "rb") as file:
            return torch.export.load(file)
    except Exception as error:  # Whatever a file that is damaged, or of another version, makes torch raise.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        _fail(f"{path} is not an exported program that torch {torch.__version__} reads ({wanted}): {lines[0]}")


def _ranges(items: Sequence[str]) -> dict[str, Any]:
    """What --dims says of an ONNX model."""
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
    """What --dims says, as ``dynamic_shapes`` of the program."""
    from torch.utils import _pytree as pytree

    names = list(program.graph_signature.user_inputs)
    specs: list[dict[int, str] | None] = [None] * len(names)
    for item in items:
        name, _, dims = item.partition("=")
        if name not in names:
            _fail(f"--dims {item}: the inputs are {', '.join(map(str, names))}", _USAGE_ERROR)
        given = {i: dim.strip() for i, dim in enumerate(dims.split(",")) if dim.strip()}
        for dim in given.values():
            if not dim.isidentifier():
                _fail(f"--dims {item}: {dim!r} is no name", _USAGE_ERROR)
        specs[names.index(name)] = given
    assert program.call_spec.in_spec is not None
    args, kwargs = pytree.tree_unflatten(specs, program.call_spec.in_spec)
    return (*args, *kwargs.values())


def _compile(args: argparse.Namespace, program: ExportedProgram | Path, options: Options) -> None:
    from .. import aot_compile

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
    if not args.quiet:
        print(_report(artifact, args))


def _default_output(args: argparse.Namespace) -> Path:
    suffix = _SUFFIXES[args.emit]
    file = f"lib{args.name}{suffix}" if args.emit in ("shared", "static") else f"{args.name}{suffix}"
    return args.prefix / "lib" / file if args.prefix else Path(file)


def _report(artifact: Artifact, args: argparse.Namespace) -> str:
    """What was made, of what size, and how long it took."""
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

    target, (cpu,) = resolve(args.target, args.cpu)
    options = replace(options, target=target, cpu=None if cpu == "host" else cpu)
    ir = compile(program, dynamic_shapes=args.dynamic_shapes, options=options).ir(args.compile_to)
    if args.output in (None, "-"):
        sys.stdout.write(ir)
        sys.stdout.flush()
    else:
        Path(args.output).write_text(ir, encoding="utf-8")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _fail(message: str, status: int = _COMPILE_ERROR) -> NoReturn:
    text.fail(_COMMAND, message, status)


if __name__ == "__main__":
    sys.exit(main())
