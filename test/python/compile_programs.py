"""torch.compile(backend="disc") compared with eager: values, strides, offsets, shared memory, later assignments."""

import random

import torch
from torch.utils import _pytree as pytree

from disc.dynamo import _listening

OPTIONS = {"opt_level": 0, "threads": 1}


def copied(tree):
    """The same tensors in other memory: strides, offsets and sharing are kept."""
    storages = {}

    def copy_of(x):
        if not isinstance(x, torch.Tensor):
            return x
        key = x.untyped_storage()._cdata
        if key not in storages:
            storages[key] = x.untyped_storage().clone()
        return torch.empty(0, dtype=x.dtype).set_(storages[key], x.storage_offset(), x.size(), x.stride())

    return pytree.tree_map(copy_of, tree)


def tensors(*trees):
    return [x for x in pytree.tree_leaves(trees) if isinstance(x, torch.Tensor)]


def shared_memory(*trees):
    """For each tensor the number of its storage, in order of first occurrence."""
    numbers = {}
    return [numbers.setdefault(x.untyped_storage()._cdata, len(numbers)) for x in tensors(*trees)]


def assert_same(expected, found, tolerance):
    wanted, got = pytree.tree_leaves(expected), pytree.tree_leaves(found)
    assert len(wanted) == len(got)
    for a, b in zip(wanted, got, strict=True):
        assert type(a) is type(b)
        if not isinstance(a, torch.Tensor):
            assert a == b
            continue
        torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert (b.dtype, b.stride(), b.storage_offset()) == (a.dtype, a.stride(), a.storage_offset())
        assert b.is_conj() == a.is_conj()
    assert shared_memory(found) == shared_memory(expected)


def assign_all(tree):
    """Changes each tensor in place: what shares its memory changes with it."""
    for x in tensors(tree):
        if x.numel() and all(stride or size == 1 for size, stride in zip(x.shape, x.stride(), strict=True)):
            x.logical_not_() if x.dtype == torch.bool else x.add_(1)


def agrees(function, inputs, backend, dynamic):
    """Whether another back end does what eager does."""
    torch._dynamo.reset()
    try:
        own, others = copied(inputs), copied(inputs)
        expected = function(*own)
        assert_same((own, expected), (others, torch.compile(function, backend=backend, dynamic=dynamic)(*others)), 0)
    except (AssertionError, IndexError, RuntimeError):
        return False
    return True


def check(function, *calls, dynamic=True, tolerance=2e-5, fallbacks=(), options=OPTIONS):
    """Each call as in eager; all operations are compiled but ``fallbacks`` (None: any). Returns the reports."""
    torch._dynamo.reset()
    with _listening() as reports:
        compiled = torch.compile(function, backend="disc", dynamic=dynamic, options=options)
        for call in calls:
            arguments = call if isinstance(call, tuple) else (call,)
            own, others = copied(arguments), copied(arguments)
            torch.manual_seed(0)
            expected = function(*own)
            torch.manual_seed(0)
            found = compiled(*others)
            assert_same((own, expected), (others, found), tolerance)
            with torch.no_grad():
                assign_all(expected)
                assign_all(found)
            assert_same((own, expected), (others, found), tolerance)
    if fallbacks is not None:
        assert {fallback.op for report in reports for fallback in report.fallbacks} == set(fallbacks)
    return reports


_VIEWS = [
    "{v}[1:]", "{v}[:-1]", "{v}[..., ::2]", "{v}.transpose(0, -1)", "{v}.unsqueeze(-1)", "{v}.squeeze()",
    "{v}.reshape(-1)", "{v}.view({v}.shape)", "{v}.detach()", "{v}.expand(2, *{v}.shape)", "{v}.select(0, 0)",
    "{v}.chunk(2)[-1]", "{v}.split(1)[0]", "{v}.unbind(0)[0]", "{v}.flatten()", "{v}.contiguous()", "{v}.to({v}.dtype)",
    "{v}.narrow(0, 0, 1)", "{v}[None]", "{v}.movedim(0, -1)",
]  # fmt: skip
_VALUES = [
    "{v} + 1", "{v}.clone()", "torch.cat([{v}])", "{v} * 2", "{v}.abs()", "{v}.flip(0)", "torch.where({v} > 0, {v}, 0)",
    "{v}.sum(0, keepdim=True)", "{v}.roll(1)", "{v}.clamp(min=0)", "torch.zeros_like({v})",
]  # fmt: skip
_UPDATES = [
    "{v}.add_(1)", "{v}.mul_(2)", "{v}.zero_()", "{v}.copy_({v} * 2)", "{v}[0] = 3", "{v}.fill_(2)", "{v}.clamp_(0)",
]  # fmt: skip


def random_program(numbers: random.Random):
    """Python text of a function of x and y: views, values, updates; it returns some of what it has."""
    names, lines = ["x", "y"], []
    for i in range(numbers.randint(2, 7)):
        kind = numbers.choices([_VIEWS, _VALUES, _UPDATES], [55, 25, 20])[0]
        text = numbers.choice(kind).format(v=numbers.choice(names))
        if kind is not _UPDATES:
            text = f"t{i} = {text}"
            names.append(f"t{i}")
        lines.append(text)
    results = numbers.sample(names, min(len(names), numbers.randint(1, 4)))
    lines.append(f"return ({', '.join(results)},)")
    return "def f(x, y):\n" + "".join(f"    {line}\n" for line in lines)


def random_input(numbers: random.Random):
    """A tensor: row-major, transposed, or a piece of another."""
    rows, columns = numbers.randint(2, 5), numbers.randint(2, 5)
    return numbers.choice(
        [
            lambda: torch.randn(rows, columns),
            lambda: torch.randn(rows, columns).t(),
            lambda: torch.arange(60.0)[3:15].view(3, 4),
            lambda: torch.randn(4, 6)[:, 1:5:2],
            lambda: torch.randint(-9, 9, (rows, columns), dtype=torch.int32),
        ]
    )()
