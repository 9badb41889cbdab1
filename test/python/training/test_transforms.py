"""Transforms of functions and gradients inside of models: compiled once, compared with eager PyTorch at many sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import grad
from torch.export import Dim
from torch.func import functional_call, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

import disc
from disc.frontend.stand_ins import difference
from disc.torch_compat.versions import MINOR

_SIZES = (1, 2, 7, 13, 3)
_BOUNDS = {torch.float64: (1e-10, 1e-10), torch.float32: (2e-4, 2e-5)}
B, T = Dim("B"), Dim("T")


class _Model(nn.Module):
    """A function of modules and tensors as a module."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.function(*self._modules.values(), *args)


@dataclass
class _Case:
    function: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    """The arguments of a size."""
    dims: tuple[Any, ...]
    parts: Callable[[], dict[str, nn.Module]] = dict


def _check(case: _Case, dtype: torch.dtype, sizes: Sequence[int] = _SIZES) -> None:
    torch.manual_seed(0)
    model = _Model(case.function, **case.parts()).to(dtype)

    def arguments(size: int) -> tuple[Any, ...]:
        return torch.utils._pytree.tree_map(lambda x: x.to(dtype) if x.is_floating_point() else x, case.arguments(size))

    compiled = disc.compile(model, arguments(5), dynamic_shapes=(case.dims,))
    relative, absolute = _BOUNDS[dtype]
    for size in sizes:
        given = arguments(size)
        expected = torch.utils._pytree.tree_map_only(Tensor, Tensor.detach, model(*given))
        torch.testing.assert_close(compiled(*given), expected, rtol=relative, atol=absolute)


def _network(*sizes: int, act: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), act()]
    return nn.Sequential(*layers[:-1])


def _r(*size: int) -> Tensor:
    return torch.randn(size)


def _labels(size: int) -> Tensor:
    return torch.randint(0, 4, (size,))


# -- torch.autograd.grad ---------------------------------------------------------------------------------------


def _step(m: nn.Module, x: Tensor, y: Tensor) -> Any:
    """A loss, its gradients, and the gradients of a penalty on them."""
    parameters = list(m.parameters())
    loss = F.cross_entropy(m(x), y)
    found = torch.autograd.grad(loss, parameters, create_graph=True)
    penalty = sum((g * g).sum() for g in found)
    return loss, found, torch.autograd.grad(penalty, parameters)


