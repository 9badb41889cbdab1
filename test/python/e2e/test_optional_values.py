"""Variables that are None where data decides so."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import closeness
import disc

pytestmark = pytest.mark.share(2)


class Function(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def scaled(x, y=None):
    return x if y is None else x * y


def chosen_once(x):
    y = None
    if x.sum() > 0:
        y = x * 2
    return x + 1 if y is None else x + y


def used_where_it_is(x):
    y = None
    if x.sum() > 0:
        y = x * 2
    if y is not None:
        x = x + y
    return x


def given_to_functions(x):
    y = None
    if x.sum() > 0:
        y = x.exp()
    for _ in range(2):
        x = scaled(x, y)
    return x


def best_row(x):
    best = None
    for i in range(x.shape[0]):
        if x[i].sum() > 0 and (best is None or x[i].sum() > best.sum()):
            best = x[i]
    return best if best is not None else torch.zeros(x.shape[1])


def on_sizes(x):
    y = None
    if x.shape[0] > 4:
        y = x[:4] * 3
    return x.sum() if y is None else x.sum() + y.sum()


def set_in_a_loop(x):
    h = None
    while x.sum() < 10:
        h = x if h is None else h + x
        x = x + 1
    return x if h is None else h


def unset_in_a_loop(x):
    last = None
    while x.sum() < 20:
        last = None if x.sum() > 5 else x
        x = x + 1
    return x if last is None else last


def a_pair(x):
    state = None
    for i in range(x.shape[0]):
        if x[i].sum() > 0:
            state = (x[i], i) if state is None else (state[0] + x[i], i)
    return (x.sum(0), 0) if state is None else state


def kinds(x):
    kind = None
    if x.sum() > 1:
        kind = "relu"
    if kind == "relu":
        x = x.relu()
    times = 3 if x.sum() > 2 else None
    if times:
        x = x * times
    return x if isinstance(times, int) else -x


def a_default(x):
    mask = None
    if x.sum() > 0:
        mask = torch.ones(x.shape[0], x.shape[0], dtype=torch.bool).tril()
    if mask is None:
        mask = torch.ones(x.shape[0], x.shape[0], dtype=torch.bool)
    return F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=mask)


def given_to_torch(x):
    weight = bias = None
    if x.sum() > 0:
        weight = x[0]
    if x.sum() < 3:
        bias = x[0]
    return F.layer_norm(x, (3,), weight, bias)


FUNCTIONS = [
    chosen_once,
    used_where_it_is,
    given_to_functions,
    best_row,
    on_sizes,
    set_in_a_loop,
    unset_in_a_loop,
    a_pair,
    kinds,
    a_default,
    given_to_torch,
]
N = Dim("N", min=1, max=64)


def compiled(fn):
    return disc.compile(Function(fn), (torch.randn(5, 3),), dynamic_shapes=({0: N},))


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_values(fn):
    model = compiled(fn)
    for n in (1, 2, 3, 5, 9, 33, 2):
        for shift in (-3, -0.5, 0, 0.5, 3):
            x = torch.randn(n, 3) + shift
            closeness.check(fn, (x,), model(x))


def careless(x):
    y = None
    if x.sum() > 0:
        y = x * 2
    return x + y


def test_none_used_as_a_value():
    model = compiled(careless)
    x = torch.ones(4, 3)
    torch.testing.assert_close(model(x), careless(x))
    with pytest.raises(disc.ShapeError, match=r"y is None here .*test_optional_values\.py:\d+"):
        model(-x)


def compared(x):
    first = second = None
    if x.sum() > 0:
        first = x * 2
    if x.sum() > 1:
        second = x * 3
    return x if first is second else -x


def test_two_that_may_be_none_are_not_compared():
    with pytest.raises((disc.CompileError, NotImplementedError), match="both of which may be None"):
        compiled(compared)


def returned(x):
    y = None
    if x.sum() > 0:
        y = x * 2
    return y


def test_none_as_a_result():
    with pytest.raises(disc.CompileError, match=r"returns float32 \[.*\] or None"):
        compiled(returned)


def changed_in_place(x):
    y, number, values = None, None, None
    if x.sum() > 0:
        y, number, values = x * 2, int(x.argmax()), [x, x + 1]
    if y is not None:
        y += 1
        y[..., 0] = 5
        number += 2
        values += [x + 2]
        values[0] = x * 3
    return x if y is None else y * number + torch.stack(values).sum(0)


def test_changes_in_place():
    model = disc.compile(changed_in_place, (torch.randn(5, 3),), dynamic_shapes=({0: Dim("n", min=1, max=40)},))
    for seed, n in enumerate((5, 1, 2, 40, 3, 3)):
        torch.manual_seed(seed)
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), changed_in_place(x))


def test_a_change_in_place_that_another_name_sees():
    """An error: ``y += 1`` of a value that may be None was a new tensor, and ``z`` kept its old values."""

    def changed(x):
        z, y = x.clone(), None
        if x.sum() > 0:
            y = z[1:]
        if y is not None:
            y += 1
        return z

    with pytest.raises(disc.CompileError, match="changes a tensor that the branch at"):
        disc.compile(changed, (torch.randn(5, 3),), dynamic_shapes=({0: Dim("n", min=2, max=40)},))
