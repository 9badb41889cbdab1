"""The statements that random programs are made of: templates whose operands are drawn by the generator.

A template names its operands `{a}`, `{b}`, `{c}`; `{d}` and `{e}` are dims of `{a}`, `{n}` is a size of one of its dims.
`{i}`, `{j}`, `{k}`, `{h}`, `{g}` and `{o}` are small numbers, `{C}` and `{L}` sizes of `{a}`, `{z}` is any scalar.
What PyTorch refuses for the operands drawn is not taken, so a template says nothing about dtypes and ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Template:
    """A statement: ``text`` with its operands open. ``like``: how `{b}` and `{c}` fit `{a}`."""

    text: str
    like: str = "broadcast"
    kind: str = "pointwise"
    weight: float = 1.0
    rank: int | None = None
    """The rank that `{a}` must have."""
    weights: tuple[str, ...] = ()
    """The shapes of the parameters `{w}`, `{u}`, `{v}`, or modules: see `layers.py`."""

    @property
    def operands(self) -> list[str]:
        """Which operands it has."""
        return [o for o in "abc" if "{" + o + "}" in self.text]


def _all(kind: str, texts: Sequence[str], like: str = "broadcast", weight: float = 1.0) -> list[Template]:
    return [Template(text, like, kind, weight / len(texts)) for text in texts]


_POINTWISE = [
    *_all("pointwise", [
        "{a} + 1", "{a} * 2", "1.5 - {a}", "{a} / 3", "{a} // 2", "{a} % 3", "-{a}", "{a}.abs()", "{a} ** 2",
        "{a} > 0",
        "{a} == 1", "~{a}.bool()", "torch.clamp({a}, -1, 1)", "torch.clamp({a}, min=0.5)", "{a}.nan_to_num()",
        "{a} & 6", "{a} | 1", "{a} ^ 3", "{a} << 1", "{a} >> 1", "{a} * {a}.size({d})", "{a} + {n} // 2",
        "torch.where({a} > 0, {a}, 0.25)", "torch.where({a} > 0, 1, {a})", "F.gelu({a})",
        "F.gelu({a}, approximate='tanh')",
        "F.silu({a})", "F.leaky_relu({a}, 0.1)", "F.softplus({a})", "F.hardtanh({a})", "F.elu({a})", "{a}.round()",
        "{a}.frac()", "{a}.logical_not()", "{a}.isnan()", "{a}.isfinite()", "{a}.signbit()", "{a}.conj()",
        "torch.fmod({a}, 2)", "torch.remainder({a}, -3)", "torch.pow({a}, 3)", "torch.pow(2.0, {a})",
        "torch.div({a}, 3, rounding_mode='floor')", "torch.div({a}, 3, rounding_mode='trunc')", "{a}.heaviside({a})",
        "torch.view_as_real({a})", "{a}.real", "{a}.imag", "{a}.angle()",
        "{a} + {z}", "{z} - {a}", "{a} * {z}", "{a} < {z}", "{z} / ({a}.abs() + 1)", "torch.where({a} > {z}, {a}, {z})",
        "{a} + torch.tensor({z})", "torch.maximum({a}, torch.tensor({z}))", "torch.where({a} > 0, {z}, {z})",
        "{a} // {z}", "torch.tensor({z}, dtype=torch.float64) * {a}", "torch.rsub({a}, {z}, alpha=2)",
        "torch.isin({a}, torch.arange(3))", "{a}.mul({z}).add({z})", "torch.sign({a}) * {n}", "{a}.view(torch.uint8)",
        "torch.clamp({a}, max={n})", "{a} * ({n} % 3)", "{a} - {n} * 0.5", "{a}.float() / max({n}, 1)",
    ], weight=6),
    *_all("pointwise", [
        "{a} + {b}", "{a} - {b}", "{a} * {b}", "torch.maximum({a}, {b})", "torch.minimum({a}, {b})", "{a} < {b}",
        "{a} >= {b}", "{a} != {b}", "{a} / ({b}.abs() + 1)", "{a} // ({b}.abs() + 1)", "{a} % ({b}.abs() + 1)",
        "{a} & {b}",
        "{a} | {b}", "{a} ^ {b}", "{a} << ({b} & 7)", "{a} >> ({b} & 7)", "torch.add({a}, {b}, alpha=2)",
        "torch.copysign({a}, {b})", "torch.atan2({a}, {b})", "torch.fmod({a}, {b}.abs() + 1)",
        "torch.logical_and({a}, {b})",
        "torch.logical_xor({a}, {b})", "torch.hypot({a}, {b})", "torch.fmax({a}, {b})", "torch.logaddexp({a}, {b})",
        "{a}.masked_fill({b} > 0, 2)", "torch.complex({a}, {b})", "torch.nextafter({a}, {b})",
        "torch.ldexp({a}, {b})",
        "torch.gcd({a}, {b})", "F.mse_loss({a}, {b}, reduction='none')", "F.huber_loss({a}, {b}, reduction='none')",
        "{a}.amax() + {b}", "{a} * {b}.sum()", "{a}.sum() / ({b}.abs() + 1)", "torch.where({a}.any(), {a}, {b})",
        "torch.lcm({a}, {b})", "torch.xlogy({a}.abs(), {b}.abs() + 1)", "torch.fmin({a}, {b})", "{a} <= {b}",
        "torch.isclose({a}, {b})", "torch.float_power({a}.abs() + 0.5, {b})", "torch.true_divide({a}, {b}.abs() + 2)",
    ], weight=8),
    *_all("pointwise", [
        "torch.where({c} > 0, {a}, {b})", "torch.addcmul({a}, {b}, {c})", "torch.lerp({a}, {b}, 0.5)",
        "torch.clamp({a}, {b}, {c})", "torch.addcdiv({a}, {b}, {c}.abs() + 1)", "torch.where({a} > {b}, {c}, -1)",
    ], weight=2),
]  # fmt: skip

_CASTS = _all(
    "cast",
    [
        *(f"{{a}}.to(torch.{t})" for t in ("float32", "float64", "float16", "bfloat16", "complex64", "bool")),
        *(f"{{a}}.nan_to_num(0, 100, -100).clamp(-100, 100).to(torch.int{n})" for n in (8, 16, 32, 64)),
        "{a}.nan_to_num(0, 100, 0).clamp(0, 100).to(torch.uint8)",
        "{a}.type_as({b})",
        "{a}.float()",
        "{a}.double()",
        "{a}.half()",
    ],
    like="any",
    weight=4,
)

_REDUCTIONS = _all("reduction", [
    "{a}.sum({d})", "{a}.sum({d}, keepdim=True)", "{a}.sum()", "{a}.mean({d}, keepdim=True)", "{a}.mean(({d}, {e}))",
    "{a}.amax({d})", "{a}.amin({d}, keepdim=True)", "{a}.prod({d})", "{a}.any({d})", "{a}.all({d}, keepdim=True)",
    "{a}.argmax({d})", "{a}.argmin({d}, keepdim=True)", "{a}.max({d}).values", "{a}.min({d}, keepdim=True).indices",
    "{a}.var({d}, keepdim=True)", "{a}.std({d}, correction=0)", "torch.logsumexp({a}, {d})", "{a}.norm(dim={d})",
    "torch.linalg.vector_norm({a}, 1, {d})", "{a}.sum(({d}, {e}), keepdim=True)", "{a}.amax(({d}, {e}))",
    "{a}.count_nonzero({d})", "torch.logsumexp({a}, ({d}, {e}))", "{a}.std(({d}, {e}))", "{a}.sum(dtype=torch.{t})",
    "{a}.mean({d}, dtype=torch.{t})", "{a}.argmax()", "{a}.min()", "{a}.prod()", "{a}.nanmedian({d}).values", "{a}.all()",
    "{a}.median()", "{a}.amax(tuple(range({a}.dim())))", "{a}.norm(p={i}, dim={d})", "{a}.max({d}).indices",
    "{a}.prod({d}, keepdim=True, dtype=torch.{t})", "{a}.std()", "{a}.kthvalue({i}, {d}).values",
    "{a}.nansum({d})", "{a}.median({d}).values", "{a}.aminmax(dim={d}).max", "torch.var_mean({a}, {d})[1]",
    "{a}.sum({d}, dtype=torch.float64)", "{a}.any()", "{a}.mean()", "{a}.kthvalue(1, {d}).values", "{a}.max()",
], weight=7)  # fmt: skip

_ROWS = _all("scan", [
    "{a}.cumsum({d})", "{a}.cumprod({d})", "{a}.cummax({d}).values", "{a}.logcumsumexp({d})",
    "torch.softmax({a}, {d})",
    "torch.log_softmax({a}, {d})", "F.normalize({a}, dim={d})", "F.layer_norm({a}, ({a}.size(-1),))",
    "F.rms_norm({a}, ({a}.size(-1),))", "{a}.sort({d}, stable=True).values",
    "{a}.sort({d}, descending=True, stable=True).indices",
    "{a}.topk(1, {d}).values", "{a}.argsort({d}, stable=True)", "{a}.diff(dim={d})",
    "{a} - {a}.mean({d}, keepdim=True)",
    "{a}.cummin({d}).values", "F.group_norm({a}, 1)", "{a}.cummax({d}).indices", "{a}.cumsum({d}, dtype=torch.{t})",
    "{a}.topk({i}, {d}, largest=False).values", "{a}.sort({d}).values.cumsum({d})", "F.softmin({a}, {d})",
    "{a} / {a}.sum({d}, keepdim=True).abs().clamp(min=1)", "{a}.flip({d}).cumsum({d}).flip({d})",
    "{a}.diff(n=2, dim={d}, prepend={a}.narrow({d}, 0, 1))", "torch.cumulative_trapezoid({a}, dim={d})",
    "({a} - {a}.amax({d}, keepdim=True)).exp().sum({d})", "{a}.softmax({d}, dtype=torch.{t})",
    "{a}.argsort({d}, stable=True, descending=True)", "{a}.sort({d}, stable=True).indices", "{a}.renorm(2, {d}, 1.0)", "torch.trapezoid({a}, dim={d})",
], weight=4)  # fmt: skip

_VIEWS = _all("view", [
    "{a}.transpose({d}, {e})", "{a}.mT", "{a}.permute(*range(1, {a}.dim()), 0)", "{a}.flatten({d}, {e})",
    "{a}.reshape(-1)",
    "{a}.unsqueeze({d})", "{a}.unsqueeze(-1)", "{a}.squeeze({d})", "{a}.reshape({a}.size(0), -1)",
    "{a}.movedim({d}, {e})",
    "{a}.unflatten({d}, (1, -1))", "{a}.unflatten({d}, (-1, 2))", "{a}.view({a}.size(0), -1)", "{a}[..., None]",
    "{a}.swapaxes({d}, -1)",
    "{a}.expand({n}, *[-1] * {a}.dim())", "{a}[None].expand(3, *[-1] * {a}.dim())", "{a}.unfold({d}, 2, 1)",
    "{a}.unfold({d}, 3, 2)",
    "{a}.diagonal(0, {d}, {e})", "{a}.diagonal(1, {d}, {e})", "{a}[0]", "{a}[-1]", "{a}.select({d}, 0)", "{a}[1:]",
    "{a}[:-1]",
    "{a}[..., ::2]", "{a}[..., 1::2]", "{a}[-3:]", "{a}[:, 1:-1]", "{a}.narrow({d}, 0, {a}.size({d}) // 2)",
    "{a}[::3]",
    "{a}[: {n} // 2]", "{a}.chunk(2, {d})[0]", "{a}.split(2, {d})[0]", "{a}.tensor_split(2, {d})[-1]",
    "{a}.unbind(0)[0]",
    "{a}.expand_as({a})", "{a}.T", "{a}.narrow({d}, 1, {a}.size({d}) - 1)", "{a}[..., -1:]", "{a}[:, ::2, None]",
    "{a}.view_as({a})", "{a}.view(torch.int32)", "torch.view_as_complex({a})", "{a}.permute(*reversed(range({a}.dim())))",
    "{a}.squeeze()", "{a}.reshape(-1, {i})", "{a}.reshape({i}, -1)", "{a}[{j}::{i}]", "{a}.unfold({d}, {i}, {k})",
    "{a}.narrow({d}, {n} // 2, {n} - {n} // 2)", "{a}.flatten({d})", "{a}[..., {n} // 2 :]", "{a}.mH", "{a}[None, ..., None]",
    "{a}.chunk({k}, {d})[-1]", "{a}.split({k}, {d})[-1]", "{a}.tensor_split({k}, {d})[1]", "{a}.unbind({d})[-1]",
    "{a}.diagonal(-1, {d}, {e})", "{a}.expand(2, *{a}.shape).reshape(-1, *{a}.shape[1:])", "{a}.select({d}, {n} // 2)",
    "{a}.transpose({d}, {e}).flatten({d}, {e})", "{a}.transpose(0, -1).reshape({a}.shape)", "{a}[{a}.dim() :]",
], weight=9)  # fmt: skip

_MOVES = [
    *_all("move", [
        "{a}.flip({d})", "{a}.roll(1, {d})", "{a}.roll({n} // 2, {d})", "F.pad({a}, (1, 2))",
        "F.pad({a}, (0, 0, 2, 1), value=0.5)",
        "F.pad({a}, (-1, 1))", "{a}.repeat(2, *[1] * ({a}.dim() - 1))", "{a}.repeat_interleave(2, {d})",
        "{a}.tile(2)", "{a}.clone()",
        "{a}.contiguous()", "{a}.tril()", "{a}.triu(1)", "F.pad({a}, (1, 1), mode='reflect')",
        "F.pad({a}, (1, 1), mode='circular')",
        "torch.rot90({a}, 1, ({d}, {e}))", "{a}.diag_embed()", "torch.cat([{a}, {a}.flip({d})], {d})",
        "F.one_hot({a}.long() & 3, 4)",
        "F.pixel_shuffle({a}, 1)", "{a}.repeat_interleave({n}, {d})", "torch.block_diag({a}, {a})", "{a}.fliplr()",
        "{a}.roll(({i}, -{j}), ({d}, {e}))", "{a}.flip(({d}, {e}))", "F.pad({a}, ({j}, {i}, {j}, -{j}))", "{a}.tril(-{i})",
        "torch.cat([{a}, torch.zeros_like({a})], {d})", "torch.cat([{a}[:1], {a}, {a}[-1:]])", "{a}.triu({i} - {k})",
        "torch.cat({a}.split({k}, {d})[::-1], {d})", "torch.stack({a}.unbind({d})[::-1], {d})", "{a}.diagflat()",
        "torch.nn.utils.rnn.pad_sequence([{a}, {a}[:1]])", "torch.rot90({a}, {k}, ({d}, {e}))", "torch.vander({a}, {k})",
        "torch.cat([{a}, {a} * 2, {a}], -1)[..., {i}:]", "torch.combinations({a}.flatten()[:5])", "{a}.T.contiguous().T",
    ], weight=4),
    *_all("move", ["torch.stack([{a}, {b}], {d})", "torch.stack([{a}, {b}], -1)"], like="same", weight=1),
    *_all("move", ["torch.cat([{a}, {b}], {d})", "torch.cat([{a}, {b}, {a}], {d})"], like="but d", weight=3),
]  # fmt: skip

_INDEXING = [
    *_all("index", [
        "{a}.index_select({d}, torch.arange({n}).flip(0))", "{a}[torch.arange({a}.size(0)) // 2]",
        "{a}[:, torch.arange({a}.size(1)) % 2]",
        "{a}.gather({d}, {a}.argsort({d}, stable=True))", "{a}.take_along_dim({a}.argmax({d}, keepdim=True), {d})",
        "torch.zeros_like({a}).scatter({d}, {a}.argsort({d}, stable=True), {a})", "{a}.masked_fill({a} > 0, 0)",
        "torch.zeros_like({a}).scatter_add({d}, {a}.argsort({d}, stable=True) // 2, {a})",
        "torch.ones_like({a}).index_add({d}, torch.arange({n}) // 2, {a})",
        "{a}.index_fill({d}, torch.arange({n} // 2), 3)",
        "{a}.index_put((torch.arange({a}.size(0)) // 2,), {a} * 2, accumulate=True)",
        "{a}.index_copy({d}, torch.arange({n}).flip(0), {a})",
        "torch.zeros_like({a}).scatter_reduce({d}, {a}.argsort({d}, stable=True) // 3, {a}, 'amax')",
        "{a}.put(torch.arange(1), {a}.reshape(-1)[:1])",
        "{a}.take(torch.arange({a}.size(0)))", "{a}[{a}.argmax({d})]", "torch.bucketize({a}, torch.arange(5) * 0.5)",
        "torch.searchsorted({a}.sort(-1).values, {a})", "torch.bincount(({a}.long() & 7).reshape(-1), minlength=8)",
        "{a}.slice_scatter({a}[:1] * 2, 0, 0, 1)", "{a}.select_scatter({a}.select({d}, 0) + 1, {d}, 0)",
        "{a}[{a}.size(0) // 2]", "{a}[..., torch.arange({a}.size(-1)) // 2]", "{a}[torch.arange({a}.size(0)) - {a}.size(0)]",
        "{a}[torch.arange(4) % {a}.size(0), torch.arange(4) % {a}.size(1)]", "{a}[torch.arange({i})[:, None] % {a}.size(0)]",
        "{a}[:, None, torch.arange(4) % {a}.size(1)]", "{a}[torch.arange(3) % {a}.size(0), ..., 0]",
        "{a}[torch.arange({k}) % {a}.size(0), :, torch.arange({k}) % {a}.size(-1)]",
        "{a}.index_reduce({d}, torch.arange({n}) // 2, {a}, 'amax')", "{a}.index_reduce({d}, torch.arange({n}) // 3, {a}, 'mean')",
        "{a}.index_reduce({d}, torch.arange({n}) // 2, {a}, 'prod', include_self=False)",
        "{a}.scatter_reduce({d}, {a}.argsort({d}, stable=True) // 2, {a}, 'sum', include_self=False)",
        "{a}.scatter_reduce({d}, {a}.argsort({d}, stable=True) // 2, {a}, 'mean')", "{a}.diagonal_scatter({a}.diagonal() + 1)",
        "{a}.scatter_reduce({d}, {a}.argsort({d}, stable=True) // 3, {a}, 'amin', include_self=False)",
        "{a}.masked_scatter({a} > 0, {a}.flip({d}))", "torch.searchsorted({a}.sort(-1).values, {a}, right=True)",
        "{a}.index_put((torch.arange({a}.size(0)) % {k},), {a}[:1], accumulate=True)", "{a}.take_along_dim({a}.argsort({d}), {d})",
        "{a}.index_put((torch.arange({a}.size(0)).flip(0),), {a})", "{a}.scatter({d}, {a}.argmin({d}, keepdim=True), {z})",
        "{a}.index_add({d}, torch.arange({n}) % {k}, {a}, alpha=2)", "{a}.gather({d}, {a}.argmax({d}, keepdim=True))",
        "torch.where({a} > 0, {a}.flip({d}), {a}.roll(1, {d}))", "{a}[{a}.argsort({d}, stable=True)[0]]",
    ], weight=4),
    *_all("index", ["{a}[({b}.long() & 1023) % {a}.size(0)]",
        "F.embedding(({b}.long() & 1023) % {a}.size(0), {a})", "{a}.index_select(0, ({b}.flatten().long() & 63) % {a}.size(0))",
        "{a}[..., ({b}.long() & 1023) % {a}.size(-1)]", "{a}.take(({b}.long() & 1023) % {a}.numel())",
        "{a}[({b}.long() & 1023) % {a}.size(0), ({b}.long() & 511) % {a}.size(1)]", "torch.isin({a}, {b})",
        "{a}.index_put((({b}.flatten().long() & 255) % {a}.size(0),), {a}[:1], accumulate=True)",
        "torch.searchsorted({a}.flatten().sort().values, {b})", "torch.bucketize({b}, {a}.flatten().sort().values, right=True)",
        ], like="any", weight=1.5),
]  # fmt: skip

_PRODUCTS = [
    *_all("product", [
        "{a} @ {a}.mT", "{a}.mT @ {a}", "torch.einsum('...ij,...kj->...ik', {a}, {a})",
        "F.linear({a}, {a}.reshape(-1, {a}.size(-1))[:4])",
        "{a} @ torch.ones({a}.size(-1), 3, dtype={a}.dtype)", "{a} @ {a}.reshape(-1, {a}.size(-1))[0]",
        "torch.outer({a}, {a})",
        "F.scaled_dot_product_attention({a}, {a}, {a})",
        "F.scaled_dot_product_attention({a}, {a}, {a}, is_causal=True)", "torch.cdist({a}, {a})",
        "F.conv1d({a}, torch.ones(2, {a}.size(1), 3, dtype={a}.dtype), padding=1)", "F.avg_pool1d({a}, 3, 1, 1)",
        "F.max_pool1d({a}, 3, 2, 1)",
        "F.avg_pool2d({a}, 2, 1)", "F.max_pool2d({a}, 3, 1, 1)", "F.adaptive_avg_pool1d({a}, 2)",
        "F.adaptive_avg_pool2d({a}, (1, 2))",
        "F.conv2d({a}, torch.ones(3, {a}.size(1), 2, 2, dtype={a}.dtype))", "F.interpolate({a}, scale_factor=2)",
        "F.interpolate({a}, scale_factor=2, mode='nearest')",
        "F.conv_transpose1d({a}, torch.ones({a}.size(1), 2, 2, dtype={a}.dtype))",
        "torch.cross({a}, {a}, dim=-1)", "torch.kron({a}, {a}[:1])", "F.unfold({a}, 2)",
        "F.cosine_similarity({a}, {a}, -1)",
    ], weight=3),
    *_all("product", ["{a} @ {b}", "{a} @ {b}.mT", "torch.matmul({a}, {b})", "torch.inner({a}, {b})",
        "torch.tensordot({a}, {b}, 1)",
        "F.scaled_dot_product_attention({a}, {b}, {b})", "torch.cdist({a}, {b})", "F.linear({a}, {b})"], like="any",
        weight=3),
]  # fmt: skip

_CREATION = _all("creation", [
    "torch.arange({n})", "torch.arange({n}, dtype=torch.float32)", "torch.zeros({n}, 3)", "torch.full(({n},), 2)",
    "torch.eye({n})",
    "torch.ones_like({a})", "torch.full_like({a}, 7)", "{a}.new_zeros({n})", "torch.tril(torch.ones({n}, {n}))",
    "torch.arange({n} - 1, -1, -1)",
    "torch.linspace(0, 1, {n})", "torch.tril_indices({n}, {n})[0]", "torch.hann_window({n})",
    "torch.zeros_like({a}, dtype=torch.int64)",
    "torch.arange({a}.size(0)).unsqueeze(1) < torch.arange({n})", "torch.tensor(3.0) * {n}",
    "torch.scalar_tensor({n}, dtype=torch.float64)",
    "torch.empty_like({a}).fill_(2)", "torch.meshgrid(torch.arange({n}), torch.arange(3), indexing='ij')[1]",
], weight=2)  # fmt: skip

EXPRESSIONS = [*_POINTWISE, *_CASTS, *_REDUCTIONS, *_ROWS, *_VIEWS, *_MOVES, *_INDEXING, *_PRODUCTS, *_CREATION]

# `{a}` changes; it may be a view, a result of a view, or an input.
MUTATIONS = [
    *_all("mutation", [
        "{a}.add_(1)", "{a}.mul_(2)", "{a}.relu_()", "{a}.zero_()", "{a}[0] = 1", "{a}[..., ::2] = 3",
        "{a}[1:] += 1", "{a}[..., 0].mul_(2)",
        "{a}.neg_()", "{a}.clamp_(-1, 1)", "{a}.transpose(0, -1).add_(1)", "{a}.fill_(0.5)",
        "{a}.diagonal().zero_()", "{a}[:-1] *= 2",
        "{a}[{a} > 0] = 0", "{a}.masked_fill_({a} > 1, 0)", "{a}[..., : {n} // 2] = -1", "{a}.t_()",
        "{a}.index_put_((torch.arange({a}.size(0)) // 2,), {a}[:1].clone(), accumulate=True)",
        "{a}[torch.arange({a}.size(0)).flip(0)] = {a}.clone()", "{a}[:, torch.arange({i}) % {a}.size(1)] = 4",
        "{a}.scatter_({d}, {a}.argsort({d}, stable=True), {a}.clone())", "{a}[-1] = {a}[0]", "{a}[::2] -= {a}[::2] * 2",
        "{a}.index_add_({d}, torch.arange({n}) // 2, {a}.clone())", "{a}.masked_scatter_({a} > 0, {a}.clone())",
        "{a}.index_copy_({d}, torch.arange({n}).flip(0), {a}.clone())", 
        "{a}.narrow({d}, 0, {n} // 2).add_(1)", "{a}.select({d}, -1).copy_({a}.select({d}, 0))", "{a}.real.add_(1)",
        "{a}.chunk(2, {d})[0].mul_(2)", "{a}.unbind({d})[0].fill_(1)", "{a}.movedim({d}, 0)[0] = 2", "{a}.sigmoid_()",
        "{a}.diagonal(1).add_(1)", "{a}.lerp_({a}.flip(0), 0.25)", "{a}.addcmul_({a}, {a}, value=0.1)",
        "F.relu({a}, inplace=True)", "torch.add({a}, 1, out={a})", "{a}.bitwise_xor_(3)", "{a}.floor_divide_(2)",
        "{a}.swapaxes({d}, {e})[..., 0] = 5", "{a}.view(torch.int32).bitwise_and_(-2)", "{a}[{n} // 2 :] = {z}",
        "{a}.scatter_add_({d}, {a}.argsort({d}, stable=True) // 2, {a}.clone())", "{a}.div_(3)", "{a}.mul_({z})",
        "{a}[0], {a}[-1] = {a}[-1].clone(), {a}[0].clone()", "{a}.transpose(0, 1)[1:] *= {z}", "{a}[..., None].neg_()",
        "{a}.squeeze().add_(1)", "{a}.detach().add_(1)", "{a}.clamp_(min={z})", "{a}.triu_(1)", "{a}.copy_({a}.roll(1, {d}))",
        "{a}.unsqueeze_(0)", "{a}.tril_()",
        "{a}.index_fill_({d}, torch.arange(1), 2)", "{a}.abs_()", "{a}.view(-1).mul_(3)", "{a}.cumsum_({d})",
    ], weight=2),
    *_all("mutation", ["{a}.add_({b})", "{a}.mul_({b})", "{a}.copy_({b})", "{a}.sub_({b}, alpha=2)",
        "{a}[...] = {b}", "{a} += {b}",
        "{a}.copy_({a}.flip(0))", "{a}[1:] = {a}[:-1].clone()", "{a}.logical_and_({b})",
        "{a}.maximum({b}, out={a})", "{a}[::2] += {b}", "{a}.transpose(0, -1).add_({b})", "{a}.masked_fill_({b} > 0, {z})",
        "{a}.select({d}, 0).copy_({b})", "{a}.div_({b}.abs() + 1)", "{a}[{b} > 0] = 1", "{a}.xlogy_({b}.abs() + 1)"],
        weight=2),
    *_all("mutation", ["{a}[({b}.long() & 1023) % {a}.size(0)] = 1",
        "{a}.index_fill_(0, ({b}.flatten().long() & 1023) % {a}.size(0), 2)",
        "{a}.index_put_((({b}.flatten().long() & 63) % {a}.size(0),), {a}[:1].clone(), accumulate=True)"],
        like="any", weight=0.5),
]  # fmt: skip
