"""How a command runs: its errors become one line and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from . import text


class Command(click.Command):
    """A command whose help ends in examples, which are printed as they are."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 110})
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, then the exit status."""
        if self.examples:
            formatter.write("\nExamples:\n")
            for line in self.examples.strip("\n").splitlines():
                formatter.write(f"  {line}\n" if line else "\n")
        formatter.write("\nExit status: 0; 1 if the work failed; 2 if the command line is wrong.\n")


def complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The targets whose names begin so, for the shell."""
    from .. import targets

    return [name for name in targets.names() if name.startswith(incomplete)]


def version_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--version``."""
    return click.version_option(version=text.version(), message="%(version)s")(function)


def run(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> int:
    """Runs a command; prints its errors and returns its exit status."""
    try:
        result = command.main(
            args=None if arguments is None else list(arguments), prog_name=name, standalone_mode=False
        )
        return result if isinstance(result, int) else 0
    except text.CommandError as error:
        print(f"{_subcommand(command, name, arguments)}: error: {error}", file=sys.stderr)
        return error.status
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else name
        print(f"{path}: error: {error.format_message()} (see {path} --help)", file=sys.stderr)
        return text.USAGE
    except click.ClickException as error:
        print(f"{name}: error: {error.format_message()}", file=sys.stderr)
        return text.FAILURE
    except (click.Abort, KeyboardInterrupt):
        return text.INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return text.FAILURE


def _subcommand(command: click.Command, name: str, arguments: Sequence[str] | None) -> str:
    """What the user typed to reach the command that failed."""
    given = sys.argv[1:] if arguments is None else arguments
    if isinstance(command, click.Group):
        return " ".join([name, *[word for word in given if word in command.list_commands(click.Context(command))][:1]])
    return name
