"""The wheel disc_compiler_runtime: NumPy alone, a library, and errors that say what to install.

``--make FILE`` writes a library, where the compiler is; ``--load FILE`` checks it, where only the runtime is.
"""

from __future__ import annotations

import importlib.util
import sys


def make(path: str) -> None:
    import torch
    from torch.export import Dim

    import disc

    class Scaled(torch.nn.Module):
        def forward(self, x):
            return torch.softmax(2 * x, -1).sum(0)

    disc.aot_compile(Scaled(), (torch.zeros(3, 5),), dynamic_shapes=({0: Dim("n", min=1, max=64)},), output=path)


def load(path: str) -> None:
    assert importlib.util.find_spec("torch") is None, "the environment has torch; the test needs one without"
    import numpy as np

    import disc

    assert "site-packages" in disc.__file__, disc.__file__
    library = disc.load(path)
    for n in (1, 7, 64):
        x = np.random.default_rng(n).standard_normal((n, 5), dtype=np.float32)
        e = np.exp(2 * x - (2 * x).max(-1, keepdims=True))
        np.testing.assert_allclose(library(x), (e / e.sum(-1, keepdims=True)).sum(0), rtol=1e-4)
    try:
        library(np.zeros((65, 5), np.float32))
    except disc.ShapeError as error:
        print(f"  an input that does not fit: {str(error).splitlines()[0]}")
    else:
        raise AssertionError("an input that does not fit was accepted")
    try:
        disc.compile(None)
    except ImportError as error:
        assert "disc-compiler" in str(error), error
        print(f"  without the compiler: {error}")
    modules = sorted(name for name in sys.modules if name.startswith(("torch", "click", "rich", "tqdm")))
    assert not modules, modules
    print(f"[test-wheel] disc_compiler_runtime {disc.__version__} on Python {sys.version.split()[0]}: ok")


if __name__ == "__main__":
    {"--make": make, "--load": load}[sys.argv[1]](sys.argv[2])
