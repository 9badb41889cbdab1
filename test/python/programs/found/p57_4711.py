"""unsupported: #: <built-in function le>: std::bad_cast"""

import torch


class P57(torch.nn.Module):
    # x0: f32[8, B, C, A]
    def forward(self, x0):
        v1 = x0[x0 > 0]
        return [v1]


SEED = 4711
WAY = ""
INPUTS = [("x0", "f32", (8, "B", "C", "A"))]
MINIMUM = {"A": 1, "B": 0, "C": 2}
OUTPUTS = ("v1",)
STEPS = [
    ("v1", "v1 = x0[x0 > 0]", "compaction"),
]
