"""The fuzzer of random programs: what it counts as covered, and how it compares two forms of a program."""

import torch

from closeness import differences
from programs.coverage import kernels_of
from programs.generate import generate
from programs.inputs import LARGE_ROUNDS, ROUNDS, assignments, make
from programs.program import Input, Program, Step
from programs.rewrite import rewritten
from programs.run import check

IR = """
#loc = loc("model.py":3:0)
#loc1 = loc("main"(#loc))
#loc2 = loc("aten.relu"(#loc))
#loc3 = loc("aten.sort"(#loc))
    %0 = disc_plan.kernel loop ins(%arg0 : tensor<?xf16>) -> tensor<?xf16> attributes {name = "relu"} {
    ^bb0(%arg1: tensor<?xf16> loc("main"(#loc))):
      %1 = linalg.generic {iterator_types = ["parallel"]} ins(%arg1 : tensor<?xf16>) outs(%2 : tensor<?xf16>) {
      ^bb0(%in: f16, %out: f16):
        linalg.yield %in : f16 loc(#loc2)
      } -> tensor<?xf16> loc(#loc2)
      disc_plan.yield %1 : tensor<?xf16> loc(#loc2)
    } loc(#loc2)
    %3:2 = disc_plan.kernel call ins(%0 : tensor<?xf16>) -> tensor<?xf16>, tensor<?xi64> attributes {} {
      %4:2 = disc_tensor.call "sort"(%arg1) : (tensor<?xf16>) -> (tensor<?xf16>, tensor<?xi64>) loc(#loc3)
    } loc(#loc3)
    return %0 : tensor<?xf16> loc(#loc1)
"""


def test_coverage_counts_kinds_of_kernels():
    assert kernels_of(IR) == {("relu", "f16", "loop"): 1, ("sort", "i64", "call"): 1}


def test_two_results_are_compared_with_each_other():
    def double(x):
        return x * 2

    x = torch.linspace(1, 2, 5)
    right = double(x)
    assert not differences(double, (x,), right, right.clone(), right)
    assert not differences(double, (x,), right * (1 + 1e-6), right * (1 - 1e-6), right)
    [reason] = differences(double, (x,), right, right + 1e-3, right)
    assert reason.startswith("values: 5 of 5 elements")
    # Integers have no tolerance, and so have results of another dtype.
    numbers = torch.arange(5)
    assert differences(double, (numbers,), numbers, numbers + 1, numbers)
    assert differences(double, (x,), right, right.double(), right)


def test_a_program_and_its_rewritten_form_have_the_same_inputs():
    program = generate(0, 3)
    other = rewritten(program, 0)
    assert assignments(program, 0) == assignments(other, 0)
    sizes = assignments(program, 0)[4]
    for a, b in zip(make(program, sizes, "0"), make(other, sizes, "0"), strict=True):
        assert torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))


def test_forms_of_a_program_are_compared():
    inputs = (Input("x0", "f32", ("A",)),)
    forms = [
        Program(name, inputs, (Step("v0", f"v0 = x0 * {factor}", "pointwise"),), ("v0",), {"A": 1})
        for name, factor in (("P1", 2), ("P1R", 2))
    ]
    outcomes = check(forms, 0)
    assert [o.kind for o in outcomes] == ["pass", "pass"]
    assert outcomes[0].counts["agree with the rewritten form"] == outcomes[0].counts["agree"] == ROUNDS + LARGE_ROUNDS
    assert outcomes[0].kernels["mul", "f32", "loop"] == 2
