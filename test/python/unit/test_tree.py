"""What the tree promises about itself: tests for every pass and every numbered constraint, files of readable length."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIT = "\n".join(p.read_text() for p in sorted((ROOT / "test/lit").rglob("*.mlir")))
PASSES = sorted(
    name
    for file in ROOT.glob("lib/*/*/Passes.td")
    for name in re.findall(r'^def \w+ : \w*Pass<"([^"]+)"', file.read_text(), re.MULTILINE)
)
CONSTRAINTS = sorted(
    {
        (file.stem, label)
        for file in ROOT.glob("dialects/*/*.td")
        for label in re.findall(r"^\s+\(([A-Z]\d+)\)", file.read_text(), re.MULTILINE)
    }
)


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_has_a_lit_test(name):
    assert re.search(rf"RUN:.*\b{re.escape(name)}\b", LIT), f"no RUN line under test/lit names {name}"


@pytest.mark.parametrize(("dialect", "label"), CONSTRAINTS, ids=lambda value: value)
def test_every_constraint_is_named_in_a_lit_test(dialect, label):
    assert re.search(rf"\({label}\)", LIT), f"({label}) of {dialect}.td has no test under test/lit"


def test_files_are_of_readable_length():
    too_long = {}
    for pattern in ("**/*.cpp", "**/*.h", "**/*.td", "**/*.py"):
        for top in ("lib", "dialects", "python", "tools", "test", "examples"):
            for file in (ROOT / top).glob(pattern):
                if (lines := len(file.read_text().splitlines())) > 800:
                    too_long[str(file.relative_to(ROOT))] = lines
    assert not too_long
