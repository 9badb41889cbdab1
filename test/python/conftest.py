"""Settings shared by all Python tests."""

import collections
import gc
import os
import random
import subprocess
import zlib
from pathlib import Path

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


def _turn() -> int | None:
    """Which share of long lists of cases runs: another one with each commit. None: all of them."""
    given = os.environ.get("DISC_SHARE", "")
    if given:
        return None if given == "all" else int(given)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return int(head.stdout[:8] or "0", 16)


def pytest_collection_modifyitems(config, items):
    """Leaves out cases with the marker ``share``, when the whole suite runs and not what someone named.

    A hash of the name selects them, or with ``even=True`` the position in the list: one of n neighbours runs.
    """
    turn = _turn()
    if turn is None or config.option.markexpr != "not nightly" or config.args_source.name == "ARGS":
        return
    kept, left = [], []
    numbers = collections.Counter()
    for item in items:
        marker = item.get_closest_marker("share")
        place = zlib.crc32(item.nodeid.encode())
        if marker is not None and marker.kwargs.get("even"):
            function = item.nodeid.partition("[")[0]
            place = numbers[function]
            numbers[function] += 1
        (kept if marker is None or (place + turn) % marker.args[0] == 0 else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


@pytest.fixture(autouse=True)
def seeded():
    """The same random numbers whatever runs before."""
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
