"""Calls with unusual arguments end in right values or in an error of the compiler that names the user's line.

DISC_ODD_CALLS is the number of operators to try, DISC_ODD_SEED which.
`python -m property.odd_arguments` in `test/python` tries all of them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from disc.torch_compat.versions import MINOR

from . import odd_arguments
from .odd_arguments import Call, check, refused_well

COUNT = os.environ.get("DISC_ODD_CALLS", "10")
SEED = os.environ.get("DISC_ODD_SEED", "0")


@pytest.mark.nightly
def test_unusual_arguments_of_operators():
    # Eager PyTorch itself crashes now and then, so each operator is tried in a process of its own.
    command = ["-m", "property.odd_arguments", "--count", COUNT, "--seed", SEED, "--calls", "2"]
    result = subprocess.run(
        [sys.executable, *command],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    bad = re.findall(r"^(?:wrong|fault|signal|the fuzzer).*\n(?:    .*)?", result.stdout, re.MULTILINE)
    assert not bad, "".join(bad) + result.stderr[-3000:]


def norm_of_size(x):
    """A norm whose order is a size. PyTorch 2.12 asks whether the order is even, or 2."""
    return (torch.linalg.vector_norm(x, x.size(0)),) if MINOR >= 13 else ()


X, Y = torch.linspace(-2, 2, 12).reshape(3, 4), torch.linspace(1, 2, 12).reshape(3, 4)
CASES = {
    "alpha": (lambda x, y: (x.add(y, alpha=x.size(0)), x.sub(y, alpha=x.size(1)), torch.rsub(x, y, alpha=x.size(0)))),
    "slopes": (lambda x, y: (F.elu(x, alpha=x.size(0)), F.celu(x, alpha=x.size(0)), F.leaky_relu(x, x.size(0)))),
    "weights": (lambda x, y: (torch.lerp(x, y, x.size(0)), torch.addcmul(x, x, y, value=x.size(0)))),
    "powers": (lambda x, y: (x.size(0) ** x, y ** x.size(0), *norm_of_size(x))),
    "triangles": (lambda x, y: (x.tril(x.size(0) - 3), x.triu(x.size(0) - 3))),
    "no dims": (lambda x, y: (x.any([]), x.all([]), x.flip([]), x.sum([]))),
    "no elements": (lambda x, y: (F.adaptive_avg_pool2d(x[None], (0, 2)), x[:0].sort(1)[0], x[:, :0] @ y[:, :0].T)),
    "dims": (lambda x, y: (x.index_add(x.size(0) - 3, torch.tensor([0]), y[:1]), x.cumsum(x.size(0) - 3))),
    "ties": (lambda x, y: (*x.round().median(1), *x.round().nanmedian(0), *x.round().kthvalue(2, 1))),
}


def test_numbers_computed_from_sizes():
    calls = [Call(fn, (X, Y), [odd_arguments.Place(0), odd_arguments.Place(1)], {}) for fn in CASES.values()]
    found = list(check(calls))
    names = dict(zip(CASES.values(), CASES, strict=True))
    assert not found, "\n".join(f"{names[call.op]}: {kind}: {text}" for call, kind, text in found)


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda x: x.softmax(7), "out of range"),
        (lambda x: torch.bitwise_and(x, x), "bitwise operation on torch.float32"),
        (lambda x: x.view(5, -1), "invalid for input of size|number of elements"),
        (lambda x: F.gelu(x, approximate="up"), "approximate"),
    ],
)
def test_wrong_arguments_are_refused_at_their_line(fn, text):
    call = Call(fn, (X,), [odd_arguments.Place(0)], {})
    assert not list(refused_well(call))
    with pytest.raises(odd_arguments.disc.CompileError, match=text) as caught:
        odd_arguments.disc.compile(odd_arguments.Program([call]), (call.tensors,))
    assert "odd_arguments.py:" in str(caught.value.source)
