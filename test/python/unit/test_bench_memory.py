"""The parts of bench.memory that compile nothing: peaks, fits, comparisons and tables."""

from dataclasses import replace

import pytest
import torch

from bench.memory import models, report
from bench.memory.allocations import highest, peak_of
from bench.memory.ours import bisect
from bench.memory.peers import Checkpointed, Eager, TooLong, limit, peers
from bench.memory.results import At, Budget, Fit, Peer, Plan, Result, differs, load, paired, same_bits


def result():
    at = At([4, 16], 1000, usual=1.0, rounds=7)
    at.plans = [Plan(0, 1000, 0.0, 1000, True, 1.0, 0.0), Plan(2, 500, 0.1, 500, True, 1.1, 0.1)]
    at.budgets = [Budget(0.5, 500, 2, 500, True), Budget(0.4, 400)]
    at.peers = [
        Peer("eager", "eager", 1200, 1100, 2.0),
        Peer("checkpoint", "eager, checkpoints", 600, 500, 3.0),
        Peer("compile_1", "torch.compile, budget 1", failed="no such | op"),
    ]
    made = Result("toy", "Toy", ["batch", "length"], "", "a CPU", "abc", "2026-01-01", "one thread", 2.0)
    made.shapes, made.fit = [at], Fit(1200, "length", 16, 20, 40)
    return made


def test_results_are_read_as_written(tmp_path):
    result().save(tmp_path)
    assert load(tmp_path / "toy.json") == result()


def test_choices():
    at = result().shapes[0]
    assert at.least() == 0.5
    assert at.within(999).plan == 2 and at.within(1000).plan == 0 and at.within(499) is None
    assert at.fastest_within(1200).name == "eager" and at.fastest_within(1000).name == "checkpoint"
    assert at.fastest_within(500) is None


def test_report():
    text = "\n".join(report.markdown([result()]))
    assert "| Toy | 4×16 |" in text and "| 0.50 |" in text
    assert "no such / op" in text
    assert report.findings([result()]) == []
    assert "Toy: broken" in report.findings([replace(result(), failed="broken", shapes=[])])


def test_deviations():
    made = result()
    plan = made.shapes[0].plans[1]
    plan.same, plan.peak, plan.measured = False, 501, 0.2
    found = "\n".join(report.findings([made]))
    assert "not bitwise equal" in found and "above the budget" in found and "overhead +20.0%" in found


@pytest.mark.parametrize(
    ("predicted", "measured", "expected"),
    [(0.3, 0.35, False), (0.3, 0.45, True), (0.01, 0.03, False), (0.1, 0.0, True)],
)
def test_differs(predicted, measured, expected):
    assert differs(predicted, measured) is expected


def test_figures():
    assert highest([5, -2, 4, -7]) == 7 and highest([]) == 0
    assert bisect(lambda size: size <= 37, 100) == 37
    assert bisect(lambda size: True, 100) == 100 and bisect(lambda size: False, 100) == 0
    assert paired([2.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == 2.0


def test_same_bits():
    a = torch.tensor([0.0, float("nan")])
    assert same_bits([a], [a.clone()])
    assert not same_bits([a], [torch.tensor([-0.0, float("nan")])])
    assert not same_bits([a], [a, a])
    assert same_bits([torch.tensor(3)], [torch.tensor(3)])


def test_peak_of_allocations():
    def call():
        a = torch.empty(1000)
        b = torch.empty(500)
        del a
        return b + 1

    assert peak_of(call) == 6000


def test_limit():
    with pytest.raises(TooLong), limit(1):
        while True:
            pass


@pytest.mark.parametrize("name", ("mlp", "lstm", "tree_lstm"))
def test_checkpoints_compute_the_same(name):
    model = models.MODELS[name]
    batch = model.training.example()
    losses = [make().step(*batch).item() for make in peers(model)]
    assert all(loss == pytest.approx(losses[0], rel=1e-5) for loss in losses)


def test_checkpoints_need_less():
    model = models.MODELS["mlp"]
    batch = model.training.data((256,))
    assert Checkpointed(model).peaks(batch)[0] < Eager(model).peaks(batch)[0]
