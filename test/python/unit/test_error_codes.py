"""Every kind of error has a code and a page; texts say what happened, where, and what to do."""

import pickle
import re
from pathlib import Path

import pytest
import torch

import disc
from disc import errors
from error_examples import Unpicklable, examples, kinds

PAGES = Path(__file__).resolve().parents[3] / "docs" / "errors"


def test_every_code_has_a_page_and_every_page_a_code():
    assert {path.stem for path in PAGES.glob("DISC*.md")} == set(errors.CODES)
    index = (PAGES / "index.md").read_text()
    for code, title in errors.CODES.items():
        page = (PAGES / f"{code}.md").read_text()
        assert page.startswith(f"# {code}: {title}\n")
        assert "\n## Example\n" in page and "\n## What to do\n" in page
        assert f"[{code}]({code}.md) | {title}" in index


def test_every_class_has_a_code_of_its_own():
    codes = [kind.code for kind in kinds() if kind is not errors.ArgumentError and kind is not errors.ArgumentTypeError]
    assert len(codes) == len(set(codes))
    assert {kind.code for kind in kinds()} == set(errors.CODES)
    assert not [kind for kind in kinds() if kind.__name__.startswith("_") or kind.__module__ != "disc.errors"]


def test_codes_are_in_the_texts():
    assert str(errors.ModelError("import", "no", "m.py:1", KeyError(), help="do")) == (
        "DISC0005 [import] no\n  at m.py:1\n  help: do"
    )
    error = errors.ShapeError("too long", input="x")
    assert str(error) == "too long (DISC0101)"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


class Wrong(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(24, 8)

    def forward(self, x):
        return self.linear(x).relu()  # the user's line


def test_a_size_bug_shows_the_users_line_alone():
    with pytest.raises(errors.ModelError, match=r"reduction dim, but got \[8, 25\]") as caught:
        disc.compile(Wrong(), torch.randn(8, 25))
    text = str(caught.value)
    assert re.search(r"at .*test_error_codes.py:\d+\n    return self.linear\(x\).relu\(\)  # the user's line", text)
    assert "without disc" in text.splitlines()[-1]
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert isinstance(caught.value.error, RuntimeError)


def test_an_example_outside_of_the_range():
    with pytest.raises(ValueError, match=r'x, dim 0 is 8 in the example, outside of Dim\("n", min=10\) \(DISC0202\)'):
        disc.compile(Wrong(), torch.randn(8, 24), dynamic_shapes=({0: torch.export.Dim("n", min=10)},))


@pytest.mark.parametrize(
    "call",
    [
        lambda: disc.Options(threads="two"),
        lambda: disc.Options(threads=-1),
        lambda: disc.Options(opt_level=9),
        lambda: disc.Options(stop_after="foo"),
        lambda: disc.Options(precision="f16"),
        lambda: disc.Options(code_cache=3),
        lambda: disc.Options(pipeline=()),
        lambda: disc.compile(Wrong(), torch.randn(8, 24), target="foo"),
        lambda: disc.compile(Wrong(), torch.randn(8, 24), target="cuda-emulated:foo"),
        lambda: disc.aot_compile(Wrong(), torch.randn(8, 24), output="x.so", emit="foo"),
    ],
)
def test_wrong_settings_have_a_code(call):
    with pytest.raises((TypeError, ValueError), match=r" \(DISC020[12]\)$") as caught:
        call()
    assert caught.value.code in ("DISC0201", "DISC0202")


def test_an_index_out_of_range_has_a_code(tmp_path):
    table = torch.nn.Embedding(50, 4)
    model = disc.compile(table, (torch.tensor([1, 2]),), dynamic_shapes="auto")
    model.save(tmp_path / "table.disc")
    for run in (model, disc.load(tmp_path / "table.disc"), torch.compile(table, backend="disc")):
        with pytest.raises(IndexError, match=r"embedding.*: index 50 is out of range .* \(DISC0107\)$"):
            run(torch.tensor([50, 1, 3]))
        torch.testing.assert_close(run(torch.tensor([4, 5])), table(torch.tensor([4, 5])))


@pytest.mark.parametrize("error", examples(), ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error):
    """Class, text, code and attributes: what another process raises is what the user sees."""
    error.__notes__ = ["a note"]
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert (str(found), found.args, found.code) == (str(error), error.args, error.code)
    assert str(pickle.loads(pickle.dumps(found))) == str(error)
    for name, value in vars(error).items():
        if name not in ("traced", "error"):
            assert getattr(found, name) == value
    if getattr(error, "error", None) is not None:
        expected = RuntimeError if isinstance(error.error, Unpicklable) else type(error.error)
        assert type(found.error) is expected
        assert str(error.error) in str(found.error)
    if isinstance(error, errors.FixedSizeError):
        assert error.traced is not None and found.traced is None


def test_the_source_of_a_pickled_error_is_not_read_again(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("x = y + 1\n")
    error = errors.ControlFlowError("import", "no", f"{file}:1")
    assert "x = y + 1" in str(error)
    data = pickle.dumps(error)
    file.unlink()
    assert str(pickle.loads(data)) == str(error)
