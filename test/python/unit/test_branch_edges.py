"""The counters of branch edges, on a program whose ways are known."""

import pytest
import torch

from branch_edges import Edges, Margins

SOURCE = """
def f(n, stop, static=3):
    found = []
    for i in range(static):
        if i == 1:
            continue
        if n > 10 and stop:
            found.append(i)
    while n > 0 and len(found) < 5:
        n -= 1
        if n == stop:
            break
        found.append(n)
    return found if n else None
"""


def test_shares(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(SOURCE)
    edges = Edges(path)
    edges.module.f(2, 5)
    edges.module.f(11, 0)
    edges.module.f(4, 2)
    edges.module.f(0, 1)
    assert edges.shares() == {
        # `i == 1` follows from the step, and says nothing.
        "7: n > 10": (6 / 8, 2 / 8),
        "7: stop": (1.0, 0.0),
        # What leaves the loop, of its four runs.
        "9: n > 0": (2 / 4, 2 / 4),
        "9: len(found) < 5": (1 / 4, 3 / 4),
        "11: n == stop": (3 / 4, 1 / 4),
        "14: n": (2 / 4, 2 / 4),
    }
    edges.reset()
    assert set(edges.shares().values()) == {(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)}


def test_margins():
    x = torch.tensor([0.5, 0.25, -1.0])
    with Margins() as margins:
        assert (x > 0).any()
    assert margins.least == pytest.approx(0.25)
    with Margins() as margins:
        x.argmax()
        x.topk(1)
    assert margins.least == pytest.approx(0.25)
    with Margins() as margins:
        x.topk(2)
        torch.tensor([4, 4]).argmax()
        assert x.max() > 0
    assert margins.least == pytest.approx(0.25)
