"""The networks, of the kinds that Dynamic Tensor Rematerialization was measured on, at sizes for a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.training.models import gpt
from bench.workloads.resnet18 import Block as Residual


class ResNet(nn.Module):
    """The ResNet for CIFAR with `6 n + 2` layers: logits [batch, 10] of images [batch, 3, 32, 32]."""

    def __init__(self, n: int, width: int = 16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks: list[nn.Module] = []
        inputs = width
        for stage in range(3):
            for i in range(n):
                outputs = width << stage
                blocks.append(Residual(inputs, outputs, 2 if stage > 0 and i == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Dense(nn.Module):
    """A bottleneck layer, whose result is appended to its input."""

    def __init__(self, inputs: int, growth: int):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, inputs, height, width] to [batch, inputs + growth, height, width]."""
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)


class DenseNet(nn.Module):
    """DenseNet-BC: logits [batch, 10] of images [batch, 3, 32, 32]."""

    def __init__(self, layers: int, growth: int):
        super().__init__()
        width = 2 * growth
        steps: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False)]
        for stage in range(3):
            for _ in range(layers):
                steps.append(Dense(width, growth))
                width += growth
            if stage < 2:
                half = width // 2
                steps.append(
                    nn.Sequential(
                        nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, half, 1, bias=False), nn.AvgPool2d(2)
                    )
                )
                width = half
        self.steps = nn.Sequential(*steps)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.head(F.relu(self.norm(self.steps(x))).mean((2, 3)))


class LayeredLSTM(nn.Module):
    """Several LSTM layers over a dynamic length: scores [batch, length, tags] of ids [batch, length]."""

    def __init__(self, vocabulary: int, width: int, layers: int, tags: int):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.tag = nn.Linear(width, tags)

    def forward(self, ids: Tensor) -> Tensor:
        """The scores."""
        x = self.words(ids)
        for layer in self.layers:
            x, _ = layer(x)
        return self.tag(x)


class UnrolledLSTM(nn.Module):
    """One LSTM cell over a fixed number of steps, each an operation of the outermost code, as in the paper.

    Logits [batch, classes] of x [batch, steps, features].
    """

    def __init__(self, features: int, hidden: int, steps: int, classes: int):
        super().__init__()
        self.cell = nn.LSTMCell(features, hidden)
        self.head = nn.Linear(hidden, classes)
        self.hidden, self.steps = hidden, steps

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        h = c = x.new_zeros(x.shape[0], self.hidden)
        for i in range(self.steps):
            h, c = self.cell(x[:, i], (h, c))
        return self.head(h)


class TreeNode(nn.Module):
    """The cell of a binary Tree-LSTM."""

    def __init__(self, hidden: int):
        super().__init__()
        self.gates = nn.Linear(2 * hidden, 5 * hidden)

    def forward(self, lh: Tensor, lc: Tensor, rh: Tensor, rc: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden and the cell state of a node from its children's."""
        i, o, u, left, right = self.gates(torch.cat([lh, rh], 1)).chunk(5, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(left) * lc + torch.sigmoid(right) * rc
        return torch.sigmoid(o) * torch.tanh(c), c


class TreeLSTM(nn.Module):
    """A Tree-LSTM over a complete binary tree, node by node: logits [batch, classes] of x [batch, leaves, features]."""

    def __init__(self, features: int, hidden: int, leaves: int, classes: int):
        super().__init__()
        self.leaf = nn.Linear(features, 2 * hidden)
        self.node = TreeNode(hidden)
        self.head = nn.Linear(hidden, classes)
        self.leaves = leaves

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.head(self._state(x, 0, self.leaves)[0])

    def _state(self, x: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
        if count == 1:
            h, c = self.leaf(x[:, first]).chunk(2, dim=1)
            return torch.tanh(h), c
        half = count // 2
        return self.node(*self._state(x, first, half), *self._state(x, first + half, half))


class GPT(gpt.GPT):
    """The small GPT of `bench.training`, whose output projection has weights of its own."""

    def __init__(self, config: gpt.Config):
        super().__init__(config)
        self.head.weight = nn.Parameter(self.head.weight.detach().clone())


class MLP(nn.Module):
    """A deep MLP with residual layers: outputs [batch, 8] of x [batch, width]."""

    def __init__(self, width: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(layers)
        )
        self.head = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class UnrolledGAN(nn.Module):
    """A GAN whose generator is trained through some updates of the discriminator: its loss has second derivatives."""

    def __init__(self, noise: int, hidden: int, updates: int):
        super().__init__()
        self.noise, self.updates, self.rate = noise, updates, 0.05
        self.generator = nn.Sequential(
            nn.Linear(noise, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2)
        )
        sizes = ((hidden, 2), (hidden,), (hidden, hidden), (hidden,), (1, hidden), (1,))
        # The discriminator is not trained here: its updates are undone after each step.
        for i, size in enumerate(sizes):
            self.register_buffer(f"d{i}", 0.3 * torch.randn(size))

    def discriminate(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        """How real x [batch, 2] looks: logits [batch]."""
        x = torch.tanh(F.linear(x, weights[0], weights[1]))
        x = torch.tanh(F.linear(x, weights[2], weights[3]))
        return F.linear(x, weights[4], weights[5]).squeeze(1)

    def forward(self, z: Tensor, real: Tensor) -> Tensor:
        """The generator's loss of z [batch, noise], after updates on real [batch, 2]."""
        fake = self.generator(z)
        weights = [self.get_buffer(f"d{i}").detach().requires_grad_() for i in range(6)]
        for _ in range(self.updates):
            right = F.softplus(-self.discriminate(real, weights)).mean()
            wrong = F.softplus(self.discriminate(fake, weights)).mean()
            gradients = torch.autograd.grad(right + wrong, weights, create_graph=True)
            weights = [w - self.rate * g for w, g in zip(weights, gradients, strict=True)]
        return F.softplus(-self.discriminate(fake, weights)).mean()
