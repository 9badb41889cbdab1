"""Model.profile: which kernels ran, and where the program asks for them."""

import json

import pytest
import torch
from torch import nn

import disc


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return torch.softmax(self.linear(x), dim=-1)


def compiled():
    rows = torch.export.Dim("rows", min=1, max=4096)
    return disc.compile(Net().eval(), (torch.randn(4, 64),), dynamic_shapes=({0: rows},))


def test_records_launches_of_the_block_only():
    model = compiled()
    model(torch.randn(300, 64))
    with model.profile() as profile:
        model(torch.randn(300, 64))
        model(torch.randn(7, 64))
    model(torch.randn(300, 64))
    kinds = [launch.kind for launch in profile.launches]
    assert kinds.count("contraction") == 2
    assert all(launch.end_ns >= launch.begin_ns and launch.tasks > 0 for launch in profile.launches)
    assert any(launch.source.startswith("test_profile.py:") for launch in profile.launches)
    by_kernel = {entry.kernel: entry for entry in profile.kernels()}
    assert sum(entry.launches for entry in by_kernel.values()) == len(profile.launches)
    assert profile.seconds() >= profile.seconds("contraction") > 0
    assert all(entry.kernel in str(profile) for entry in by_kernel.values())


def test_trace_is_one_event_per_launch(tmp_path):
    model = compiled()
    with model.profile() as profile:
        model(torch.randn(300, 64))
    profile.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events] == [launch.kernel for launch in profile.launches]


def test_records_even_if_a_call_fails():
    model = compiled()
    with model.profile() as profile, pytest.raises(disc.ShapeError):
        model(torch.randn(3, 63))
    assert profile.launches == []


def test_kernels_have_their_work_and_all_their_lines():
    model = compiled()
    kernels = {kernel.kind: kernel for kernel in model.kernels(rows=300)}
    product, softmax = kernels["contraction"], kernels["row"]
    # 64 products and 64 sums for each of 300 x 64 results, and the bias.
    assert 300 * 64 * 128 <= product.operations <= 300 * 64 * 130
    assert product.reads == 4 * (300 * 64 + 64 * 64 + 64)
    assert product.writes == 4 * 300 * 64
    assert softmax.operations >= 4 * 300 * 64
    assert (softmax.reads, softmax.writes) == (4 * 300 * 64, 4 * 300 * 64)
    assert product.intensity > softmax.intensity > 0
    assert all(source.startswith(__file__) for kernel in kernels.values() for source in kernel.sources)
    assert product.launches == {"main": 1}


def test_kernels_are_those_of_a_profile():
    model = compiled()
    with model.profile() as profile:
        model(torch.randn(300, 64))
    kernels = {kernel.name: kernel for kernel in model.kernels(rows=300)}
    for launch in profile.launches:
        assert kernels[launch.kernel].kind == launch.kind
        assert launch.source in [source.rpartition("/")[2] for source in kernels[launch.kernel].sources]


def test_work_without_a_size_is_unknown():
    (kernel,) = [kernel for kernel in compiled().kernels() if kernel.kind == "contraction"]
    assert kernel.operations is None
    assert kernel.reads is None
    assert kernel.intensity is None


def test_no_work_at_a_size_of_zero():
    def double(x):
        return x * 2

    model = disc.compile(double, (torch.randn(4, 8),), dynamic_shapes="auto")
    (kernel,) = model.kernels(**{symbol.name: 0 for symbol in model.symbols})
    assert (kernel.operations, kernel.reads, kernel.writes) == (0, 0, 0)


def test_an_embedding_reads_the_rows_that_it_looks_up():
    table = nn.Embedding(100_000, 16)
    ids = torch.export.Dim("ids", max=4096)
    model = disc.compile(table, (torch.tensor([1, 2, 3]),), dynamic_shapes=({0: ids},))
    (kernel,) = model.kernels(ids=5)
    assert kernel.reads == 5 * 16 * 4 + 5 * 8
    assert kernel.writes == 5 * 16 * 4


def test_kernels_of_loops_and_data_dependent_sizes():
    def positive(x):
        kept = x[x > 0]
        return kept.exp().sum()

    model = disc.compile(positive, (torch.randn(9),), dynamic_shapes={"x": {0: "n"}})
    kernels = model.kernels(n=9)
    assert any(kernel.operations is None for kernel in kernels)
    assert any(kernel.operations is not None for kernel in kernels)
