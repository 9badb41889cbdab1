"""``disc report``: one HTML page about where the time and the memory of a model go."""

from __future__ import annotations

import warnings
from pathlib import Path

import click

from . import commands, text

_EXAMPLES = """\
disc report minilm.pt2 --dims input_ids=batch,length batch=8,length=64 -o report.html
disc report model.onnx batch=1 batch=32
disc report model.disc --eager model.pt2
"""


@click.command(
    "report",
    cls=commands.Command,
    short_help="Write a page on time by source line, kernels, memory and accuracy.",
    examples=_EXAMPLES,
)
@click.argument("model", metavar="MODEL.pt2|.onnx|.disc", type=click.Path(path_type=Path))
@click.argument("shapes", metavar="[SYMBOL=VALUE,...]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The page; by default the model's name with .html.",
)
@click.option("--dims", metavar="INPUT=NAME,...", multiple=True, help="Names of dynamic dims, as for disc compile.")
@click.option(
    "--eager", metavar="MODEL.pt2", type=click.Path(path_type=Path), help="Compare a saved model with this one."
)
@click.option(
    "--accuracy/--no-accuracy",
    default=True,
    show_default=True,
    help="Compare results with eager PyTorch, which takes a copy of the module in float64.",
)
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads of one call (default: all cores).")
@click.option("--calls", type=click.IntRange(1), default=10, show_default=True, help="Calls to measure at each shape.")
@click.option(
    "--high",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Integer inputs are from 0 to HIGH-1, if the file has no example inputs.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random inputs.")
@commands.version_option
def command(
    model: Path,
    shapes: tuple[str, ...],
    output: Path | None,
    dims: tuple[str, ...],
    eager: Path | None,
    accuracy: bool,
    threads: int | None,
    calls: int,
    high: int,
    seed: int,
) -> None:
    """Measure a model and write an HTML page about it: one file, which loads nothing from elsewhere.

    The page shows the time of each line of the source, the kernels beside the limits of this machine, the memory of
    temporaries, dynamic sizes and guards, operations that PyTorch runs, and the errors against eager PyTorch. Lines,
    kernels and memory are those of the first shape. A shape is a list SYMBOL=VALUE,...; symbols that it does not name
    have the size of the example inputs in the file, or 16. What model.save wrote can be given, too.

    Needs: pip install 'disc-compiler[report]'
    """
    from ..errors import UnsupportedOpError
    from ..reporting import write
    from ..reporting.calls import calls_for
    from ..reporting.facts import gather
    from ..reporting.page import check_packages
    from .compile import compile_errors
    from .model_files import call_errors, eager_module, open_model, parse_sizes

    try:
        check_packages()
    except ImportError as error:
        text.fail(str(error))
    sizes = [parse_sizes([item for item in shape.split(",") if item]) for shape in shapes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        with compile_errors():
            try:
                opened = open_model(model, dims, threads=threads)
            except UnsupportedOpError:
                if model.suffix == ".onnx":
                    raise
                opened = open_model(model, dims, threads=threads, fallback=True)
            reference = opened.reference if eager is None else eager_module(eager)
    if eager is not None and opened.reference is not None:
        text.fail(f"--eager is for a saved model, and {model} has its module", text.USAGE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            wanted = calls_for(opened.model, None, sizes or [{}], opened.example, high=high, seed=seed)
            found = gather(
                opened.model, wanted, title=model.name, reference=reference, accuracy=accuracy, repeats=calls
            )
    except (ValueError, TypeError, IndexError, RuntimeError, MemoryError) as error:
        text.fail(call_errors(error))
    try:
        written = write(found, output or Path(f"{model.stem}.html"))
    except OSError as error:
        text.fail(text.reason(error))
    click.echo(str(written))
