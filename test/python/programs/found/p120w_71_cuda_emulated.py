"""An emulated device reads vectors of an input that begins at no multiple of 16 bytes."""

import torch


class P120W(torch.nn.Module):
    # x2: i64[B]
    def forward(self, x2):
        v1 = torch.where(x2 > 0, x2, x2)
        return [v1]


SEED = 71
WAY = "cuda-emulated"
INPUTS = [("x2", "i64", ("B",))]
MINIMUM = {"A": 0, "B": 2}
OUTPUTS = ("v1",)
STEPS = [
    ("v1", "v1 = torch.where(x2 > 0, x2, x2)", "pointwise"),
]
