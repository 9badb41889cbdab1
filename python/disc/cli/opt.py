"""``disc opt``: passes on IR, by the ``disc-opt`` inside the native module."""

from __future__ import annotations

import os
import sys

import click

from .. import pipeline
from . import commands, text

_HELP_ALL = "--help-all"


def _stages(target: str) -> pipeline.Pipeline:
    try:
        return pipeline.default(target)
    except ValueError as error:
        text.fail(f"--for: {error}", text.USAGE)


def _complete_stages(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    try:
        names = pipeline.default(ctx.params.get("target") or "cpu").names
    except ValueError:
        return []
    return [name for name in names if name.startswith(incomplete)]


@click.command(
    "opt",
    cls=commands.Command,
    short_help="Run MLIR passes on a file.",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "ignore_unknown_options": True,
        "allow_interspersed_args": True,
    },
    examples="""\
disc compile model.pt2 --compile-to shape -o shape.mlir
disc opt --stage fusion shape.mlir -o fusion.mlir
disc opt --disc-shape-propagate --mlir-print-ir-after-all shape.mlir
disc opt --run-reproducer reproducer.mlir      # a failing compilation names this file
disc opt --passes                              # the passes of each stage
""",
)
@click.option(
    "--stage", metavar="NAME", shell_complete=_complete_stages, help="Run all passes of this stage of the pipeline."
)
@click.option(
    "--for",
    "target",
    metavar="TARGET",
    default="cpu",
    shell_complete=commands.complete_targets,
    help="Whose pipeline --stage is of (default: cpu).",
)
@click.option("--passes", is_flag=True, help="List the stages and their passes.")
@click.option(_HELP_ALL, "help_all", is_flag=True, help="List all options and passes of MLIR (more than 1,000 lines).")
@commands.version_option
@click.argument("arguments", metavar="[OPTIONS OF MLIR] [FILE.mlir]", nargs=-1, type=click.UNPROCESSED)
def command(stage: str | None, target: str, passes: bool, help_all: bool, arguments: tuple[str, ...]) -> int:
    """Run MLIR passes on a file, or on the standard input.

    Takes every option of mlir-opt: -o FILE, --pass-pipeline='builtin.module(...)', --verify-each, --mlir-timing,
    --mlir-print-ir-after-all, and each pass as an option of its own (--canonicalize, --disc-fusion-...).
    """
    if passes:
        for found in _stages(target):
            click.echo(f"{found.name}:\n  " + "\n  ".join(found.passes))
        return 0
    given = ["disc-opt", *arguments]
    if stage is not None:
        stages = _stages(target)
        if stage not in stages.names:
            text.fail(f"--stage {stage}: the stages are {', '.join(stages.names)}", text.USAGE)
        given.append(f"--pass-pipeline={stages[stage].text}")
    if help_all:
        given.append("--help")
    try:
        from .. import _native

        run = _native.opt
    except (ImportError, AttributeError) as error:
        text.fail(f"the compiler is not installed ({error}); run: pip install disc-compiler")
    sys.stdout.flush()
    status: int = run(given)
    sys.stdout.flush()
    # LLVM has shut down in this process; nothing else may run in it.
    os._exit(status)
