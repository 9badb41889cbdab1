"""What notebooks and terminals show of models, profiles, memory and pipelines."""

import xml.etree.ElementTree as ElementTree

import pytest
import torch
from torch import nn

import disc
from disc import tables
from disc.profile import Launch


@pytest.fixture(scope="module")
def model():
    rows = torch.export.Dim("rows", min=1, max=64)
    module = nn.Sequential(nn.Linear(4, 8), nn.Softmax(-1), nn.Linear(8, 2)).eval()
    return disc.compile(module, (torch.randn(3, 4),), dynamic_shapes=({0: rows},))


def shown(value):
    """The title, the rows and the note of what a notebook shows; well-formed, and without scripts."""
    root = ElementTree.fromstring(f"<div>{value._repr_html_()}</div>")
    assert root.find(".//script") is None
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    note = root.find(".//small")
    return root.find(".//caption/b").text, rows, "" if note is None else note.text


def test_model(model):
    title, rows, note = shown(model)
    assert title.startswith("disc.Model for cpu")
    assert rows[1:] == [["input", "input", "float32", "[rows, 4]"], ["output", "output_0", "float32", "[rows, 2]"]]
    assert note == "rows: 1 to 64"
    assert str(model).splitlines()[-1].split() == ["rows", "1", "to", "64"]


def test_memory(model):
    use = model.memory(rows=64)
    title, rows, note = shown(use)
    assert title == "Memory of a call" and rows[1][:2] == ["arena", str(use.arena)]
    assert note == f"{len(use.temporaries)} temporaries, {use.in_place} results computed in place"
    assert str(use).splitlines()[1].split() == ["arena", str(use.arena)]


def test_profile():
    launches = [Launch(f"k{i}<x>", "loop", "model.py:1", 0, 1000 * (30 - i), 1) for i in range(25)]
    title, rows, note = shown(disc.Profile(launches))
    assert "25 launches" in title and len(rows) == 21
    assert rows[1][-1] == "k0<x>" and rows[1][0] == "30.0" and note == "and 5 more"


def test_pipeline():
    pipeline = disc.pipeline.default()
    title, rows, _ = shown(pipeline)
    assert title == "Pipeline for cpu" and [row[1] for row in rows[1:]] == list(pipeline.names)


def test_text():
    assert tables.text(("name", "n"), [("a", 5), ("bcdef", 17)], right=(1,)) == "name    n\na       5\nbcdef  17"
    assert [tables.size(n) for n in (1, 1500, 2_000_000, 3 * 10**9)] == ["1 B", "1.50 kB", "2.00 MB", "3.00 GB"]
