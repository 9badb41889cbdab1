"""Which torch ops reach the lowering whole, and which are decomposed by PyTorch first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch_mlir.extras.fx_importer import _get_mlir_op_name_for_schema

from ..torch_compat.operators import (
    HigherOrderOperator,
    OperatorBase,
    OpOverload,
    all_operator_names,
    override_composite_implicit_decomp,
    suggest_memory_format,
    torch_decompositions,
)
from ..torch_compat.symbols import statically_known_true
from . import recurrent, transformer_layers
from .backward import BACKWARD
from .distances import DISTANCES
from .loss_backward import LOSSES
from .lower import IGNORED
from .registry import find_rule
from .resampling_backward import RESAMPLING

# Composite ops that export would take apart, although nobody has to.
_KEPT_COMPOSITES = ("linear", "matmul", "layer_norm", "rms_norm", "softmax.int", "log_softmax.int", "chunk")


def _trilinear(
    x: torch.Tensor,
    y: torch.Tensor,
    z: torch.Tensor,
    expand_x: Sequence[int],
    expand_y: Sequence[int],
    expand_z: Sequence[int],
    summed: Sequence[int],
    unroll: int = 1,
) -> torch.Tensor:
    """The sum over dims of the product of three tensors, after inserting unit dims."""
    # PyTorch takes the dims for sets, and one that no tensor has for empty.
    for dim in sorted(expand_x):
        x = x.unsqueeze(dim)
    for dim in sorted(expand_y):
        y = y.unsqueeze(dim)
    for dim in sorted(expand_z):
        z = z.unsqueeze(dim)
    product = x * y * z
    absent = set(expand_x) & set(expand_y) & set(expand_z)
    if unroll in absent:
        product = product * 0
    for dim in absent - set(summed):
        product = product.narrow(dim, 0, 0)
    # A sum over no dimensions would be one over all.
    return product.sum(tuple(summed)) if len(summed) else product


def _addbmm(
    x: torch.Tensor, lhs: torch.Tensor, rhs: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """beta * x + alpha * the sum of products over the batch."""
    if not (x.is_floating_point() or x.is_complex()):
        beta, alpha = int(beta), int(alpha)
    product = torch.bmm(lhs, rhs).sum(0, dtype=x.dtype)
    product = product if alpha == 1 else product * alpha
    return product.expand_as(x + product) if beta == 0 else x * beta + product if beta != 1 else x + product


def _tensorinv(x: torch.Tensor, ind: int = 2) -> torch.Tensor:
    """The inverse of the matrix that has the first ``ind`` dims for rows, and the others for columns."""
    count = math.prod(x.shape[ind:])
    return torch.linalg.inv(x.reshape(count, count)).reshape([*x.shape[ind:], *x.shape[:ind]])


def _embedding_renorm(weight: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float) -> torch.Tensor:
    """The rows that ``indices`` name, made no longer than ``max_norm``."""
    named = weight.new_zeros([weight.shape[0]], dtype=torch.bool).index_fill(0, indices.reshape(-1), 1)
    norm = torch.linalg.vector_norm(weight, norm_type, 1)
    scale = torch.where(named & (norm > max_norm), max_norm / (norm + 1e-7), 1.0)
    return weight * scale.unsqueeze(1).to(weight.dtype)


def _put(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    """x with ``source`` at the row-major numbers in ``index``."""
    flat = x.reshape(-1).index_put([index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def _isin(
    elements: torch.Tensor | float, test: torch.Tensor, *, assume_unique: bool = False, invert: bool = False
) -> torch.Tensor:
    """Which elements are among others, of which there may be none."""
    if not isinstance(elements, torch.Tensor):
        elements = torch.full((), elements, dtype=torch.int64 if isinstance(elements, int) else torch.float64)
        elements = elements.to(torch.result_type(elements, test))
    common = torch.promote_types(elements.dtype, test.dtype)
    rows, elements, floats = test.reshape(-1).to(common), elements.to(common), common.is_floating_point
    # NaN is in no set, and among the rows would mislead the search, which compares.
    infinite = (rows == torch.inf).any() if floats else None
    rows, _ = (torch.where(rows != rows, torch.inf, rows) if floats else rows).sort()
    place = torch.searchsorted(rows, elements)
    found = torch.cat([rows, rows.new_zeros(1)]).gather(0, place.reshape(-1)).reshape(place.shape) == elements
    found = found & (place < rows.shape[0])
    if infinite is not None:
        found = found & ((elements != torch.inf) | infinite)
    return ~found if invert else found


def _masked_index(
    x: torch.Tensor, mask: torch.Tensor, indices: Sequence[torch.Tensor | None], fill: float
) -> torch.Tensor:
    """x at the indices, which count from the end where they are negative, and a number where the mask is false."""
    places = [
        None if index is None else index.clamp(-size, size - 1) for index, size in zip(indices, x.shape, strict=False)
    ]
    return torch.ops.aten._unsafe_index.Tensor(x, places).masked_fill(~mask, fill)


def _as_strided_scatter(
    x: torch.Tensor, source: torch.Tensor, size: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> torch.Tensor:
    """x with ``source`` at the elements that as_strided of a dense tensor takes."""
    place = torch.full([], offset or 0, dtype=torch.int64)
    for dim, (extent, stride) in enumerate(zip(size, strides, strict=True)):
        steps = torch.arange(extent) * stride
        place = place + steps.reshape([extent, *[1] * (len(size) - 1 - dim)])
    flat = x.reshape(-1).index_put([place.expand(size).reshape(-1)], source.reshape(-1))
    return flat.reshape(x.shape)


def _resize(x: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """The elements of x in memory order as the first ones of a tensor in the memory format; further ones are NaN, or
    the largest number, as PyTorch's deterministic mode has it."""
    strides = x.stride()
    order = sorted(range(x.dim()), key=lambda d: -strides[d])
    flat = x.permute(order).reshape(-1)
    count = math.prod(size)
    if count <= flat.shape[0]:
        flat = flat[:count]
    else:
        floating = x.is_floating_point() or x.is_complex()
        rest = math.nan if floating else True if x.dtype == torch.bool else torch.iinfo(x.dtype).max
        flat = torch.cat([flat, flat.new_full([count - flat.shape[0]], rest)])
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        channels, *inner = size[1:]
        return flat.reshape([size[0], *inner, channels]).movedim(-1, 1).clone(memory_format=memory_format)
    return flat.reshape(size).clone(memory_format=torch.contiguous_format)


