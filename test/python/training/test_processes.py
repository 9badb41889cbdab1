"""Training in two processes that add up their gradients, against one process with the joined batch."""

import os
import subprocess
import sys
from pathlib import Path

import torch

SCRIPT = """
import sys
import torch
import torch.distributed as dist
import disc

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
batches = torch.load(sys.argv[3])
step = disc.compile_training(
    module, optimizer, (batches[0][0],), loss=lambda m, x: (m(x) ** 2).mean(), dynamic_shapes=({0: "n"},)
)
for batch in batches:
    step.accumulate(batch[rank])
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    step.apply()
torch.save(module.state_dict(), sys.argv[3] + str(rank))
dist.destroy_process_group()
"""


def test_two_processes_are_one_with_the_joined_batch(tmp_path):
    torch.manual_seed(1)
    batches = [torch.randn(2, n, 4, dtype=torch.float64) for n in (3, 5, 1, 4)]
    torch.save(batches, tmp_path / "batches")
    script = tmp_path / "worker.py"
    script.write_text(SCRIPT)
    arguments = [f"file://{tmp_path / 'meeting'}", str(tmp_path / "batches")]
    # The name of the machine may have no address.
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    workers = [
        subprocess.Popen([sys.executable, str(script), str(rank), *arguments], env=environment, cwd=Path.cwd())
        for rank in range(2)
    ]
    assert [worker.wait(timeout=240) for worker in workers] == [0, 0]
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for batch in batches:
        optimizer.zero_grad()
        (module(batch.reshape(-1, 4)) ** 2).mean().backward()
        optimizer.step()
    for rank in range(2):
        found = torch.load(tmp_path / f"batches{rank}")
        for name, value in module.state_dict().items():
            torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-12)
