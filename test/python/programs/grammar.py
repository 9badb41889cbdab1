"""The statements that random programs are made of: templates whose operands are drawn by the generator.

A template names its operands `{a}`, `{b}`, `{c}`; `{d}` and `{e}` are dims of `{a}`, `{n}` a size of one of its dims.
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
    "{a}.count_nonzero({d})",
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
    "{a}.cummin({d}).values", "F.group_norm({a}, 1)", "{a}.renorm(2, {d}, 1.0)", "torch.trapezoid({a}, dim={d})",
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
    "{a}.view_as({a})",
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
        "{a}[{a}.size(0) // 2]",
    ], weight=4),
    *_all("index", ["{a}[({b}.long() & 1023) % {a}.size(0)]",
        "F.embedding(({b}.long() & 1023) % {a}.size(0), {a})"], like="any", weight=1.5),
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
        "{a}.unsqueeze_(0)", "{a}.tril_()",
        "{a}.index_fill_({d}, torch.arange(1), 2)", "{a}.abs_()", "{a}.view(-1).mul_(3)", "{a}.cumsum_({d})",
    ], weight=2),
    *_all("mutation", ["{a}.add_({b})", "{a}.mul_({b})", "{a}.copy_({b})", "{a}.sub_({b}, alpha=2)",
        "{a}[...] = {b}", "{a} += {b}",
        "{a}.copy_({a}.flip(0))", "{a}[1:] = {a}[:-1].clone()", "{a}.logical_and_({b})",
        "{a}.maximum({b}, out={a})"], weight=2),
]  # fmt: skip

FLOW = [
    "{r} = torch.cond({p}, lambda t: t * 2, lambda t: t - 1, ({a},))",
    "{r} = torch.cond({p}, lambda t: t.cumsum({d}).to(t.dtype), lambda t: t.flip({d}), ({a},))",
    "if {p}:\n    {r} = {a} * 2\nelse:\n    {r} = {a} + {a}.flip({d})",
    "{r} = {a}\nif {p}:\n    {r} = torch.softmax({a}.float(), {d}).to({a}.dtype)",
    "if {p}:\n    {r} = {a} + 1\nelif {a}.numel() > 40:\n    {r} = {a} - 1\nelse:\n    {r} = {a}.clone()",
    "{r}, k = {a}.clone(), 0\nwhile {r}.sum() < 50 and k < 4:\n    {r} = {r} + 3\n    k += 1",
    "{r} = {a}[0] * 0\nfor i in range({a}.size(0)):\n    {r} = {r} * 2 + {a}[i]",
    "{r} = {a}.clone()\nfor i in range({a}.size(0)):\n    {r}[i] = {r}[i] + i",
    "{r} = {a}.sum()\nfor row in {a}:\n    if row.sum() > 2:\n        break\n    {r} = {r} + row.sum()",
    "{r} = torch.stack([row.sum() for row in {a}])",
    "{r} = {a}.clone()\nif {p}:\n    {r}.mul_(2)\n    {r}[0] = 1",
    "{r} = {a} if {p} else {a} * 3",
]
CONDITIONS = [
    "{b}.sum() > 0", "{b}.any()", "{b}.amax() > 1", "{b}.numel() > 20", "{b}.size(0) > 8",
    "{b}.max() > {b}.min() + 2",
    "bool(({b} > 0).all())", "{b}.mean() > 0", "({b} == 1).sum() > 1", "{b}.isnan().any()",
]  # fmt: skip
COMPACTING = [
    "{a}[{a} > 0]", "{a}.nonzero()", "torch.masked_select({a}, {a} > 0)", "{a}[{a}.reshape({a}.size(0), -1).any(1)]",
    "torch.unique({a})", "{a}.nonzero().sum(0)", "torch.where({a} > 0)[0]",
]  # fmt: skip
