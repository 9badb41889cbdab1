"""What these workloads share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from ..base import Shape, Workload

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples"))

INPUTS = 12
SEED = 7


@dataclass(frozen=True, kw_only=True)
class Network(Workload):
    """A network of examples/dynamic; the shape is the number of an input."""

    source: ModuleType

    def inputs(self, shape: Shape) -> tuple[Tensor, ...]:
        """The input of that number."""
        *_, last = self.source.inputs(shape[0], SEED)
        return last

    def example(self) -> tuple[Tensor, ...]:
        """The first input whose extents are larger than one and differ from each other."""
        axes = self.source.dynamic_shapes[0]
        for inputs in self.source.inputs(1000, SEED):
            extents = [inputs[0].shape[axis] for axis in axes]
            if min(extents) > 1 and len(set(inputs[0].shape)) == inputs[0].dim():
                return inputs
        raise ValueError(f"{self.title}: no input to export with")

    def dynamic_shapes(self) -> tuple[Any, ...]:
        """The network's own."""
        return self.source.dynamic_shapes


def workloads(name: str, title: str, written: Callable[[Any], nn.Module] | None = None) -> tuple[Network, Network]:
    """The full workload and the small one; `written` makes the module for exporters from the natural one."""
    source = importlib.import_module(f"dynamic.{name}")

    def make(count: int) -> Network:
        numbers = tuple((i,) for i in range(1, count + 1))
        return Network(
            title=title,
            dims={"input": (1, count)},
            module=lambda: source.make_model(0),
            written=written,
            tensors=lambda shape, generator: (),
            axes=(),
            shapes=numbers,
            quick=numbers[:4],
            tolerance=1e-5,
            source=source,
        )

    return make(INPUTS), make(4)
