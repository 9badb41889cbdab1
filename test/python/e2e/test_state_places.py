"""State that is not in buffers: where it may be, what is refused, and that compiling leaves it as it was."""

import collections
import copy
import dataclasses
import functools
import types

import pytest
import torch
from torch import nn

import disc
from state_programs.generate import generate
from state_programs.run import BAD, check

GLOBAL = torch.zeros(3)
COUNT = 0


class Space:
    total = torch.zeros(3)


class Slots:
    __slots__ = ("total",)

    def __init__(self):
        self.total = torch.zeros(3)


@dataclasses.dataclass
class Data:
    total: torch.Tensor


class Counts:
    def __init__(self):
        self.calls = {"n": 1}


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.total = torch.zeros(3)


class Deep:
    def __init__(self):
        self.table = {"k": [types.SimpleNamespace(total=torch.zeros(3)), Cell()]}


def closed():
    held = torch.zeros(3)

    def change(x):
        held.add_(x)
        return held

    def assign(x):
        nonlocal held
        held = held + x
        return held

    return change, assign


def remember(x, memory=[torch.zeros(3)]):
    memory[0] = memory[0] + x
    return memory[0]


class Model(nn.Module):
    """``forward`` adds the rows of ``x`` to the tensor at a place, and returns its sum with ``x``."""

    shared = torch.zeros(3)

    def __init__(self, body, **attributes):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)
        self.body = body

    def forward(self, x):
        return x + self.body(self, x)


def compiled(module):
    return disc.compile(module, (torch.randn(4, 3),), dynamic_shapes=({0: "n"},))


def _in_a_global(self, x):
    GLOBAL.add_(x.sum(0))
    return GLOBAL


def _in_a_class(self, x):
    Space.total += x.sum(0)
    return Space.total


def _assigned(place):
    scope = {}
    text = f"def body(self, x):\n    {place} = {place} + x.sum(0)\n    return {place}\n"
    exec(text, globals(), scope)
    return scope["body"]


def _changed(place):
    scope = {}
    exec(f"def body(self, x):\n    {place}.add_(x.sum(0))\n    return {place}\n", globals(), scope)
    return scope["body"]


PLACES = {
    "self.t": lambda: torch.zeros(3),
    "self.t[0]": lambda: [torch.zeros(3)],
    "self.t['k'][1]": lambda: {"k": (torch.ones(2), torch.zeros(3))},
    "self.t['k'][0]": lambda: collections.defaultdict(list, k=[torch.zeros(3)]),
    "self.t[1]": lambda: collections.deque([torch.ones(2), torch.zeros(3)], maxlen=2),
    "self.t.total": lambda: Data(torch.zeros(3)),
    "self.t['c'].total": lambda: collections.OrderedDict(c=Slots()),
    "self.t.table['k'][0].total": Deep,
    "self.t.table['k'][1].total": Deep,
}


@pytest.mark.parametrize("how", [_assigned, _changed], ids=["assigned", "changed"])
@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_at_any_place(place, how):
    if how is _assigned and place == "self.t['k'][1]":
        pytest.skip("an element of a tuple cannot be assigned")
    module = Model(how(place), t=PLACES[place]())
    eager = copy.deepcopy(module)
    before = eval(place, {"self": module})
    model = compiled(module)
    assert eval(place, {"self": module}) is before and not before.any()
    for n in (2, 1, 5):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), eager(x))
        assert eval(place, {"self": module}) is before
        torch.testing.assert_close(before, eval(place, {"self": eager}))


