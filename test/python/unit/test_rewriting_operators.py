"""Python's control flow on data and on extents: the traced program, run by its markers, gives what eager gives."""

import dataclasses
import typing

import pytest
import torch
from torch import nn

import disc
import flow_reference
from disc.frontend import markers
from rewriting_traced import LENGTHS, check, count, matrices, traced, vectors

# -- branches ------------------------------------------------------------------------------------------------


def test_branches_merge_tensors_of_other_extents_and_numbers():
    def function(x):
        k = 2.5 if x.mean() > 0.1 else 0.5
        if x.sum() > 0:
            y, n, name = x * 2, 3, "one"
        elif x[0] > 0:
            y, n, name = x[:1] - 1, 5, "one"
        else:
            y, n, name = torch.cat([x, x]), 5, "one"
        return y * n, k, len(name), x * k

    check(function, *vectors())


def test_conditions():
    def function(x):
        if ((x > 2).any() and x.sum() > 0) or x.shape[0] == 20:
            x = x + 1
        flag = bool((x > 0).all())
        if not flag:
            x = x - 1
        if -1.0 < x.mean().item() < 1.0 and all(v > -10 for v in x.unbind(0)):
            x = x + 10
        return x, flag, max(x[0].item(), 0.5)

    check(function, *vectors())


def test_conditions_on_extents():
    def function(x):
        if x.shape[0] > 6:
            return x[:6].sum(0).reshape(2, 2), 1
        if x.shape[0] == 1:
            return x[0].reshape(2, 2) * 100, 2
        first, second = x[:2].unbind(0)
        return (first + second).reshape(2, 2), 3

    check(function, *matrices(4))


def test_conditions_on_items():
    def function(x, n):
        k = n.item()
        if k > 3:
            return x * k
        return x[:k] + 1

    torch.manual_seed(0)
    check(function, *[(torch.randn(5), torch.tensor(k)) for k in (4, 2, 3, 9, 0)])


class Tree(typing.NamedTuple):
    value: torch.Tensor
    size: int


@dataclasses.dataclass
class Node:
    value: torch.Tensor
    left: typing.Optional["Node"] = None


def test_containers():
    def function(x):
        tree, node = Tree(x[0], 0), Node(x[0], Node(x[0]))
        states, table = [x[0], x[0] * 2], {"a": x[0]}
        for t in range(x.shape[0]):
            tree = Tree(tree.value + x[t], tree.size + 2)
            states[1] = states[0] + x[t]
            table["a"] = table["a"] * 0.5 + states[1]
            states = [s + 1 for s in states]
            if x[t].sum() > 0:
                node = Node(node.value + 1, Node(node.left.value * 2))
                node.left.value = node.left.value + 1
        if x.sum() > 0:
            states[0] = states[0] * 3
            table["b"] = x[0]
        else:
            states = [states[1], x[0]]
            table["b"] = x[0] * 2
        return tree.value, tree.size, node.value, node.left.value, states, table

    check(function, *matrices(4))


def test_changes_in_place():
    def function(x):
        y = x.clone()
        first = y[0]
        if x.sum() > 0:
            z = y[1:]
            z.add_(1)
            y[0] += 1
        else:
            y.mul_(2)
        out, total = torch.zeros_like(x), torch.zeros_like(x[0])
        for t in range(x.shape[0]):
            total = total * 0.5 + x[t]
            out[t] = total
        return y, first, out

    check(function, *matrices(3))


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        for t in range(x.shape[0]):
            self.state = self.state + x[t]
        if x.sum() > 0:
            self.calls += 1
        return self.state * 1, self.calls * 1


def test_buffers():
    check(Buffers(), *matrices(4))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        used = 0
        for layer in self.layers:
            if x.norm() < 0.5:
                continue
            x = torch.relu(layer(x)) + x
            used += 1
            if torch.sigmoid(self.head(x)).mean() > 0.6:
                break
        n = 0
        while n < len(self.layers) and x.abs().mean() > 0.3:
            x = torch.tanh(self.layers[n](x))
            n += 1
        return x, used, n


