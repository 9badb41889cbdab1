"""Statements of neural networks: products with weights, convolutions, pooling, norms, attention, losses.

A template's `weights` are the shapes of its `{w}`, `{u}`, `{v}`, or calls of `torch.nn`; they may use the sizes of `{a}`
(`s`, its second one `C`, its last one `L`) and the numbers drawn for the statement (`i`, `j`, `k`, `h`, `g`, `o`).
"""

from __future__ import annotations

from .grammar import Template


def _layers(rank: int | None, *cases: tuple[str, ...], weight: float = 1.0) -> list[Template]:
    return [
        Template(text, "any", "layer", weight / len(cases), rank=rank, weights=tuple(weights))
        for text, *weights in cases
    ]


_CONVOLUTIONS = [
    *_layers(3,
        ("F.conv1d({a}, {w}, {u}, stride={i}, padding={j}, dilation={h})", "(o, C, k)", "(o,)"),
        ("F.conv1d({a}, {w}, None, {i}, {j}, {h}, {g})", "(6, C // g, k)"),
        ("F.conv1d({a}, {w}, padding='same', dilation={h})", "(3, C, k)"),
        ("F.conv1d({a}, {w}, {u}, {i}, {j}, {h}, {C})", "(C, 1, k)", "(C,)"),
        ("F.conv_transpose1d({a}, {w}, {u}, stride={i}, padding={j}, dilation={h})", "(C, o, k)", "(o,)"),
        ("F.conv_transpose1d({a}, {w}, None, 2, {j}, 1, {g})", "(C, 2, k)"),
        ("{w}({a})", "torch.nn.Conv1d(C, o, k, padding=j, padding_mode='circular')"),
        weight=1.5),
    *_layers(4,
        ("F.conv2d({a}, {w}, {u}, stride={i}, padding={j}, dilation={h})", "(o, C, k, k)", "(o,)"),
        ("F.conv2d({a}, {w}, {u}, ({i}, 1), (1, {j}), (1, {h}))", "(o, C, 1, k)", "(o,)"),
        ("F.conv2d({a}, {w}, None, {i}, {j}, {h}, {g})", "(6, C // g, k, 2)"),
        ("F.conv2d({a}, {w}, padding='same', dilation={h})", "(3, C, k, 3)"),
        ("F.conv2d({a}, {w}, {u}, padding=1)", "(o, C, 3, 3)", "(o,)"),
        ("F.conv2d({a}, {w}, {u}, {i}, {j}, {h}, {C})", "(C, 1, k, k)", "(C,)"),
        ("F.conv2d({a}, {w}, None, {i}, {j}, 1, {C})", "(2 * C, 1, 3, 3)"),
        ("F.relu(F.conv2d({a}, {w}, {u}, {i}, 1) + {u}[0])", "(o, C, 3, 3)", "(o,)"),
        ("F.conv_transpose2d({a}, {w}, {u}, {i}, {j}, {i} - 1, 1, {h})", "(C, o, k, k)", "(o,)"),
        ("F.conv_transpose2d({a}, {w}, None, (2, 1), {j}, 0, {g})", "(C, 2, k, 3)"),
        ("F.max_pool2d(F.conv2d({a}, {w}, {u}), {k}, {i})", "(4, C, 2, 2)", "(4,)"),
        weight=2),
    *_layers(5,
        ("F.conv3d({a}, {w}, {u}, {i}, {j}, {h})", "(3, C, 2, k, 2)", "(3,)"),
        ("F.conv3d({a}, {w}, None, 1, {j}, 1, {g})", "(6, C // g, 1, 2, k)"),
        ("F.conv_transpose3d({a}, {w}, {u}, {i}, {j})", "(C, 2, 2, 2, k)", "(2,)"),
        weight=0.5),
]  # fmt: skip

