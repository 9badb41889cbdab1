"""What is measured: networks with their losses, data, shapes, and the blocks that checkpoints go around."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.training.models import Shape, TrainingModel
from bench.training.models.gpt import Config, text
from bench.training.models.gpt import loss as next_token
from bench.workloads.unet import UNet

from . import networks


@dataclass(frozen=True)
class MemoryModel:
    """A network to train under a budget."""

    training: TrainingModel
    """Its shapes are in order of size: the last one is the large one."""
    blocks: Callable[[Any], Iterable[nn.Module]]
    """The modules that `torch.utils.checkpoint` recomputes; empty if it cannot be used."""
    grows: str
    """The size that grows until it no longer fits."""
    paper: str
    """The network that the paper measured, for the comparison; empty if it has no such network."""


def classes_of(module: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the classes [batch]."""
    return F.cross_entropy(module(x), labels)


def tags_of(module: nn.Module, ids: Tensor, tags: Tensor) -> Tensor:
    """Cross-entropy of the tags [batch, length]."""
    return F.cross_entropy(module(ids).flatten(0, 1), tags.flatten())


def pixels_of(module: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the classes [batch, height, width] of pixels."""
    return F.cross_entropy(module(images), labels)


def square(module: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return F.mse_loss(module(x), target)


def itself(module: nn.Module, z: Tensor, real: Tensor) -> Tensor:
    """The loss that the module returns."""
    loss: Tensor = module(z, real)
    return loss


def classified(*size: int, classes: int = 10) -> Callable[[Shape, torch.Generator], tuple[Tensor, Tensor]]:
    """Random inputs [batch, *size] and classes [batch]."""

    def batch(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.randn(shape[0], *size, generator=generator)
        return x, torch.randint(classes, (shape[0],), generator=generator)

    return batch


def segmented(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random images of 64 x 64 pixels, and a class for each pixel."""
    x = torch.randn(shape[0], 3, 64, 64, generator=generator)
    return x, torch.randint(4, (shape[0], 64, 64), generator=generator)


def tagged(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random ids and tags."""
    return torch.randint(500, shape, generator=generator), torch.randint(9, shape, generator=generator)


def vectors(width: int, outputs: int) -> Callable[[Shape, torch.Generator], tuple[Tensor, Tensor]]:
    """Random inputs and targets."""

    def batch(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return torch.randn(*shape, width, generator=generator), torch.randn(*shape, outputs, generator=generator)

    return batch


SGD = {"lr": 0.01}
BATCH = {"batch": (1, 8192)}
_GPT = Config(layers=4, width=128, heads=4, vocabulary=512, positions=4097)

MODELS: dict[str, MemoryModel] = {
    "resnet": MemoryModel(
        TrainingModel(
            title="ResNet-32",
            dims={"batch": (2, 8192)},
            module=lambda: networks.ResNet(5),
            loss=classes_of,
            batch=classified(3, 32, 32),
            axes=({0: "batch"}, {0: "batch"}),
            optimizer=torch.optim.SGD,
            options=SGD,
            shapes=((4,), (32,)),
        ),
        blocks=lambda m: m.blocks.children(),
        grows="batch",
        paper="ResNet-32",
    ),
    "densenet": MemoryModel(
        TrainingModel(
            title="DenseNet-BC, 18 dense layers",
            dims={"batch": (2, 8192)},
            module=lambda: networks.DenseNet(6, 12),
            loss=classes_of,
            batch=classified(3, 32, 32),
            axes=({0: "batch"}, {0: "batch"}),
            optimizer=torch.optim.SGD,
            options=SGD,
            shapes=((4,), (16,)),
        ),
        blocks=lambda m: list(m.steps.children())[1:],
        grows="batch",
        paper="DenseNet-100",
    ),
    "unet": MemoryModel(
        TrainingModel(
            title="U-Net",
            dims={"batch": (2, 8192)},
            module=lambda: UNet(16, 3, 4),
            loss=pixels_of,
            batch=segmented,
            axes=({0: "batch"}, {0: "batch"}),
            optimizer=torch.optim.SGD,
            options=SGD,
            shapes=((2,), (16,)),
        ),
        blocks=lambda m: (*m.down.children(), *m.up.children()),
        grows="batch",
        paper="UNet",
    ),
    "lstm": MemoryModel(
        TrainingModel(
            title="LSTM, 4 layers, loops over a dynamic length",
            dims={"batch": (1, 1024), "length": (2, 8192)},
            module=lambda: networks.LayeredLSTM(500, 96, 4, 9),
            loss=tags_of,
            batch=tagged,
            axes=({0: "batch", 1: "length"},) * 2,
            optimizer=torch.optim.Adam,
            options={"lr": 1e-3},
            shapes=((4, 32), (16, 128)),
        ),
        blocks=lambda m: m.layers.children(),
        grows="length",
        paper="LSTM",
    ),
    "unrolled_lstm": MemoryModel(
        TrainingModel(
            title="LSTM, 24 unrolled steps",
            dims=BATCH,
            module=lambda: networks.UnrolledLSTM(64, 128, 24, 10),
            loss=classes_of,
            batch=classified(24, 64),
            axes=({0: "batch"}, {0: "batch"}),
            optimizer=torch.optim.Adam,
            options={"lr": 1e-3},
            shapes=((16,), (256,)),
        ),
        blocks=lambda m: [m.cell],
        grows="batch",
        paper="LSTM",
    ),
    "tree_lstm": MemoryModel(
        TrainingModel(
            title="Tree-LSTM, complete tree of 16 leaves",
            dims=BATCH,
            module=lambda: networks.TreeLSTM(64, 96, 16, 10),
            loss=classes_of,
            batch=classified(16, 64),
            axes=({0: "batch"}, {0: "batch"}),
            optimizer=torch.optim.Adam,
            options={"lr": 1e-3},
            shapes=((16,), (256,)),
        ),
        blocks=lambda m: [m.node],
        grows="batch",
        paper="TreeLSTM",
    ),
    "transformer": MemoryModel(
        TrainingModel(
            title="Transformer (small GPT)",
            dims={"batch": (1, 1024), "length": (3, 4097)},
            module=lambda: networks.GPT(_GPT),
            loss=next_token,
            batch=lambda shape, generator: text(shape, generator, _GPT.vocabulary),
            axes=({0: "batch", 1: "length"},),
            optimizer=torch.optim.AdamW,
            options={"lr": 1e-3},
            shapes=((2, 33), (8, 129)),
        ),
        blocks=lambda m: m.blocks.children(),
        grows="length",
        paper="Transformer",
    ),
    "gan": MemoryModel(
        TrainingModel(
            title="Unrolled GAN, 4 updates",
            dims=BATCH,
            module=lambda: networks.UnrolledGAN(16, 96, 4),
            loss=itself,
            batch=lambda shape, generator: vectors(16, 2)(shape, generator),
            axes=({0: "batch"}, {0: "batch"}),
            optimizer=torch.optim.Adam,
            options={"lr": 1e-3},
            shapes=((32,), (512,)),
        ),
        blocks=lambda m: (),
        grows="batch",
        paper="Unrolled GAN",
    ),
    "mlp": MemoryModel(
        TrainingModel(
            title="MLP, 24 residual layers",
            dims={"batch": (1, 65536)},
            module=lambda: networks.MLP(128, 24),
            loss=square,
            batch=vectors(128, 8),
            axes=({0: "batch"}, {0: "batch"}),
            optimizer=torch.optim.AdamW,
            options={"lr": 1e-3},
            shapes=((64,), (1024,)),
        ),
        blocks=lambda m: m.layers.children(),
        grows="batch",
        paper="",
    ),
}
QUICK = ("mlp", "transformer")