def _avg_pool_backward(count: int) -> Callable[..., torch.Tensor]:
    """The gradient of an average over ``count`` dims: the windows' shares, added where the windows overlap."""
    transposed = torch.nn.functional.conv_transpose2d if count == 2 else torch.nn.functional.conv_transpose3d

    def backward(
        grad: torch.Tensor,
        x: torch.Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> torch.Tensor:
        kernel, padding = _for_each(kernel, count), _for_each(padding, count)
        stride = _for_each(stride, count) if len(stride) else kernel
        share = grad
        for d in range(count):
            first = torch.arange(grad.shape[d - count]) * stride[d] - padding[d]
            size = x.shape[d - count]
            last = (first + kernel[d]).clamp(max=size + padding[d])
            length = last - first if count_include_pad else last.clamp(max=size) - first.clamp(min=0)
            if divisor_override is None:
                share = share / length.to(grad.dtype).reshape([-1, *[1] * (count - 1 - d)])
        if divisor_override is not None:
            share = share / divisor_override
        # All channels are images of one channel: the kernel's shape is static.
        images = share.reshape([-1, 1, *grad.shape[-count:]])
        spread = transposed(images, grad.new_ones([1, 1, *kernel]), stride=stride)
        for d in range(count):
            dim, size = d + 2, x.shape[d - count]
            spread = torch.constant_pad_nd(spread, [0, 0] * (count - 1 - d) + [0, size + padding[d]])
            spread = spread.narrow(dim, padding[d], size)
        return spread.reshape(x.shape).clone(memory_format=torch.contiguous_format)

    return backward


def _for_each(values: Sequence[int], count: int) -> list[int]:
    """One value for each dim; a single one is for all."""
    return list(values) * count if len(values) == 1 else list(values)


def _adaptive_avg_pool_backward(count: int) -> Callable[..., torch.Tensor]:
    """The gradient of an average over even windows: a product for each dim with the windows' weights."""

    def backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        compute = torch.float64 if grad.dtype == torch.float64 else torch.float32
        share = grad.to(compute)
        for dim in range(-count, 0):
            size, windows = x.shape[dim], grad.shape[dim]
            window, place = torch.arange(windows).unsqueeze(1), torch.arange(size)
            first, last = window * size // windows, ((window + 1) * size + windows - 1) // windows
            weights = ((place >= first) & (place < last)).to(compute) / (last - first).to(compute)
            share = (share.movedim(dim, -1) @ weights).movedim(-1, dim)
        return share.to(grad.dtype).clone(memory_format=_format_of(x))

    return backward


def _weight_norm_backward(
    grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of v and g in g * v / |v|, where the norm is taken over all dims but one."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    compute = norms.dtype
    along = (grad.to(compute) * v.to(compute)).sum(others, keepdim=True)
    norms, scale = norms.reshape(along.shape), g.to(compute).reshape(along.shape)
    of_v = (grad.to(compute) - v.to(compute) * (along / (norms * norms))) * (scale / norms)
    return of_v.to(v.dtype), (along / norms).reshape(g.shape).to(g.dtype)


def _format_of(x: torch.Tensor) -> torch.memory_format:
    return suggest_memory_format(x) if x.dim() in (4, 5) else torch.contiguous_format


def _scatter_backward(count: int) -> Callable[..., torch.Tensor]:
    """The gradient of a maximum over windows: added where the maximum was found."""

    def backward(grad: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        # The places in the flattened last dims are the last argument.
        indices = rest[-1]
        zeros = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(-count)
        result = zeros.scatter_add(-1, indices.flatten(-count), grad.flatten(-count)).reshape(x.shape)
        return result.clone(memory_format=_format_of(x))

    return backward


def _upsample_nearest_backward(count: int, exact: bool) -> Callable[..., torch.Tensor]:
    """The gradient of an image scaled without interpolation: a sum for each pixel that was repeated."""

    def backward(
        grad: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None
    ) -> torch.Tensor:
        result = grad
        for d in range(count):
            size, scale = input_size[d + 2], scales[d] if d < len(scales) else None
            step = 1.0 / scale if scale is not None and scale > 0 else size / output_size[d]
            place = torch.arange(output_size[d], dtype=torch.float32)
            source = ((place + 0.5 if exact else place) * step).to(torch.int64).clamp(max=size - 1)
            shape = [*result.shape[: d + 2], size, *result.shape[d + 3 :]]
            result = result.new_zeros(shape).index_add(d + 2, source, result)
        return result.clone(memory_format=_format_of(grad))

    return backward


def _range_of(x: torch.Tensor, low: float, high: float, more: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The range of a histogram: that of the data where the one given is empty, and never empty."""
    first, last = (x.amin(), x.amax()) if low == high else (x.new_full([], low), x.new_full([], high))
    same = first == last
    return torch.where(same, first - more, first), torch.where(same, last + more, last)


def _histc(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """The number of elements in each of ``bins`` equal parts of a range."""
    flat = x.reshape(-1)
    low, high = _range_of(flat, min, max, 1.0)
    inside = (flat >= low) & (flat <= high)
    place = ((torch.where(inside, flat, low) - low) * bins / (high - low)).to(torch.int64)
    return x.new_zeros([bins]).scatter_add(0, place.clamp(0, bins - 1), inside.to(x.dtype))


def _histogram(
    x: torch.Tensor, edges: torch.Tensor, weight: torch.Tensor | None, density: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight of the elements between any two edges, of which the last belongs to its bin."""
    flat, bins = x.reshape(-1), edges.shape[0] - 1
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    place = (torch.searchsorted(edges, flat, right=True) - 1).clamp(0, bins - 1)
    each = inside.to(x.dtype) if weight is None else torch.where(inside, weight.reshape(-1), 0)
    counts = x.new_zeros([bins]).scatter_add(0, place, each)
    return counts / (counts.sum() * edges.diff()) if density else counts, edges


def _histogram_of_count(
    x: torch.Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    first, last = range or (0.0, 0.0)
    low, high = _range_of(x.reshape(-1), first, last, 0.5)
    edges = torch.linspace(low, high, bins + 1, dtype=x.dtype)
    return _histogram(x, edges, weight, density)


def _histogram_of_edges(
    x: torch.Tensor, bins: torch.Tensor, *, weight: torch.Tensor | None = None, density: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return _histogram(x, bins.clone(), weight, density)


def _window(shape: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """torch.hann_window and its like: ``shape`` of places from 0 to 1, and 1 for a single place."""

    def window(length: int, periodic: bool = True, *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
        if statically_known_true(length == 1):
            return torch.ones(1, dtype=dtype or torch.get_default_dtype())
        steps = length if periodic else length - 1
        return shape(torch.arange(length, dtype=dtype or torch.get_default_dtype()) / max(steps, 1))

    return window


_OVERLAP = 16


def _unfold_backward(grad: torch.Tensor, sizes: Sequence[int], dim: int, size: int, step: int) -> torch.Tensor:
    """The sum of windows [.., windows, size], ``step`` apart, where they overlap.

    The result is rows of ``step`` elements, and each row is the sum of a few slices.
    """
    parts = -(-size // step) if isinstance(size, int) and isinstance(step, int) else 0
    dim = dim % max(len(sizes), 1)
    count = grad.shape[dim] if sizes else 0
    covered = (count + parts) * step
    if not 0 < parts <= _OVERLAP or not sizes or not statically_known_true(sizes[dim] <= covered):
        known: torch.Tensor = torch_decompositions[torch.ops.aten.unfold_backward.default](grad, sizes, dim, size, step)
        return known
    windows = torch.nn.functional.pad(grad.movedim(dim, -2), (0, 0, parts - 1, parts))
    last = size - (parts - 1) * step  # the columns below it have elements of one window more

    def columns(overlapping: int, begin: int, end: int) -> torch.Tensor:
        """Columns ``begin`` to ``end`` of all rows."""
        total = windows.new_zeros([*windows.shape[:-2], count + parts, end - begin])
        for part in range(overlapping):
            first = parts - 1 - part
            total = total + windows[..., first : first + count + parts, part * step + begin : part * step + end]
        return total

    rows = torch.cat([columns(parts, 0, last), columns(parts - 1, last, step)], -1)
    return rows.flatten(-2)[..., : sizes[dim]].movedim(-1, dim)


def _cosines(*weights: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """The sum of weights * cos(2 pi k x), with alternating signs."""

    def shape(x: torch.Tensor) -> torch.Tensor:
        result = x * 0 + weights[0]
        for k, weight in enumerate(weights[1:], 1):
            result = result + (-1) ** k * weight * torch.cos(2 * math.pi * k * x)
        return result

    return shape


_WINDOWS = {
    "hann_window": _cosines(0.5, 0.5),
    "hamming_window": _cosines(0.54, 0.46),
    "blackman_window": _cosines(0.42, 0.5, 0.08),
    "bartlett_window": lambda x: 1 - torch.abs(2 * x - 1),
}


# Where PyTorch has none, or a wrong one.
def _loss_in_dtype_of_input(operator: OpOverload) -> Callable[..., torch.Tensor]:
    """The decomposition of a loss whose elements are of the first argument's dtype: eager PyTorch computes them in the
    promoted dtype, and stores them in a tensor like the input; then it reduces that."""
    elements = torch_decompositions[operator]

    def loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1, *more: float) -> torch.Tensor:
        each = elements(x, target, 0, *more).to(x.dtype)
        return each.mean() if reduction == 1 else each.sum() if reduction == 2 else each

    return loss


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Elements dropped at random; without training the operand itself."""
    return torch.ops.aten.native_dropout(x, p, train)[0] if train and p else x


def _write_inferred_sizes(graph: Graph) -> None:
    """Replaces -1 in sizes by the number that the first trace found: PyTorch would ask again whether the others are 0,
    which a size that depends on data does not answer."""
    for node in graph.nodes:
        if node.target not in _RESHAPES or not isinstance(node.args[1], (list, tuple)):
            continue
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dim() != len(node.args[1]):
            continue
        pairs = zip(node.args[1], value.shape, strict=True)
        sizes = [new if isinstance(new, int) and isinstance(old, int) and old == -1 else old for old, new in pairs]
        node.args = (node.args[0], sizes)


_RESHAPES = (torch.ops.aten.reshape.default, torch.ops.aten.view.default)


def run_decompositions(program: ExportedProgram) -> ExportedProgram:
    """The program, traced again with the decompositions.

    PyTorch's own decomposition of dropout makes a copy: what is then changed in place is not the operand any more.
    """
    _write_inferred_sizes(program.graph)
    with override_composite_implicit_decomp({torch.ops.aten.dropout.default: _dropout}):
        return program.run_decompositions(decomposition_table())


OWN: dict[OperatorBase, Callable[..., Any]] = {
    torch.ops.aten._trilinear.default: _trilinear,
    torch.ops.aten.addbmm.default: _addbmm,
    torch.ops.aten.put.default: _put,
    torch.ops.aten.isin.Tensor_Tensor: _isin,
    torch.ops.aten.isin.Scalar_Tensor: _isin,
    torch.ops.aten.avg_pool2d_backward.default: _avg_pool_backward(2),
    torch.ops.aten.avg_pool3d_backward.default: _avg_pool_backward(3),
    torch.ops.aten._weight_norm_interface_backward.default: _weight_norm_backward,
    torch.ops.aten._adaptive_avg_pool2d_backward.default: _adaptive_avg_pool_backward(2),
    torch.ops.aten._adaptive_avg_pool3d_backward.default: _adaptive_avg_pool_backward(3),
    torch.ops.aten.adaptive_max_pool2d_backward.default: _scatter_backward(2),
    torch.ops.aten.adaptive_max_pool3d_backward.default: _scatter_backward(3),
    torch.ops.aten.max_pool2d_with_indices_backward.default: _scatter_backward(2),
    torch.ops.aten.max_pool3d_with_indices_backward.default: _scatter_backward(3),
    torch.ops.aten.fractional_max_pool2d_backward.default: _scatter_backward(2),
    torch.ops.aten.fractional_max_pool3d_backward.default: _scatter_backward(3),
    **{
        getattr(torch.ops.aten, f"{name}{count}d_backward").default: _upsample_nearest_backward(count, exact)
        for name, exact in (("upsample_nearest", False), ("_upsample_nearest_exact", True))
        for count in (1, 2, 3)
    },
    **BACKWARD,
    **DISTANCES,
    **LOSSES,
    **RESAMPLING,
    torch.ops.aten.huber_loss.default: _loss_in_dtype_of_input(torch.ops.aten.huber_loss.default),
    torch.ops.aten.soft_margin_loss.default: _loss_in_dtype_of_input(torch.ops.aten.soft_margin_loss.default),
    torch.ops.aten._unsafe_masked_index.default: _masked_index,
    torch.ops.aten.resize.default: _resize,
    torch.ops.aten.embedding_renorm.default: _embedding_renorm,
    torch.ops.aten.linalg_tensorinv.default: _tensorinv,
    torch.ops.aten.histc.default: _histc,
    torch.ops.aten.histogram.bin_ct: _histogram_of_count,
    torch.ops.aten.histogram.bins_tensor: _histogram_of_edges,
    torch.ops.aten.unfold_backward.default: _unfold_backward,
    torch.ops.aten.as_strided_scatter.default: _as_strided_scatter,
    **{
        getattr(getattr(torch.ops.aten, name), overload): _window(shape)
        for name, shape in _WINDOWS.items()
        for overload in ("default", "periodic")
    },
}


def decomposition_table(
    program: ExportedProgram | None = None,
) -> dict[OperatorBase, Callable[..., Any]]:
    """PyTorch's decompositions of the ops that have no rule: those of export, then all others it knows.

    An op of ``program`` that has a rule, but not for all of its uses there, is decomposed too.
    """
    table = torch.export.default_decompositions()
    nodes = program.graph.nodes if program is not None else ()
    partly = {node.target for node in nodes if node.op == "call_function" and trains(node)}
    for name in _KEPT_COMPOSITES:
        packet, _, overload = name.partition(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload or "default"), None)
    for op in list(table.keys()):
        if _has_rule(op) and op not in partly:
            table.pop(op, None)
    for op, decomposition in torch_decompositions.items():
        if isinstance(op, OpOverload) and op not in table and not op._schema.is_mutable and not _has_rule(op):
            table[op] = decomposition
    table.update({op: decomposition for op, decomposition in _prims() if op not in table})
    table.update({op: decomposition for op, decomposition in OWN.items() if not _has_rule(op)})
    table.update(recurrent.decompositions())
    table.update(transformer_layers.DECOMPOSITIONS)
    # Its schema says that the result is new, but it is the operand if that has the dtype.
    table[torch.ops.aten.type_as.default] = lambda x, like: x.to(like.dtype)
    # PyTorch fails to trace it again for an element whose place depends on data.
    table[torch.ops.aten.item.default] = torch.ops.aten._local_scalar_dense.default
    return table


def _prims() -> Iterator[tuple[OpOverload, Callable[..., Any]]]:
    """The prims without a rule, also those that Inductor adds when it is imported, as the aten operations they are."""
    for name in all_operator_names():
        if not name.startswith("prims::"):
            continue
        packet, _, overload = name.removeprefix("prims::").partition(".")
        op = getattr(getattr(torch.ops.prims, packet), overload or "default")
        function = getattr(op, "impl_aten", None)
        drawn = torch.Tag.nondeterministic_seeded in op.tags
        if function is not None and not (drawn or op._schema.is_mutable or _has_rule(op)):
            yield op, function


def trains(node: Node) -> bool:
    """Whether a norm takes the statistics of its batch and updates the running ones, or attention drops out."""
    if node.target is torch.ops.aten.instance_norm.default:
        return True
    if node.target is torch.ops.aten.scaled_dot_product_attention.default:
        return len(node.args) > 4 and bool(node.args[4])
    return node.target is torch.ops.aten.batch_norm.default and (bool(node.args[5]) or node.args[3] is None)


def _has_rule(op: Any) -> bool:
    return isinstance(op, OpOverload) and find_rule(_get_mlir_op_name_for_schema(op._schema)) is not None


def needs_decomposition(program: ExportedProgram) -> bool:
    """Whether some op of ``program`` has no rule, changes a tensor in place, or holds a graph of its own.

    Most models of plain layers need none, and decomposing traces the whole program again.
    """
    return any(
        node.op == "get_attr" or (node.op == "call_function" and (not lowers_as_it_is(node.target) or trains(node)))
        for node in program.graph.nodes
    )


def lowers_as_it_is(target: Any) -> bool:
    """Whether the lowering takes an operation of a graph without changes."""
    if not isinstance(target, OpOverload):
        # Python's arithmetic on extents; higher-order operators are not functions.
        return not isinstance(target, HigherOrderOperator)
    if target._schema.is_mutable:
        return False
    name = _get_mlir_op_name_for_schema(target._schema)
    return name.startswith(IGNORED) or find_rule(name) is not None