def test_layers_that_are_skipped():
    torch.manual_seed(0)
    program = check(Layers(), *matrices(4, 0.1, 1.0, 5.0))
    # The for statement is unrolled; the while statement takes the layer of its number.
    assert count(program, markers.loop_begin) == 1
    flow = flow_reference.Flow(program)
    flow.run(torch.zeros(3, 4))
    assert not any("linear" in name for name in flow.executed)


def helper(x, depth):
    if depth == 0:
        return x
    if x.sum() > 0:
        return helper(x - 1, depth - 1)
    return helper(x + 2, depth - 1) * 2


def test_functions_that_call_themselves():
    check(lambda x: helper(x, 3), *vectors())


# -- loops ---------------------------------------------------------------------------------------------------


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(4, 6), nn.LSTMCell(6, 6)])

    def forward(self, x):
        states = [(x.new_zeros(2, 6), x.new_zeros(2, 6)) for _ in self.cells]
        outputs = []
        for t in reversed(range(x.shape[0])):
            y = x[t]
            for i, cell in enumerate(self.cells):
                states[i] = cell(y, states[i])
                y = states[i][0]
            outputs.append(y.unsqueeze(1))
        return torch.cat(outputs, 1), states[1][1], y


def test_cells():
    torch.manual_seed(0)
    program = check(Cells(), *[(torch.randn(n, 2, 4),) for n in LENGTHS])
    assert count(program, markers.loop_begin) == 1


def test_loops_with_break():
    def function(x):
        y, outputs, n = x[0], [], 0
        for t in range(x.shape[0]):
            y = y * 0.5 + x[t]
            n = n * 2 + 1
            outputs.append(y)
            if y.sum() > 3:
                break
        return torch.stack(outputs), y, n

    check(function, *matrices(4))


def test_loops_with_return():
    def function(x):
        for i in range(x.shape[0]):
            for j in range(3):
                if x[i, j] > 1.5:
                    return i, j, x[i]
        return -1, -1, x[0]

    check(function, *matrices(3))


def test_nested_loops():
    def function(x):
        total = x.new_zeros(())
        for i in range(x.shape[0]):
            for j in range(i + 1):
                if x[i] * x[j] > 1:
                    break
                if x[j] < -1:
                    continue
                total = total + x[i] - x[j]
        return total

    check(function, *vectors())


def test_what_is_iterated_over():
    def function(x, y):
        total = torch.zeros(3)
        for i, (a, b) in enumerate(zip(x, y, strict=True)):
            total = total * 0.5 + a * b + i
        for row in x:
            total = total + row
        rows = []
        for row in reversed(range(1, x.shape[0])):
            rows.append(x[row] * row)
        for row in rows:
            total = total - row
        most = 0.0
        for row in x:
            most = max(most, row.max().item())
        return total, len(rows), most

    torch.manual_seed(0)
    check(function, *[(torch.randn(n, 3), torch.randn(n, 3)) for n in LENGTHS])


def test_first_values_of_another_kind():
    def function(x):
        h, total = None, 0
        for row in x:
            h = row if h is None else h * 0.5 + row
            total = total + row
        return h, total

    check(function, *matrices(4))


def test_extents_that_grow():
    def function(x, n):
        y = x[0]
        for t in range(x.shape[0]):
            y = torch.cat([y, x[t]], -1)
        i, z = 0, x[:1]
        while i < n.item():
            z = torch.cat([z, z[:1]]) + i
            i += 1
        return y, z, i

    torch.manual_seed(0)
    check(function, *[(torch.randn(m, 2), torch.tensor(k)) for m, k in ((3, 4), (1, 0), (5, 1), (2, 7))])


def test_loops_on_data():
    def function(a, n):
        x, k = a.clone(), 0
        while (x * x - a).abs() > 1e-4 and k < 50:
            x, k = 0.5 * (x + a / x), k + 1
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return x, k, steps

    check(function, *[(torch.tensor(v), torch.tensor(n)) for v, n in ((2.0, 7), (9.0, 1), (100.0, 27), (1.0, 4))])


def test_what_the_step_before_has_appended():
    def function(x):
        outputs = [x[0]]
        for t in range(1, x.shape[0]):
            outputs.append(outputs[-1] * 0.5 + x[t])
        return torch.stack(outputs)

    check(function, *matrices(3))


