"""PyTorch's recurrent layer, where a workload is a loop over cells."""

from __future__ import annotations

from .cell_loop import Peer as CellLoop


class Peer(CellLoop):
    """Eager mode, one call of the layer; only for workloads that say how."""

    title = "PyTorch layer"
    form = "by_layer"
