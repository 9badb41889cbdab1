"""Dynamic networks as one writes them: every edge of their branches is taken, and each way equals eager's.

Quick by default; DISC_ALL_MODELS=1 runs 1,000 inputs of each.
"""

import os

import pytest
import torch

from branch_edges import Edges
from dynamic import NETWORKS, path_of

COUNT = 1000 if "DISC_ALL_MODELS" in os.environ else 150
LEAST = 0.2


@pytest.fixture(autouse=True)
def single_thread():
    """Small operators: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NETWORKS)
def test_edges(name):
    """Both ways of each test are taken by a fifth of what runs it, so that comparing outputs says something of both."""
    edges = Edges(path_of(name))
    model = edges.module.make_model(0)
    edges.reset()
    with torch.inference_mode():
        for inputs in edges.module.inputs(COUNT, 0):
            model(*inputs)
    shares = edges.shares()
    assert shares
    assert all(min(ways) >= LEAST for ways in shares.values()), shares
