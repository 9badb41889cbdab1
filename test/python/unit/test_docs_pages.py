"""The pages of the documentation: their code runs, their links lead somewhere, their commands exist."""

import contextlib
import importlib
import io
import linecache
import logging
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

import check_docs
import disc
from doc_pages import ROOT, Block, blocks, pages

pytestmark = pytest.mark.share(3)

HAND_WRITTEN = [page for page in pages() if not page.is_relative_to(ROOT / "docs/reference")]
TEXTS = {page: page.read_text(encoding="utf-8") for page in HAND_WRITTEN}
MOST_ILLUSTRATIVE = 5
"""How many blocks of all pages need not run. Another one needs a reason that is better than the first one's."""

# Pages with a test of their own: test_adding_a_target.py, test_backend_examples.py; test_ray.py, which has a cluster.
FOLLOWED_ELSEWHERE = {ROOT / f"docs/{page}.md" for page in ("howto/adding-a-target", "adding-a-backend", "howto/ray")}


def python_blocks(page: Path) -> list[Block]:
    return [b for b in blocks(TEXTS[page]) if b.language == "python" and not b.marker.startswith("illustrative")]


ERRORS = ROOT / "docs/errors"
"""Pages whose code raises the error that they are about."""


def runnable() -> list[Path]:
    return [
        page
        for page in HAND_WRITTEN
        if python_blocks(page) and page not in FOLLOWED_ELSEWHERE and page.parent != ERRORS
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, quiet):
    """All of its Python as one module, whose lines have the page's numbers, in a folder with its titled blocks."""
    monkeypatch.chdir(tmp_path)
    lines = [""] * (TEXTS[page].count("\n") + 2)
    consoles = []
    for block in blocks(TEXTS[page]):
        if block.title:
            Path(block.title).write_text(block.code, encoding="utf-8")
        if block.language == "python" and applies(block):
            lines[block.line - 1 : block.line - 1 + block.code.count("\n")] = block.code.splitlines()
        elif block.marker == "run":
            lines[block.line - 1] = f"run_console({len(consoles)})"
            consoles.append(block)
    # A file: models are traced by their source.
    file = tmp_path / f"{page.stem.replace('-', '_')}_page.py"
    file.write_text("\n".join(lines), encoding="utf-8")
    linecache.checkcache(str(file))
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    module.run_console = lambda number: run_console(consoles[number])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile("\n".join(lines), str(file), "exec"), module.__dict__)


@pytest.mark.parametrize(
    "page", [p for p in HAND_WRITTEN if p.parent == ERRORS and python_blocks(p)], ids=lambda page: page.stem
)
def test_the_code_of_an_error_page_raises_it(page, tmp_path):
    file = tmp_path / "page.py"
    file.write_text("\n".join(block.code for block in python_blocks(page)), encoding="utf-8")
    linecache.checkcache(str(file))
    with pytest.raises(Exception) as caught:
        exec(compile(file.read_text(), str(file), "exec"), {"torch": torch, "disc": disc, "__name__": "page"})
    assert caught.value.code == page.stem


@pytest.fixture
def quiet():
    """Puts back what a page may change for the whole process."""
    loggers = [logging.getLogger(name) for name in ("disc", "disc.dynamo")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def applies(block: Block) -> bool:
    """Whether a block is run: it is no illustration, and this version has what it needs."""
    kind, _, what = block.marker.partition(" ")
    return kind != "illustrative:" and (kind != "needs" or what.removeprefix("disc.") in disc.__all__)


def run_console(block: Block) -> None:
    """Runs the lines of a console block that begin with ``$``."""
    commands = [line[2:] for line in block.code.splitlines() if line.startswith("$ ")]
    functions = [f'disc-{name}() {{ "{sys.executable}" -m disc.cli.{name} "$@"; }}' for name in ("compile", "run")]
    script = "\n".join(["set -euo pipefail", *functions, *commands])
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{script}\n{result.stdout}{result.stderr}"


def test_few_blocks_are_illustrative():
    found = [
        f"{p.name}:{b.line}" for p in HAND_WRITTEN for b in blocks(TEXTS[p]) if b.marker.startswith("illustrative")
    ]
    assert len(found) <= MOST_ILLUSTRATIVE, found


@pytest.mark.parametrize(
    "check", [check_docs.link_mistakes, check_docs.form_mistakes], ids=lambda check: check.__name__
)
def test_links_and_form(check):
    assert [mistake for page in pages() for mistake in check(page)] == []


def test_navigation():
    assert list(check_docs.navigation_mistakes()) == []


def test_pages_that_code_names_exist():
    assert list(check_docs.reference_mistakes()) == []


def test_broken_links_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# A `page`, here\n[a](#a-page-here) [b](#b) [c](none.md) [d](page.md#a-page-here)\n```\n[e](e.md)\n```\n"
    )
    assert list(check_docs.link_mistakes(page)) == [
        "page.md:2: #b: no such heading",
        "page.md:2: none.md: no such file",
    ]


def options(command: str) -> set[str] | None:
    """The options of ``disc compile``, ``disc-run``, ...; None if there is no such command."""
    name = re.fullmatch(r"disc[ -](\w+)", command)[1]
    try:
        module = importlib.import_module(f"disc.cli.{name}")
    except ModuleNotFoundError:
        return None
    if hasattr(module, "_parser"):
        return set(module._parser()._option_string_actions)
    listed = [option for p in module.command.params for option in (*p.opts, *p.secondary_opts)]
    return {*listed, "-h", "--help"}


def commands() -> list[tuple[str, str]]:
    """Where a command is, and the command: lines of console blocks, and of blocks without a language."""
    found = []
    for page in HAND_WRITTEN:
        for block in blocks(TEXTS[page]):
            if block.language not in ("", "console", "bash"):
                continue
            for number, line in enumerate(block.code.splitlines(), block.line):
                command = re.sub(r"\s#.*", "", line.removeprefix("$ ")).strip()
                if re.match(r"(disc |disc-(compile|run)\b|make\b)", command):
                    found.append((f"{page.relative_to(ROOT)}:{number}", command))
    return found


def test_commands_exist():
    """Options of DISC's commands, and targets of make."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    mistakes = []
    for where, command in commands():
        words = shlex.split(command)
        if words[0] == "make":
            names = [word for word in words[1:] if "=" not in word]
            mistakes += [f"{where}: make {name}: no such target" for name in names if name not in targets]
            continue
        name, rest = (words[0], words[1:]) if words[0] != "disc" else (" ".join(words[:2]), words[2:])
        known = options(name)
        if known is None:
            mistakes.append(f"{where}: no command {name}")
            continue
        given = [word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"]
        # Passes are options of disc opt.
        passes = name.endswith("opt")
        mistakes += [f"{where}: {name} has no option {o}" for o in given if o not in known and not passes]
    assert commands()
    assert mistakes == []