def test_numbers_that_only_some_steps_raise():
    def function(logits):
        out = torch.zeros(logits.shape[0], dtype=torch.int64)
        previous, n = -1, 0
        for t in range(logits.shape[0]):
            k = int(logits[t].argmax())
            if k != previous and k != 0:
                out[n] = k
                n += 1
            previous = k
        return out[:n]

    check(function, *matrices(3))


def test_numbers_first_asked_for_in_a_region():
    def function(x):
        if x.sum() > 0:
            y = torch.zeros(x.shape[0] * 3 + 1)
        else:
            y = torch.ones(1)
        for _ in range(x.shape[0] // 2 + 1):
            y = y + torch.zeros(x.shape[0] // 2 + 1).sum()
        return y, torch.zeros(x.shape[0] * 3 + 1), torch.zeros(x.shape[0] // 2 + 1)

    check(function, *vectors())


# -- what is refused, and what fails at run time ---------------------------------------------------------------


def test_errors_of_the_model():
    def function(x):
        if x.isnan().any():
            raise ValueError("not a number")
        assert x.sum() < 100, "too much"
        return x * 2

    program = check(function, *vectors())
    for bad, text in ((torch.nan, r"ValueError: not a number \("), (50.0, r"AssertionError: too much \(")):
        with pytest.raises(RuntimeError, match=text + r"test_rewriting_operators.py:\d+\)$"):
            flow_reference.run(program, torch.full((3,), bad))


def test_numbers_that_sides_know_more_of():
    def function(x, n):
        k = n.item()
        if k != 0:
            m = k
        else:
            m = 5
        if k == 2:
            p, q = 7, x * 0
        else:
            p, q = k, x + k
        return x * m, q * p, k or 3, k and 9

    check(function, *[(torch.ones(3), torch.tensor(n)) for n in (3, 0, 2, 1, -4)])


def test_tests_that_set_variables():
    def function(x):
        while (most := x.abs().max()) > 1:
            x = x / most * 0.9
        return x + most

    check(function, *vectors(1, 5))


def test_texts_of_errors():
    """What is known while tracing is formatted; else the source is the text."""
    kinds = 3

    def function(x, n):
        if x.mean() > 50:
            k = n.item()
            raise RuntimeError(
                f"mean {x.mean()} of {x.shape[0]} is "
                f"larger than {k + kinds}")  # fmt: skip
        elif x.mean() < -50:
            raise KeyError
        for row in x:
            if row > 20:
                raise ValueError(f"more than {kinds + 17}")
        assert x.sum() != 7
        assert x.sum() > -40, f"not enough: {x.sum().item()}"
        return x * 2

    n = torch.tensor(2)
    program = check(function, *[(x, n) for (x,) in vectors()])
    for bad, text in (
        ([70.0, 70.0], r"RuntimeError: mean {x.mean\(\)} of {x.shape\[0\]} is larger than {k \+ kinds} \("),
        ([-70.0], r"KeyError \("),
        ([30.0, 0.0], r"ValueError: more than 20 \("),
        ([7.0], r"AssertionError: assert x.sum\(\) != 7 \("),
        ([-45.0], r"AssertionError: not enough: {x.sum\(\).item\(\)} \("),
    ):
        with pytest.raises(RuntimeError, match="^" + text + r"test_rewriting_operators.py:\d+\)$"):
            flow_reference.run(program, torch.tensor(bad), n)


def test_refused():
    def kinds(x):
        if x.sum() > 0:
            y = x
        else:
            y = "nothing"
        return y

    def aliased(x):
        y = torch.zeros_like(x)
        z = y[0]
        for t in range(x.shape[0]):
            y[t] = z + x[t]
        return y

    for function, why in (
        (kinds, r"y is float32 \[.*\] where the condition holds and 'nothing' where it does not"),
        (aliased, "changes a tensor in place that has other names"),
    ):
        with pytest.raises(disc.CompileError, match=why) as info:
            traced(function, (torch.randn(5),))
        assert info.value.source.startswith(__file__), function