@pytest.mark.parametrize("number", [0, 1], ids=["changed", "assigned"])
def test_a_variable_of_an_enclosing_function(number):
    model = compiled(Model(lambda self, x: self.step(x.sum(0)), step=closed()[number]))
    total = torch.zeros(3)
    for n in (2, 1, 5):
        x = torch.randn(n, 3)
        total += x.sum(0)
        torch.testing.assert_close(model(x), x + total)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (_in_a_global, lambda: GLOBAL),
        (_in_a_class, lambda: Space.total),
        (_assigned("Model.shared"), lambda: Model.shared),
        (lambda self, x: remember(x.sum(0)), lambda: remember.__defaults__[0][0]),
    ],
    ids=["global", "class", "own class", "default"],
)
def test_a_tensor_that_models_share(body, value):
    model = compiled(Model(body))
    total = value().clone()
    for n in (2, 1, 5):
        x = torch.randn(n, 3)
        total += x.sum(0)
        torch.testing.assert_close(model(x), x + total)
        torch.testing.assert_close(value(), total)


def _new_containers(self, x):
    self.states = [t * 0.5 + x.mean(0) for t in self.states]
    self.pair = (self.pair[1], self.pair[0] + x.sum(0))
    self.table = {name: t + 1 for name, t in self.table.items()}
    self.data = dataclasses.replace(self.data, total=self.data.total + x[0])
    self.queue.append(x.mean(0))
    return self.states[0] + self.pair[1] + self.table["a"] + self.data.total + self.queue[0]


def test_new_containers_of_the_same_kind():
    zeros = torch.zeros(3)
    module = Model(
        _new_containers,
        states=[zeros, zeros + 1],
        pair=(zeros + 2, zeros + 3),
        table={"a": zeros + 4},
        data=Data(zeros + 5),
        queue=collections.deque([zeros + 6, zeros + 7], maxlen=2),
    )
    eager, states, table = copy.deepcopy(module), module.states, module.table
    model = compiled(module)
    assert module.states is states and module.table is table and len(states) == 2
    for n in (2, 1, 5):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), eager(x))
        torch.testing.assert_close(
            [*module.states, *module.pair, module.table["a"], module.data.total, *module.queue],
            [*eager.states, *eager.pair, eager.table["a"], eager.data.total, *eager.queue],
        )


def _counts(self, x):
    self.calls += 1
    self.scale.mul_(0.5)
    return self.scale * (2.0 if self.calls > 2 else 1.0)


def test_a_condition_on_state():
    module = Model(_counts, calls=torch.tensor(0), scale=torch.tensor(8.0))
    eager = copy.deepcopy(module)
    model = compiled(module)
    assert (module.calls.item(), module.scale.item()) == (0, 8)
    for _ in range(5):
        x = torch.randn(2, 3)
        torch.testing.assert_close(model(x), eager(x))
    assert (module.calls.item(), module.scale.item()) == (5, 0.25)


def _in_a_branch(self, x):
    if x.sum() > 0:
        self.queue.append(self.queue.popleft() + x.mean(0))
    else:
        self.items[0].mul_(0.5)
    for i in range(x.shape[0]):
        self.items[1] = self.items[1] * 0.5 + x[i]
        remember(x[i])
    return self.queue[0] + self.items[0] + self.items[1]


def test_branches_and_loops():
    zeros = torch.zeros(3)
    module = Model(_in_a_branch, queue=collections.deque([zeros + 1, zeros + 2]), items=[zeros + 3, zeros + 4])
    eager = copy.deepcopy(module)
    model = compiled(module)
    for n in (2, 1, 5, 3):
        for sign in (1, -1):
            x = torch.randn(n, 3).abs() * sign
            torch.testing.assert_close(model(x), eager(x))
            torch.testing.assert_close([*module.queue, *module.items], [*eager.queue, *eager.items])


