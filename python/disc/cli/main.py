"""The command ``disc``, and the entry points of ``disc-compile``, ``disc-run`` and ``disc-opt``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import NoReturn

_SUBCOMMANDS = ("compile", "run", "bench", "explain", "report", "opt", "doctor", "completion")
"""Each is a module of this package with a ``command``; the runtime's own distribution has some of them only."""

_EXAMPLES = """\
disc compile minilm.pt2 -o libminilm.so      # what torch.export.save wrote, or an ONNX file, to a library
disc run libminilm.so batch=8 length=64      # on random inputs
disc bench minilm.pt2 batch=1,length=16 batch=8,length=128
disc explain minilm.pt2                      # what is dynamic, what falls back, which lines are slow
disc report minilm.pt2 -o report.html        # time by line, kernels, memory and accuracy on one page
disc doctor                                  # whether this machine is set up well
eval "$(disc completion bash)"               # complete subcommands and options with the Tab key
"""


def _click() -> None:
    """Ends the process if click is missing, as in an installation of the runtime alone."""
    if importlib.util.find_spec("click") is None:
        print(
            "disc: error: the commands need click; run: pip install 'disc-compiler-runtime[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs ``disc``; returns its exit status."""
    _click()
    import click

    from ..suggestions import nearest
    from . import commands

    class Group(click.Group):
        """Subcommands that are imported when they are used."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            return [name for name in _SUBCOMMANDS if importlib.util.find_spec(f"{__package__}.{name}")]

        def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
            if name not in self.list_commands(ctx):
                return None
            command: click.Command = importlib.import_module(f".{name}", __package__).command
            return command

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
                near = nearest(args[0], self.list_commands(ctx))
                if near:
                    ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
            return super().resolve_command(ctx, args)

        def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            formatter.write("\nExamples:\n")
            for line in _EXAMPLES.splitlines():
                formatter.write(f"  {line}\n")

    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

    @click.group(cls=Group, name="disc", context_settings=settings, invoke_without_command=True)
    @commands.version_option
    @click.pass_context
    def group(ctx: click.Context) -> None:
        """DISC compiles PyTorch and ONNX models once, for all shapes, to native code."""
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())

    return commands.run(group, "disc", arguments)


def _alias(subcommand: str) -> NoReturn:
    _click()
    from . import commands

    command = importlib.import_module(f".{subcommand}", __package__).command
    sys.exit(commands.run(command, f"disc-{subcommand}"))


def compile_main() -> NoReturn:
    """Runs ``disc-compile``."""
    _alias("compile")


def run_main() -> NoReturn:
    """Runs ``disc-run``."""
    _alias("run")


def opt_main() -> NoReturn:
    """Runs ``disc-opt``."""
    _alias("opt")


if __name__ == "__main__":
    sys.exit(main())
