"""internal: complex numbers: an input updated with another input"""

import torch


class P16(torch.nn.Module):
    # x0: c64[C, B]; x2: c64[C, B]
    def forward(self, x0, x2):
        v1 = x2 * 2
        x2.copy_(x0)
        return [v1]


SEED = 3
WAY = ""
INPUTS = [("x0", "c64", ("C", "B")), ("x2", "c64", ("C", "B"))]
MINIMUM = {"B": 0, "C": 0, "A": 0}
OUTPUTS = ("v1",)
STEPS = [
    ("v1", "v1 = x2 * 2", "pointwise"),
    ("x2", "x2.copy_(x0)", "mutation"),
]
