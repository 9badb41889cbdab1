"""Settings shared by all Python tests."""

import gc
import os
import random

import hypothesis
import numpy as np
import pytest

import sanitized

# Reproducible by default; `HYPOTHESIS_PROFILE=explore` looks for new counterexamples.
hypothesis.settings.register_profile("default", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser):
    parser.addoption(
        "--sanitize",
        action="store_true",
        help="compile every model for the CPU with Options(sanitize=True)",
    )


def pytest_configure(config):
    # PyTorch's objects live as long as the process: no collection needs to look at them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    # Every test compiles what it tests; those of the cache choose a folder.
    os.environ["DISC_CODE_CACHE"] = ""
    if config.getoption("--sanitize"):
        sanitized.enable()


@pytest.fixture(autouse=True)
def seeded():
    """The same random numbers whatever runs before."""
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
