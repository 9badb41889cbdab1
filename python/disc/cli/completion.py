"""``disc completion``: the script with which a shell completes subcommands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from . import commands, text


@click.command(
    "completion",
    cls=commands.Command,
    short_help="Print the script that completes commands in a shell.",
    examples="""\
eval "$(disc completion bash)"        # in ~/.bashrc
eval "$(disc completion zsh)"         # in ~/.zshrc
disc completion fish > ~/.config/fish/completions/disc.fish
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes subcommands and options in a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        text.fail(f"click has no completion for {shell}")
    root = ctx.find_root().command
    click.echo(kind(root, {}, "disc", "_DISC_COMPLETE").source())
