"""Random graphs divided among back ends: no cycle, each operation in one place, the host's results."""

import os
import random
from collections import Counter

import pytest
import torch

import disc
from disc import _native
from disc.backends import Backend, Pattern, PythonFunction, Value, anything, op, tensor

GRAPHS = int(os.environ.get("DISC_RANDOM_PARTITIONS", "300"))
PASSES = (
    "disc-library-annotate{backends=a,b,c}",
    "disc-library-merge{backends=a,c}",
    "disc-library-partition",
)


def _graph(rng):
    """A module of random composites with random claims, also of matches that are not convex, and their number."""
    size = rng.randrange(2, 40)
    claims = [[] for _ in range(size)]
    for backend in "abc":
        for match in range(rng.randrange(1, size + 1)):
            members = rng.sample(range(size), min(size, rng.choice((1, 1, 1, 2, 3, 5))))
            for member in members:
                claims[member].append(f'#disc_plan.claim<"{backend}", "p{len(members)}", {match}>')
    lines, values = [], ["%x"]
    for i in range(size):
        if rng.random() < 0.15:
            lines.append(f"%t{i} = disc_tensor.permute {rng.choice(values)} [0] : tensor<4xf32> -> tensor<4xf32>")
            values.append(f"%t{i}")
        operands = [rng.choice(values[-8:]) for _ in range(rng.choice((1, 2, 2, 3)))]
        attributes = f" {{disc_plan.claims = [{', '.join(claims[i])}]}}" if claims[i] else ""
        types = ", ".join(["tensor<4xf32>"] * len(operands))
        lines.append(
            f'%v{i} = disc_tensor.composite "op" {i} ({", ".join(operands)}) {{}}{attributes} : ({types}) -> '
            f"tensor<4xf32> {{ disc_tensor.yield {operands[0]} : tensor<4xf32> }}"
        )
        values.append(f"%v{i}")
    results = rng.sample(values[1:], rng.randrange(1, 4) if len(values) > 4 else 1)
    types = ", ".join(["tensor<4xf32>"] * len(results))
    body = "\n  ".join([*lines, f"return {', '.join(results)} : {types}"])
    return f"func.func @main(%x: tensor<4xf32>) -> ({types}) {{\n  {body}\n}}", size


@pytest.mark.parametrize("part", range(3))
def test_random_graphs(part):
    for seed in range(part, GRAPHS, 3):
        text, size = _graph(random.Random(seed))
        module = _native.Module.parse(text)
        # What a cycle would make of the order, the verifier of dominance finds.
        module.run(f"builtin.module({','.join(PASSES)})", verify_each=True)
        places = Counter(id for id, *_ in module.composites())
        assert places == Counter(range(size)), seed
        regions = module.regions()
        inside = Counter(id for _, _, members, _, _ in regions for id, _, _ in members)
        owned = {id for id, _, owner, _ in module.composites() if owner is not None}
        assert set(inside) == owned and all(count == 1 for count in inside.values()), seed
        for _, backend, members, _, _ in regions:
            matches = {match for _, _, match in members}
            assert backend != "b" or len(matches) == 1, seed
        module.run("builtin.module(disc-library-select,disc-library-verify)", verify_each=True)


_OPERATIONS = {
    "aten.add.Tensor": torch.add,
    "aten.mul.Tensor": torch.mul,
    "aten.neg": torch.neg,
    "aten.relu": torch.relu,
    "aten.maximum": torch.maximum,
    "aten.abs": torch.abs,
}


class Reference(Backend):
    """Does with PyTorch what is exact in any implementation."""

    name = "reference"

    def __init__(self, names=tuple(_OPERATIONS), name="reference", merges=True):
        self.names, self.name, self.merges = names, name, merges

    def patterns(self):
        return [Pattern(name, op(name, tensor())) for name in self.names]

    def compile(self, region):
        def run(*given):
            known = dict(zip(map(id, region.run_inputs), given, strict=False))
            for operation in region.operations:
                args = [known[id(x)] if isinstance(x, Value) else x for x in operation.args]
                if operation.name in ("aten.add.Tensor", "aten.mul.Tensor"):
                    args = args[:2]
                known[id(operation.result)] = _OPERATIONS[operation.name](*args)
            return tuple(known[id(value)] for value in region.results)

        return PythonFunction(function=run)


class _Random(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.seed = seed

    def forward(self, x, y):
        rng = random.Random(self.seed)
        values = [x, y]
        for _ in range(rng.randrange(5, 25)):
            f = rng.choice(list(_OPERATIONS.values()))
            count = 2 if f in (torch.add, torch.mul, torch.maximum) else 1
            values.append(f(*(rng.choice(values[-6:]) for _ in range(count))))
            if rng.random() < 0.1:
                values.append(torch.floor(values[-1]))
        return tuple(values[-3:])


@pytest.mark.parametrize("seed", range(6))
def test_the_results_are_the_hosts(seed):
    rng = random.Random(seed)
    names = list(_OPERATIONS)
    rng.shuffle(names)
    backends = [
        Reference(tuple(names[:3]), "first", rng.random() < 0.7),
        Reference(tuple(names[1:5]), "second", rng.random() < 0.7),
    ]
    shapes = ({0: "n", 1: "m"}, {0: "n", 1: "m"})
    module, example = _Random(seed), (torch.randn(4, 5), torch.randn(4, 5))
    alone = disc.compile(module, example, dynamic_shapes=shapes)
    shared = disc.compile(module, example, dynamic_shapes=shapes, backends=backends)
    assert {d.backend for d in shared.backends} >= {"first"}
    for n, m in ((1, 1), (4, 5), (0, 3), (7, 13), (16, 17), (3, 0), (64, 31)):
        given = torch.randn(n, m), torch.randn(n, m)
        for found, expected in zip(shared(*given), alone(*given), strict=True):
            assert torch.equal(found, expected)


def test_anything_matches_numbers():
    class M(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.gelu(x, approximate="tanh") + 1

    class Gelu(Reference):
        def patterns(self):
            return [
                Pattern("gelu", op("aten.gelu", tensor("x"), approximate=anything("how")), lambda m: m.values["how"])
            ]

    model = disc.compile(M(), (torch.randn(3),), dynamic_shapes=({0: "n"},), backends=[Gelu()])
    assert [str(d.refusals[0].reason) for d in model.backends] == ["tanh"]