_POOLING = [
    *_layers(3,
        ("F.avg_pool1d({a}, {k}, {i}, {j} if {k} >= 2 * {j} else 0, True)",), ("F.lp_pool1d({a}, 2, {k}, {i})",),
        ("F.max_pool1d({a}, {k}, {i}, {j} if {k} >= 2 * {j} else 0, {h})",),
        ("F.max_pool1d({a}, {k}, {i}, 0, {h}, ceil_mode=True)",),
        ("F.max_pool1d({a}, {k}, {i}, return_indices=True)[1]",), ("F.adaptive_avg_pool1d({a}, {k})",),
        ("F.adaptive_max_pool1d({a}, {k})",), ("F.interpolate({a}, size={k}, mode='linear')",),
        ("F.interpolate({a}, scale_factor={i}, mode='linear', align_corners=True)",),
        ("F.interpolate({a}, size={n} // 2 + 1, mode='nearest-exact')",),
        weight=1),
    *_layers(4,
        ("F.avg_pool2d({a}, {k}, {i}, {j} if {k} >= 2 * {j} else 0, True, False)",),
        ("F.avg_pool2d({a}, ({k}, 2), {i}, 0, True, True, 3)",),
        ("F.max_pool2d({a}, {k}, {i}, {j} if {k} >= 2 * {j} else 0, {h})",),
        ("F.max_pool2d({a}, ({k}, 1), {i}, 0, {h}, ceil_mode=True)",),
        ("F.max_pool2d({a}, {k}, {i}, return_indices=True)[1]",), ("F.adaptive_avg_pool2d({a}, ({k}, {i}))",),
        ("F.adaptive_max_pool2d({a}, ({k}, None))",), ("F.interpolate({a}, scale_factor={i}, mode='bilinear')",),
        ("F.interpolate({a}, size=({k}, {i}), mode='bilinear', align_corners=True)",),
        ("F.interpolate({a}, size=({k}, {n} + 1), mode='bicubic')",), ("F.interpolate({a}, scale_factor=0.5)",),
        ("F.interpolate({a}, size=({n}, {k}), mode='area')",), ("F.pixel_shuffle({a}, 2)",),
        ("F.pixel_unshuffle({a}, {i})",), ("F.channel_shuffle({a}, {g})",), ("F.lp_pool2d({a}, 2, {k}, {i})",),
        ("F.unfold({a}, ({k}, 2), {h}, {j}, {i})",), ("F.pad({a}, ({j}, {i}, {i}, {j}), mode='reflect')",),
        ("F.pad({a}, ({j}, {i}, 0, {k}), mode='replicate')",), ("F.pad({a}, ({j}, 1, {i}, {j}), mode='circular')",),
        ("F.grid_sample({a}, F.affine_grid({w}, ({a}.size(0), 1, {k}, {i}), False), align_corners=False)", "(s[0], 2, 3)"),
        weight=1.5),
    *_layers(5, ("F.avg_pool3d({a}, 2, {i})",), ("F.max_pool3d({a}, 2, {i}, 1, ceil_mode=True)",),
        ("F.adaptive_avg_pool3d({a}, ({k}, 1, 2))",), ("F.interpolate({a}, scale_factor=2, mode='trilinear')",),
        weight=0.3),
]  # fmt: skip

_NORMS = [
    *_layers(None,
        ("F.layer_norm({a}, ({L},), {w}, {u})", "(L,)", "(L,)"), ("F.layer_norm({a}, ({L},), {w})", "(L,)"),
        ("F.layer_norm({a}, {a}.shape[1:])",), ("F.rms_norm({a}, ({L},), {w})", "(L,)"),
        ("F.batch_norm({a}, {w}, {u} * {u} + 0.5, {u}, {w})", "(C,)", "(C,)"), ("F.instance_norm({a})",),
        ("F.batch_norm({a}, None, None, training=True)",), ("F.group_norm({a}, {g}, {w}, {u})", "(C,)", "(C,)"),
        ("F.instance_norm({a}, weight={w}, bias={u})", "(C,)", "(C,)"), ("F.local_response_norm({a}, {k})",),
        ("F.prelu({a}, {w})", "(C,)"), ("F.glu({a}, {d})",),
        weight=1.2),
]  # fmt: skip