def _wgan(m: nn.Module, real: Tensor, fake: Tensor, part: Tensor) -> Any:
    x = (part * real + (1 - part) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
    loss = m(fake).mean() - m(real).mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()
    return loss, torch.autograd.grad(loss, list(m.parameters()))


def _laplacian(m: nn.Module, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (du,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
    seconds = [torch.autograd.grad(du[:, n].sum(), x, create_graph=True)[0][:, n] for n in range(2)]
    return seconds[0] + seconds[1]


def _maml(m: nn.Module, x: Tensor, y: Tensor, others: Tensor, wanted: Tensor) -> Any:
    own = dict(m.named_parameters())
    for _ in range(2):
        inner = F.mse_loss(functional_call(m, own, (x,)), y)
        found = torch.autograd.grad(inner, list(own.values()), create_graph=True)
        own = {name: p - 0.1 * g for (name, p), g in zip(own.items(), found, strict=True)}
    loss = F.mse_loss(functional_call(m, own, (others,)), wanted)
    return loss, torch.autograd.grad(loss, list(m.parameters()))


def _options(x: Tensor, many: Tensor) -> Any:
    x = x.detach().requires_grad_()
    other = (x + 1).detach().requires_grad_()
    with torch.no_grad():
        constant = x * 2
    y = x.sin() * x.sum() * constant
    batched = torch.autograd.grad(y, x, many, is_grads_batched=True, retain_graph=True)
    return batched, grad(y.sum(), (x, other), materialize_grads=True), constant


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 5 * ctx.saved_tensors[0]  # Not the derivative: the function's own formula counts.


class _Sine(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 5 * ctx.saved_tensors[0]


def _functions(x: Tensor) -> Any:
    plain = _Cube.apply(x) + _Sine.apply(x)
    v = x.detach().requires_grad_()
    (first,) = torch.autograd.grad(_Cube.apply(v).sum(), v, create_graph=True)
    return plain, first, torch.autograd.grad((first * first).sum(), v)


def _checkpointed(m: nn.Module, x: Tensor) -> Any:
    y = checkpoint(m, x, use_reentrant=False)
    return y, torch.autograd.grad(y.pow(2).sum(), list(m.parameters()))


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(10, 8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        y = self.norm(x)
        return (x + self.attention(y, y, y, need_weights=False)[0]).mean(1)  # type: ignore[no-any-return]


# -- torch.func ------------------------------------------------------------------------------------------------


def _per_sample(m: nn.Module, x: Tensor, y: Tensor) -> Any:
    def loss(parameters: Any, one: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(m, parameters, (one[None],)), label[None])

    return vmap(torch.func.grad_and_value(loss), in_dims=(None, 0, 0))(dict(m.named_parameters()), x, y)


def _score(m: nn.Module, x: Tensor) -> Tensor:
    def one(v: Tensor) -> Tensor:
        jacobian = jacrev(lambda u: m(u[None])[0])(v)
        return jacobian.diagonal().sum() + 0.5 * m(v[None]).pow(2).sum()

    return vmap(one)(x).mean()  # type: ignore[no-any-return]


def _regularised(m: nn.Module, x: Tensor) -> Any:
    def loss(parameters: Any) -> Tensor:
        jacobians = vmap(jacrev(lambda v: functional_call(m, parameters, (v,))))(x)
        return jacobians.pow(2).sum((1, 2)).mean()

    return torch.func.grad_and_value(loss)(dict(m.named_parameters()))


def _vjp(x: Tensor, many: Tensor) -> Any:
    y, back = vjp(lambda v: v.exp() * v.sum(0), x)
    return y, back(many[0]), vmap(back)(many)


def _ensemble(*args: Any) -> Any:
    *members, x = args
    parameters, buffers = torch.func.stack_module_state(list(members))
    return vmap(lambda p, b: functional_call(members[0], (p, b), (x,)))(parameters, buffers)


def _many_rules(x: Tensor) -> Tensor:
    y = x.cumsum(0) * x.amax() + x.sort()[0] * x.var(correction=0) + torch.logsumexp(x, 0) + x.norm()
    return (y + F.pad(x, (1, 1))[1:-1] + x.softmax(0) + torch.cat([x, x])[: x.shape[0]]).sum()


def _in_place(x: Tensor) -> Any:
    def one(v: Tensor) -> Tensor:
        w = v.clone().mul_(2)
        w[0] = 1.0
        return w.add_(v.sum()).sin_()

    return vmap(one)(x), torch.func.grad(lambda v: one(v).sum())(x)


_b, _bt = {0: B}, {0: B, 1: T}
_CASES = {
    "double backward": _Case(
        _step, lambda n: (_r(n, 8), _labels(n)), (_b, _b), lambda: {"m": _network(8, 16, 4, act=nn.GELU)}
    ),
    "gradient penalty": _Case(
        _wgan,
        lambda n: (_r(n, 8), _r(n, 8), torch.rand(n, 1)),
        (_b, _b, _b),
        lambda: {"m": _network(8, 16, 1, act=nn.LeakyReLU)},
    ),
    "laplacian": _Case(_laplacian, lambda n: (_r(n, 2),), (_b,), lambda: {"m": _network(2, 16, 1)}),
    "inner loop": _Case(
        _maml,
        lambda n: (_r(n, 3), _r(n, 1), _r(n + 2, 3), _r(n + 2, 1)),
        (_b, _b, {0: T}, {0: T}),
        lambda: {"m": _network(3, 16, 1)},
    ),
    "options of grad": _Case(_options, lambda n: (_r(n), _r(n + 1, n)), (_b, {0: T, 1: B})),
    "autograd.Function": _Case(_functions, lambda n: (_r(n, 3),), (_b,)),
    "checkpoint": _Case(_checkpointed, lambda n: (_r(n, 3),), (_b,), lambda: {"m": _network(3, 8, 2)}),
    "gradients of attention": _Case(
        lambda m, t: torch.autograd.grad(m(t).pow(2).sum(), list(m.parameters())),
        lambda n: (torch.randint(0, 10, (n, n + 2)),),
        (_bt,),
        lambda: {"m": _Attention()},
    ),
    "autograd.functional": _Case(
        lambda x, v: (
            torch.autograd.functional.hvp(lambda u: (u.sin() * u.sum()).sum(), x, v),
            torch.autograd.functional.jacobian(lambda u: u.sin() * u.sum(), x, vectorize=True),
        ),
        lambda n: (_r(n), _r(n)),
        (_b, _b),
    ),
    "per sample": _Case(_per_sample, lambda n: (_r(n, 8), _labels(n)), (_b, _b), lambda: {"m": _network(8, 16, 4)}),
    "per sample, convolution": _Case(
        _per_sample,
        lambda n: (_r(n, 1, 8, 8), _labels(n)),
        (_b, _b),
        lambda: {
            "m": nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1),
                nn.GroupNorm(2, 4),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(4, 4, 3),
                nn.BatchNorm2d(4).eval(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(4, 4),
            )
        },
    ),
    "per sample, attention": _Case(
        _per_sample,
        lambda n: (torch.randint(0, 10, (n, n + 2)), torch.randint(0, 8, (n,))),
        (_bt, _b),
        lambda: {"m": _Attention()},
    ),
    "hessian times vector": _Case(
        lambda m, x, v: jvp(torch.func.grad(lambda u: m(u).sum()), (x,), (v,)),
        lambda n: (_r(n, 8), _r(n, 8)),
        (_b, _b),
        lambda: {"m": _network(8, 16, 4)},
    ),
    "score matching": _Case(_score, lambda n: (_r(n, 3),), (_b,), lambda: {"m": _network(3, 16, 3)}),
    "jacobian regularisation": _Case(_regularised, lambda n: (_r(n, 3),), (_b,), lambda: {"m": _network(3, 16, 2)}),
    "jacobians": _Case(
        lambda a, b: [f(lambda a, b: (a @ b, (a * b).cumsum(0)), argnums=(0, 1))(a, b) for f in (jacrev, jacfwd)],
        lambda n: (_r(n), _r(n)),
        (_b, _b),
    ),
    "hessians": _Case(
        lambda x: (
            vmap(hessian(lambda v: (v.tanh() * v.sum()).sum()))(x),
            jacrev(vmap(lambda v: v.sin().sum()))(x),
            hessian(lambda v: (v.tanh() * v.sum()).sum())(x[0]),
        ),
        lambda n: (_r(n, n + 1),),
        (_bt,),
    ),
    "auxiliary values": _Case(
        lambda d: (
            torch.func.grad(lambda d: ((d["a"] * d["b"].sin()).sum(), {"c": d["a"] + 1}), has_aux=True)(d),
            jacrev(lambda v: (v.sin(), v + 1), has_aux=True)(d["a"]),
            jacfwd(lambda v: (v.sin(), v + 1), has_aux=True)(d["a"]),
        ),
        lambda n: ({"a": _r(n), "b": _r(n)},),
        ({"a": _b, "b": _b},),
    ),
    "vjp": _Case(_vjp, lambda n: (_r(n, 3), _r(n + 1, n, 3)), (_b, {0: T, 1: B})),
    "dims of vmap": _Case(
        lambda a, b: vmap(lambda a, b: (a.cumsum(0) * b).softmax(0), in_dims=(1, 0), out_dims=1)(a, b),
        lambda n: (_r(n + 1, n), _r(n)),
        ({0: T, 1: B}, _b),
    ),
    "third derivative": _Case(
        lambda x: vmap(torch.func.grad(torch.func.grad(torch.func.grad(lambda x: x.sin() * x**3))))(x),
        lambda n: (_r(n),),
        (_b,),
    ),
    "batching rules": _Case(lambda x: vmap(torch.func.grad(_many_rules))(x), lambda n: (_r(n, n + 1),), (_bt,)),
    "in place": _Case(_in_place, lambda n: (_r(n, 3),), (_b,)),
    "closed over": _Case(
        lambda x: (lambda h: torch.func.grad(lambda v: (v * h).sum() * h.sum())(x) + h)(x.sin() * 2),
        lambda n: (_r(n, 3),),
        (_b,),
    ),
    "ensemble": _Case(_ensemble, lambda n: (_r(n, 3),), (_b,), lambda: {f"m{n}": _network(3, 8, 2) for n in range(3)}),
}


if MINOR < 13:
    del _CASES["per sample, attention"]  # An internal error of PyTorch 2.12 ends its trace.


@pytest.mark.share(2)
@pytest.mark.parametrize("name", _CASES)
def test_equals_eager(name: str) -> None:
    _check(_CASES[name], torch.float64)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["double backward", "per sample", "hessian times vector", "hessians"])
def test_equals_eager_in_single_precision(name: str) -> None:
    _check(_CASES[name], torch.float32)


def test_autocast() -> None:
    def run(m: nn.Module, x: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = m(x)
        return torch.autograd.grad(y.float().pow(2).sum(), list(m.parameters()))

    torch.manual_seed(0)
    model = _Model(run, m=_network(3, 8, 2))
    compiled = disc.compile(model, (_r(5, 3),), dynamic_shapes=((_b,),))
    for size in _SIZES:
        x = _r(size, 3)
        torch.testing.assert_close(compiled(x), model(x), rtol=0.02, atol=0.02)


def test_randomness() -> None:
    def run(x: Tensor) -> Any:
        return (
            vmap(lambda v: torch.rand_like(v), randomness="different")(x),
            vmap(lambda v: torch.rand_like(v) + 0 * v, randomness="same")(x),
        )

    compiled = disc.compile(run, (_r(5, 3),), dynamic_shapes=(_b,))
    different, same = compiled(_r(7, 3))
    assert different.unique().numel() == 21 and same.unique().numel() == 3
    assert torch.equal(same, same[:1].expand(7, 3))


def test_the_transformed_function_itself() -> None:
    compiled = disc.compile(vmap(torch.func.grad(lambda v: v.sin().sum())), (_r(5, 3),), dynamic_shapes=(_b,))
    for size in _SIZES:
        x = _r(size, 3)
        torch.testing.assert_close(compiled(x), x.cos())


def _branch(v: Tensor) -> Tensor:
    return (v.sin() if v.sum() > 0 else v.cos()).sum()


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (
            lambda x: torch.func.grad(lambda v: (v.sin() if v.sum() > 0 else v.cos()).sum())(x),
            disc.errors.ControlFlowError,
            "torch.func transforms",
        ),
        (
            lambda x: vmap(lambda v: torch.cond(v.sum() > 0, torch.sin, torch.cos, (v,)))(x),
            disc.errors.ControlFlowError,
            "torch.func transforms",
        ),
        (
            lambda x: (lambda v: torch.autograd.grad(_branch(v), v))(x.detach().requires_grad_()),
            disc.errors.GradientError,
            "control flow",
        ),
        (lambda x: x.detach().requires_grad_().sum().backward(), disc.errors.GradientError, "autograd.grad"),
        (lambda x: vmap(torch.sin, chunk_size=2)(x), disc.errors.DynamicDimError, "chunk_size"),
        (lambda x: jacrev(lambda v: v.sin(), chunk_size=2)(x), disc.errors.DynamicDimError, "chunk_size"),
        (lambda x: torch.func.linearize(lambda v: v.exp(), x)[1](x), disc.errors.DynamicDimError, "dynamic sizes"),
        (lambda x: vmap(torch.rand_like)(x), disc.errors.ModelError, "randomness"),
    ],
)
def test_unsupported(function: Callable[..., Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as raised:
        disc.compile(function, (_r(5, 3),), dynamic_shapes=(_b,))
    assert "test_transforms.py" in str(raised.value)


def test_numbers_for_sizes_are_found_again() -> None:
    """A constant that differs between the two traces is an error, a size is not."""

    def graph(number: int) -> torch.fx.Graph:
        traced = torch.fx.symbolic_trace(lambda x: (x * 2).reshape(number))
        return traced.graph

    assert difference(graph(3), graph(3)) is None
    found = difference(graph(100_003), graph(150_001))
    assert found is not None and found.target == "reshape"
