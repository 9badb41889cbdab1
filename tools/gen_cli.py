#!/usr/bin/env python3
"""Writes docs/api/cli.md: the command ``disc`` and the help of each of its subcommands.

The page is checked in; `--check` fails when it is stale.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/api/cli.md"

_INTRODUCTION = """\
<!-- Generated from python/disc/cli by `make docs`; edit that. -->
# Command line

`disc-compile`, `disc-run` and `disc-opt` are short for `disc compile`, `disc run` and `disc opt`.
`python -m disc.cli.main` runs `disc` if it is not on the PATH. The program `disc-call`, for machines without Python, is
described in [Deployment](../howto/deployment.md#run-it-from-the-command-line).

| command | does |
|---|---|
"""


def page() -> str:
    """The whole page."""
    sys.path.insert(0, str(ROOT / "python"))
    import click

    names = importlib.import_module("disc.cli.main")._SUBCOMMANDS
    commands = {name: importlib.import_module(f"disc.cli.{name}").command for name in names}
    lines = [_INTRODUCTION.rstrip("\n")]
    lines += [f"| [`disc {name}`](#disc-{name}) | {summary(command)} |" for name, command in commands.items()]
    for name, command in commands.items():
        context = click.Context(command, info_name=f"disc {name}", terminal_width=100, max_content_width=100)
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        lines += ["", f"## disc {name}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"


def summary(command: object) -> str:
    """The first sentence of a command's help."""
    text = (getattr(command, "help", None) or "").strip().partition("\n\n")[0]
    return " ".join(text.split()).replace("|", r"\|")


def main() -> int:
    """Writes the page, or compares it with what is checked in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is stale")
    text = page()
    if parser.parse_args().check:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
        if stale:
            print(f"{PAGE.relative_to(ROOT)} is stale: run `make docs` and commit the result")
        return int(stale)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