_PRODUCTS = [
    *_layers(None,
        ("F.linear({a}, {w}, {u})", "(o, L)", "(o,)"), ("F.linear({a}, {w})", "(o, L)"), ("{a} @ {w}", "(L, o)"),
        ("F.relu(F.linear({a}, {w}, {u}))", "(o, L)", "(o,)"), ("{a} @ {w}.mT + {u}", "(o, L)", "(o,)"),
        ("F.linear(F.gelu(F.linear({a}, {w}, {u})), {v})", "(o, L)", "(o,)", "(L, o)"),
        ("{w} @ {a}", "(o, s[-2])"), ("{a} @ {w}", "(L,)"), ("{a} * F.sigmoid({a} @ {w})", "(L, L)"),
        ("{a} + F.linear({a}, {w}).tanh()", "(L, L)"), ("F.bilinear({a}, {a}, {w}, {u})", "(k, L, L)", "(k,)"),
        ("torch.einsum('...i,oi->o...', {a}, {w})", "(o, L)"), ("{w}({a})", "torch.nn.Linear(L, o)"),
        ("torch.einsum('...i,hoi->...ho', {a}, {w})", "(i, o, L)"), ("torch.softmax({a} @ {w}, -1)", "(L, o)"),
        weight=3),
    *_layers(2, ("torch.addmm({u}, {a}, {w}, beta={i}, alpha=0.5)", "(L, o)", "(o,)"), ("torch.mv({a}, {w})", "(L,)"),
        ("F.embedding_bag({a}.long() & 7, {w}, mode='sum')", "(8, o)"),
        ("F.embedding_bag({a}.long() & 7, {w}, mode='mean')", "(8, o)"), weight=0.5),
    *_layers(3, ("torch.baddbmm({u}, {a}, {w})", "(s[0], L, o)", "(o,)"), ("torch.bmm({a}, {w})", "(s[0], L, o)"),
        ("{w}({a})[0]", "torch.nn.GRU(L, o, batch_first=True)"), ("{w}({a})[0]", "torch.nn.LSTM(L, 4)"),
        ("{w}({a})[1][1]", "torch.nn.LSTM(L, 3, num_layers=2, bidirectional=True, batch_first=True)"),
        ("{w}({a})[0]", "torch.nn.RNN(L, o, nonlinearity='relu')"),
        ("{w}({a}, {a}, {a})[0]", "torch.nn.MultiheadAttention(L, 2 if L % 2 == 0 else 1, batch_first=True)"),
        weight=0.8),
    *_layers(None, ("F.embedding({a}.long() & 7, {w})", "(8, o)"), ("{w}[{a}.long() & 3, :, {a}.long() & 1]", "(4, o, 2)"),
        ("F.embedding({a}.long() & 7, {w}, padding_idx=0)", "(8, o)"), ("{w}[{a}.long() & 7]", "(8,)"),
        ("{w}.index_select(0, {a}.reshape(-1).long() & 7)", "(8, o)"), weight=0.8),
]  # fmt: skip

_ATTENTION = [
    *_layers(None,
        ("torch.softmax({a} @ {b}.mT * 0.3, -1) @ {b}",), ("F.scaled_dot_product_attention({a}, {b}, {b}, scale=0.3)",),
        ("F.scaled_dot_product_attention({a}, {a}, {a} * 2, ({a} @ {a}.mT) * 0.1)",),
        ("F.scaled_dot_product_attention({a}, {a}, {a}, torch.ones({a}.size(-2), {a}.size(-2), dtype=torch.bool).tril())",),
        ("torch.softmax(({a} @ {a}.mT).masked_fill(torch.ones({a}.size(-2), {a}.size(-2)).triu(1) > 0, -1e4), -1) @ {a}",),
        weight=1),
    *_layers(4,
        ("F.scaled_dot_product_attention({a}.repeat(1, 2, 1, 1), {a}, {a}, enable_gqa=True)",),
        ("F.scaled_dot_product_attention({a} @ {w}, {b} @ {w}, {b} @ {w}, is_causal=True)", "(L, o)"),
        ("F.scaled_dot_product_attention(({a} @ {w}).transpose(1, 2), {a}.transpose(1, 2) @ {w}, {a}.transpose(1, 2))",
         "(L, o)"),
        weight=0.6),
]  # fmt: skip

_LOSSES = [
    *_layers(None,
        ("F.nll_loss(F.log_softmax({a}, 1), {a}.argmax(1))",),
        ("F.cross_entropy({a}, {a}.argmin(1), label_smoothing=0.1)",), ("F.triplet_margin_loss({a}, {a}.flip(0), {a} + 1)",),
        ("F.cross_entropy({a}, {a}.argmax(1), {w}, ignore_index=0, reduction='none')", "(C,)"),
        ("F.cross_entropy({a}, torch.softmax({a}.flip(1), 1))",),
        ("F.kl_div(F.log_softmax({a}, -1), F.softmax({b}, -1), reduction='batchmean')",),
        ("F.binary_cross_entropy_with_logits({a}, {b}.sigmoid(), reduction='none')",),
        ("F.smooth_l1_loss({a}, {b}, beta=0.5)",), ("F.gaussian_nll_loss({a}, {b}, {a} * {a})",),
        ("F.margin_ranking_loss({a}, {b}, {a}.sign(), margin=0.5)",), ("F.pairwise_distance({a}, {b})",),
        ("F.poisson_nll_loss({a}, {b}.abs(), reduction='none')",), ("F.soft_margin_loss({a}, {b}.sign())",),
        ("F.hinge_embedding_loss({a}, {b}.sign(), reduction='none')",), ("F.multi_margin_loss({a}, {a}.argmax(1))",),
        weight=0.7),
]  # fmt: skip

LAYERS = [*_CONVOLUTIONS, *_POOLING, *_NORMS, *_PRODUCTS, *_ATTENTION, *_LOSSES]
