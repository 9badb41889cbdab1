"""Composed formulas at magnitudes from 1e-45 to 1e36, at infinities and NaN: as close to f64 as eager PyTorch is."""

import torch
import torch.nn.functional as F
from torch.export import Dim

import disc

NAMES = "expm1 log1p sinh cosh asinh acosh atanh sigmoid tanh logit erf erfc lgamma digamma exp2 log2 sinc"
ACTIVATIONS = "softplus logsigmoid gelu silu mish celu elu selu hardswish"
ELEMENTWISE = {
    **{name: getattr(torch, name) for name in NAMES.split()},
    **{name: getattr(F, name) for name in ACTIVATIONS.split()},
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "xlogy": lambda x: torch.xlogy(x, x),
    "xlog1py": lambda x: torch.special.xlog1py(x, x),
    "hypot": lambda x: torch.hypot(x, x * 0.5),
    "logaddexp": lambda x: torch.logaddexp(x, x * 0.5),
    "complex abs": lambda x: torch.complex(x, x * 0.5).abs(),
    "erfcx": torch.special.erfcx,
    "ndtr": torch.special.ndtr,
    "log_ndtr": torch.special.log_ndtr,
    "huber": lambda x: F.huber_loss(x, x * 0, reduction="none"),
}
OF_ROWS = {
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "softmax": lambda x: F.softmax(x, 1),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
    "norm": lambda x: x.norm(dim=1),
    "mean": lambda x: torch.var_mean(x, 1)[1],
    "rms_norm": lambda x: F.rms_norm(x, (7,)),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(1), 1),
    "normalize": lambda x: F.normalize(x, dim=1),
    "cdist": lambda x: torch.cdist(x, x + 1, compute_mode="donot_use_mm_for_euclid_dist"),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x.flip(1)),
}
MAGNITUDES = [10.0**k for k in range(-45, 39, 3)]


class Formulas(torch.nn.Module):
    def forward(self, x, rows):
        return [fn(x) for fn in ELEMENTWISE.values()] + [fn(rows) for fn in OF_ROWS.values()]


def error(got, exact):
    """The relative error of each element, 0 for equal ones and for NaN that is meant."""
    got = got.double()
    relative = (got - exact).abs() / exact.abs().clamp_min(1e-38)
    relative[(got == exact) | (got.isnan() & exact.isnan())] = 0
    return relative.nan_to_num(float("inf"))


def test_formulas_are_as_exact_as_in_eager():
    values = [sign * m * v for m in MAGNITUDES for v in (1.0, 1.7, 3.3) for sign in (1, -1)]
    x = torch.tensor([*values, 0.0, float("inf"), -float("inf"), float("nan")])
    rows = torch.stack([m * torch.tensor([1.0, 1.0001, -0.3, 0.9, 1.3, -2, 0.5]) for m in MAGNITUDES])
    rows = torch.cat([rows, rows + 1e4])
    model = disc.compile(Formulas(), (x, rows), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))
    results = zip(
        [*ELEMENTWISE, *OF_ROWS],
        model(x, rows),
        Formulas()(x, rows),
        Formulas()(x.double(), rows.double()),
        strict=True,
    )
    wrong = []
    for name, got, eager, wide in results:
        exact = wide.float().double()
        worse = error(got, exact) > 4 * error(eager, exact) + 4e-6
        if worse.any():
            wrong.append(f"{name}: {got[worse][:3].tolist()}, expected {exact[worse][:3].tolist()}")
    assert not wrong, "\n".join(wrong)


class Norms(torch.nn.Module):
    def forward(self, x):
        return (
            F.layer_norm(x, (x.shape[1],), eps=0.0),
            F.group_norm(x, 2, eps=0.0),
            F.batch_norm(x.t(), None, None, training=True, eps=1e-12),
            x.var((0, 1)),
        )


def test_a_small_spread_around_a_large_mean():
    """The mean, rounded, is half a spread away from the true one."""
    torch.manual_seed(0)

    def make(rows):
        return 1e4 + 1e-3 * torch.randn(rows, 40)

    model = disc.compile(Norms(), (make(5),), dynamic_shapes=({0: Dim.AUTO},))
    for rows in (5, 2, 33):
        x = make(rows)
        results = zip(model(x), Norms()(x), Norms()(x.double()), strict=True)
        for got, eager, exact in results:
            size = exact.abs().max()
            assert (got - exact).abs().max() <= 1.01 * (eager - exact).abs().max() + 1e-5 * size


def test_a_row_of_equal_numbers_has_no_spread():
    class Spread(torch.nn.Module):
        def forward(self, x):
            return x.std(1), x.var(1, correction=0)

    model = disc.compile(Spread(), (torch.ones(3, 100),), dynamic_shapes=({0: Dim.AUTO},))
    for value in (1 / 3, 3.3333e7, 1e30, -1e-30):
        for spread in model(torch.full((7, 100), value)):
            assert (spread >= 0).all() and (spread <= 1e-6 * abs(value)).all()
    large = torch.tensor([[1e30, -1e30, 3e37, 5.0]]).repeat(1, 25)
    assert model(large)[0].isinf().all() and model(large)[1].isinf().all()