class Remembers(nn.Module):
    """A branch returns what a buffer was before the call sets it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("old", torch.zeros(3))
        self.register_buffer("now", torch.ones(3))

    def forward(self, x):
        before = self.now if x.sum() > 0 else x.mean(0)
        self.old = self.now
        if x.sum() > 0:
            self.now = self.now + x.mean(0)
        else:
            self.now = self.now * 0.5
        return torch.cumsum(before * self.now.cumsum(0), 0)


def test_a_branch_returns_the_old_value_of_a_state():
    module = Remembers()
    eager = copy.deepcopy(module)
    model = compiled(module)
    for sign in (1, 1, -1, 1, -1):
        x = torch.randn(2, 3).abs() * sign
        torch.testing.assert_close(model(x), eager(x))
        torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))


def _joins(self, x):
    y = self.b * 2
    self.a.add_(x.sum(0))
    self.b = self.a
    return y


def _joins_in_a_loop(self, x):
    self.a.add_(x.sum(0))
    for _ in range(x.shape[0]):
        self.a = self.b
    return self.a


def _parts(self, x):
    self.items = [self.items[0] + x.sum(0)]
    return self.items[0]


def _replaces_a_view(self, x):
    self.row = self.row + x.sum(0)
    return self.row


def _grows(self, x):
    self.a = torch.cat([self.a, x.mean(0)])
    return self.a.sum()


def _changes_an_element_of_a_set(self, x):
    for t in self.some:
        t.add_(x.sum(0))
    return x


def _adds(t, x):
    return t.add_(x.sum(0))


def _model_of_one_list(body):
    items = [torch.zeros(3)]
    return Model(body, items=items, same=items)


def _model_of_a_view(body):
    grid = torch.zeros(2, 3)
    return Model(body, grid=grid, row=grid[0])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Model(_joins, a=torch.zeros(3), b=torch.zeros(3)), r"self\.b is .*the tensor of another attribute"),
        (lambda: Model(_joins_in_a_loop, a=torch.zeros(3), b=torch.zeros(3)), "in place: assign a clone"),
        (lambda: _model_of_one_list(_parts), r"self\.items\[0\] is in a container that .* at another place, too"),
        (lambda: _model_of_a_view(_replaces_a_view), r"self\.row is .* shares memory with another one"),
        (lambda: Model(_grows, a=torch.zeros(3)), r"self\.a is .* another shape or dtype \(float32 \[6\] instead"),
        (
            lambda: Model(_changes_an_element_of_a_set, some={torch.zeros(3)}),
            r"add_ changes in place a tensor that belongs to neither.*\n  at .*test_state_places.py:\d+",
        ),
        (
            lambda: Model(lambda self, x: self.f(x), f=functools.partial(_adds, torch.zeros(3))),
            "changes in place a tensor that belongs to neither",
        ),
    ],
    ids=["joined", "joined in a loop", "parted", "view", "grows", "set", "partial"],
)
def test_errors(make, text):
    module = make()
    before = {name: copy.deepcopy(x) for name, x in vars(module).items() if name in ("a", "b", "items", "grid")}
    with pytest.raises(disc.CompileError, match=text) as raised:
        compiled(module)
    assert "Pls" not in str(raised.value)
    torch.testing.assert_close({name: vars(module)[name] for name in before}, before)


def _deletes(self, x):
    old = self.t
    del self.t
    self.t = old + x.sum(0)
    return self.t


def test_a_deleted_attribute_that_is_assigned_again():
    module = Model(_deletes, t=torch.zeros(3))
    eager = copy.deepcopy(module)
    model = compiled(module)
    for n in (2, 1):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), eager(x))
        torch.testing.assert_close(module.t, eager.t)


def _becomes_a_parameter(self, x):
    y = self.t * 2
    self.t = self.w
    self.new = self.w
    return y


def test_a_parameter_that_is_assigned_to_another_attribute():
    module = Model(_becomes_a_parameter, t=torch.ones(3), w=nn.Parameter(torch.zeros(3)))
    with pytest.warns(UserWarning, match=r"the call changes self\.new"), torch.no_grad():
        model = compiled(module)
    assert type(module.t) is torch.Tensor and dict(module.named_parameters()).keys() == {"w"}
    x = torch.randn(2, 3)
    torch.testing.assert_close(model(x), x + 2)
    torch.testing.assert_close([model(x), module.t], [x, torch.zeros(3)])


def test_a_tensor_that_is_only_detached():
    module = Model(lambda self, x: x, t=[torch.ones(3)])
    module.body = lambda self, x: (self.t.__setitem__(0, self.t[0].detach()), x)[1]
    x = torch.randn(2, 3)
    torch.testing.assert_close(compiled(module)(x), x * 2)


def _reads_first(self, x):
    y = x * self.n
    self.n = x.shape[0]
    return y


def _counts_globally(self, x):
    global COUNT
    COUNT += 1
    return x * COUNT


def _adds_an_attribute(self, x):
    if x.sum() > 0:
        self.new = x.mean(0)
    return x


def _counts_inside(self, x):
    self.data.calls["n"] += 1
    return x * self.data.calls["n"]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (_reads_first, r"self\.n"),
        (_counts_globally, "the global variable COUNT"),
        (_adds_an_attribute, r"self\.new"),
        (_counts_inside, r"self\.data\.calls\['n'\]"),
    ],
)
def test_what_is_not_a_tensor_is_a_warning(body, name):
    module = Model(body, n=2, data=types.SimpleNamespace(calls={"n": 1}))
    with pytest.warns(UserWarning, match=f"the call changes .*{name}.* which a compiled model does not"):
        compiled(module)
    assert (module.n, module.data.calls["n"], COUNT, hasattr(module, "new")) == (2, 1, 0, False)


def _notes_a_size(self, x):
    if x.sum() > 0:
        self.n = x.shape[0]
    return x * 2


def test_a_side_of_a_branch_keeps_a_size():
    module = Model(_notes_a_size, n=2)
    with pytest.warns(UserWarning, match=r"the call changes self\.n"):
        model = compiled(module)
    x = torch.randn(3, 3)
    torch.testing.assert_close(model(x), x * 3)


def _sets_first(self, x):
    self.n = x.shape[0]
    self.data.calls = {"n": self.n}
    return x * self.n + self.data.calls["n"]


def test_numbers_that_each_call_sets_first_are_none_of_that(recwarn):
    module = Model(_sets_first, n=2, data=Counts())
    model = compiled(module)
    for n in (2, 5):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), x + x * n + n)
    assert not [w for w in recwarn if "the call changes" in str(w.message)]


def _changes_a_growing_list(self, x):
    items = [self.t]
    for i in range(x.shape[0]):
        items.append(x[i] * 1)
    for t in items:
        t.mul_(0.5)
    return sum(items)


def test_elements_of_a_list_of_dynamic_length_that_are_changed_in_place():
    with pytest.raises(disc.CompileError, match=r"is changed in place, and the list would not see it.*\n  at .*py:\d+"):
        compiled(Model(_changes_a_growing_list, t=torch.ones(3)))


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_share_of_random_models(first):
    outcomes = [check(generate(7, number), 7) for number in range(first, first + 20)]
    bad = [f"{x.kind}: {x.text}\n{x.model.source}" for x in outcomes if x.kind in BAD]
    assert not bad, "\n".join(bad)
    assert sum(x.kind == "pass" for x in outcomes) >= 10


def test_lists_of_parameters_that_a_layer_makes_anew(recwarn):
    """A recurrent layer keeps its weights in a list, too, which it makes anew in a trace: that is no state."""
    layer = nn.LSTM(3, 4, num_layers=2)
    model = disc.compile(lambda x: layer(x)[0], (torch.randn(5, 2, 3),), dynamic_shapes=({0: "time", 1: "batch"},))
    assert not [w for w in recwarn if "changes" in str(w.message)]
    assert not model.state()
    with torch.no_grad():
        for time in (1, 7, 3):
            x = torch.randn(time, 2, 3)
            torch.testing.assert_close(model(x), layer(x)[0])
    assert all(a is b for a, b in zip(layer._flat_weights, layer.parameters(), strict=True))


def _counts_words(self, x):
    self.seen.add_(x.sum(0))
    return x + self.seen * len(self.vocabulary)


def test_a_vocabulary_does_not_hide_state():
    words = {f"word {n}": n for n in range(30_000)}
    module = Model(_counts_words, vocabulary=words, seen=torch.zeros(3))
    eager = copy.deepcopy(module)
    model = compiled(module)
    for n in (1, 5, 2):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), eager(x))
        torch.testing.assert_close(module.seen, eager.seen)
