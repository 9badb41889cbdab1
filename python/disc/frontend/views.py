"""View operations: they move no data, and carry along what is known of a tensor's contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch_mlir import ir

from . import dtypes
from .extents import ExtentBuilder
from .values import Broadcast, Extent, Iota, Tensor, is_one, tensor_type


def _and_pairs(x: Tensor, dims: Sequence[int], rank: int) -> list[int]:
    """The dims of the IR's tensor: complex numbers have one more, which stays the last."""
    return [*dims, rank] if dtypes.is_complex(x.dtype) else list(dims)


class ViewBuilder(ExtentBuilder):
    """``disc_tensor`` views."""

    def _view(
        self,
        name: str,
        x: Tensor,
        dims: Sequence[Extent],
        operands: Sequence[ir.Value],
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> Tensor:
        op = ir.Operation.create(
            f"disc_tensor.{name}",
            [tensor_type(dims, x.dtype)],
            [x.value, *operands],
            attributes=attributes or {},
        )
        return Tensor(op.result, tuple(dims), x.dtype, splat=x.splat)

    def permute(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        """Result dim ``i`` is ``x``'s dim ``permutation[i]``."""
        if list(permutation) == list(range(x.rank)):
            return x
        result = self._view(
            "permute",
            x,
            [x.dims[i] for i in permutation],
            [],
            {"permutation": ir.DenseI64ArrayAttr.get(_and_pairs(x, permutation, x.rank))},
        )
        iota = x.iota and replace(x.iota, dim=list(permutation).index(x.iota.dim))
        return result.with_facts(splat=x.splat, iota=iota)

    def reshape(self, x: Tensor, dims: Sequence[Extent]) -> Tensor:
        """The same elements, row-major, with other extents."""
        if list(dims) == list(x.dims):
            return x
        dynamic = [dim for dim in dims if not isinstance(dim, int)]
        result = self._view("reshape", x, dims, dynamic)
        return result.with_facts(
            splat=x.splat,
            iota=self._reshaped_iota(x, dims),
            broadcast=self._reshaped_broadcast(x, dims),
        )

    def _reshaped_iota(self, x: Tensor, dims: Sequence[Extent]) -> Iota | None:
        """Size-1 dims come and go without moving the one dim an iota runs along."""
        if x.iota is None or any(not is_one(d) for i, d in enumerate(x.dims) if i != x.iota.dim):
            return None
        rest = [i for i, dim in enumerate(dims) if not is_one(dim)]
        if len(rest) == 1 and dims[rest[0]] == x.dims[x.iota.dim]:
            return replace(x.iota, dim=rest[0])
        return None

    def _reshaped_broadcast(self, x: Tensor, dims: Sequence[Extent]) -> Broadcast | None:
        """Only size-1 dims were inserted: the source keeps its place among the others."""
        if x.broadcast is None:
            return None
        old, place = 0, {}
        for new, dim in enumerate(dims):
            if old < x.rank and dim == x.dims[old]:
                place[old] = new
                old += 1
            elif not is_one(dim):
                return None
        if old != x.rank:
            return None
        return Broadcast(x.broadcast.source, tuple(place[d] for d in x.broadcast.dims))

    def broadcast(self, x: Tensor, dims: Sequence[Extent], into: Sequence[int] | None = None) -> Tensor:
        """Repeats ``x`` to extents ``dims``; its dim ``j`` becomes dim ``into[j]`` (default: the last ones)."""
        into = tuple(into) if into is not None else tuple(range(len(dims) - x.rank, len(dims)))
        dims = list(dims)
        for j, place in enumerate(into):
            if is_one(x.dims[j]):
                continue
            if isinstance(x.dims[j], int) and not isinstance(dims[place], int):
                self.require_equal(x.dims[j], dims[place], "expanded extents differ")
                dims[place] = x.dims[j]
            else:
                self.require_equal(dims[place], x.dims[j], "expanded extents differ")
        if dims == list(x.dims):
            return x
        dynamic = [dim for dim in dims if not isinstance(dim, int)]
        result = self._view(
            "broadcast", x, dims, dynamic, {"dims": ir.DenseI64ArrayAttr.get(_and_pairs(x, into, len(dims)))}
        )
        if x.broadcast is not None:
            inner = x.broadcast
            origin = Broadcast(inner.source, tuple(into[d] for d in inner.dims))
        else:
            origin = Broadcast(x, into)
        iota = replace(x.iota, dim=into[x.iota.dim]) if x.iota else None
        if x.iota and iota and is_one(x.dims[x.iota.dim]) and not is_one(dims[iota.dim]):
            iota = None
        return result.with_facts(splat=x.splat, iota=iota, broadcast=origin)

    def slice(self, x: Tensor, dim: int, offset: Extent, size: Extent, step: int = 1) -> Tensor:
        """``size`` elements of dim ``dim`` from ``offset``, every ``step``-th."""
        if offset == 0 and step == 1 and size == x.dims[dim]:
            return x
        dims = list(x.dims)
        dims[dim] = size
        # The operands are always SSA values, so that static and dynamic bounds look alike.
        result = self._view(
            "slice",
            x,
            dims,
            [self.index(offset), self.index(size)],
            {
                "dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim),
                "step": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), step),
            },
        )
        iota = x.iota
        if iota and iota.dim == dim:
            moved = isinstance(offset, int) and step == 1
            iota = replace(iota, start=iota.start + offset * iota.step) if moved else None
        return result.with_facts(splat=x.splat, iota=iota)

    def unsqueeze(self, x: Tensor, dim: int) -> Tensor:
        """Inserts a dim of size 1 at ``dim``."""
        return self.reshape(x, [*x.dims[:dim], 1, *x.dims[dim:]])

    def running_sum(self, x: Tensor, dim: int) -> Tensor:
        """For each element of ``x`` the sum of those up to it along ``dim``."""
        op = ir.Operation.create(
            "disc_tensor.running_sum",
            [x.value.type],
            [x.value],
            attributes={"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)},
        )
        return Tensor(op.result, x.dims, x.dtype)

    def concat(self, xs: Sequence[Tensor], dim: int) -> Tensor:
        """Joins tensors of one dtype along ``dim``."""
        if len(xs) == 1:
            return xs[0]
        dims = list(xs[0].dims)
        for x in xs[1:]:
            for i in range(x.rank):
                if i == dim:
                    dims[i] = self.add(dims[i], x.dims[i])
                    continue
                if isinstance(x.dims[i], int) and not isinstance(dims[i], int):
                    self.require_equal(x.dims[i], dims[i], "concatenated extents differ")
                    dims[i] = x.dims[i]
                else:
                    self.require_equal(dims[i], x.dims[i], "concatenated extents differ")
        op = ir.Operation.create(
            "disc_tensor.concat",
            [tensor_type(dims, xs[0].dtype)],
            [x.value for x in xs],
            attributes={"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)},
        )
        return Tensor(op.result, tuple(dims), xs[0].dtype)
