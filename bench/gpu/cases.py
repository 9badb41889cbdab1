"""The conformance suite on a GPU: libraries of its cases, with inputs and what eager PyTorch makes of them, in a file.

`python -m bench.gpu.cases build FILE` where DISC is built; `python -m bench.gpu.cases run FILE` on the machine with the
GPU, which has PyTorch alone. What must fail is left out: it is the host's part of a call, which runs everywhere.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

from .carried import Carried
from .run import difference

ROOT = Path(__file__).resolve().parents[2]


def build(file: Path, target: str, only: list[str]) -> None:
    """Compiles the cases, and packs them: the runtime, which each library has, takes its place once."""
    import disc

    sys.path[:0] = [str(ROOT / "test/python")]
    from conformance.cases import CASES

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for case in CASES:
            if only and case.name not in only:
                continue
            torch.manual_seed(0)
            module = case.make()
            library = Path(folder) / f"{case.name}.so"
            disc.aot_compile(
                module,
                case.examples(),
                dynamic_shapes=case.dynamic_shapes,
                output=library,
                name=case.name,
                target=target,
                cpu="x86-64-v3",
            )
            calls = []
            for size in case.sizes:
                inputs = tuple(t.contiguous() for t in case.inputs(*size))
                calls.append((str(size), inputs, tree_leaves(module(*(t.clone() for t in inputs)))))
            torch.save((calls, case.tolerance), library.with_suffix(".pt"))
            print(f"{case.name:20} {len(calls)} shapes", flush=True)
        with tarfile.open(file, "w:xz") as archive:
            for path in sorted(Path(folder).iterdir()):
                archive.add(path, path.name)


def run(file: Path, device: str) -> None:
    """Runs all cases at all of their shapes, and says at the end which differ."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(file) as archive:
            # Without `extractall(filter=...)`, which Debian 12's Python 3.11.2 does not have.
            for member in archive:
                if content := archive.extractfile(member):
                    (Path(folder) / Path(member.name).name).write_bytes(content.read())
        for library in sorted(Path(folder).glob("*.so")):
            calls, tolerance = torch.load(library.with_suffix(".pt"))
            model = Carried(library)
            worst = 0.0
            for size, inputs, wanted in calls:
                try:
                    got = model(*(t.to(device) for t in inputs))
                    model.synchronize()
                    found = difference(got, [t.to(device) for t in wanted])
                except RuntimeError as error:
                    wrong.append(f"{library.stem} {size}: {error}")
                    continue
                worst = max(worst, found)
                # Relative to the largest element, here; sums of half floats are asked for less.
                if not found <= 20 * tolerance:
                    wrong.append(f"{library.stem} {size}: {found:.1e}")
            print(f"{library.stem:20} differs by {worst:.1e}", flush=True)
            model.close()
    if wrong:
        raise SystemExit("wrong: " + "; ".join(wrong))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["build", "run"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--target", default="cuda", help="as disc.aot_compile takes it")
    parser.add_argument("--device", default="cuda", help="'cpu' runs libraries for an emulated GPU")
    parser.add_argument("--only", nargs="*", default=[], help="some of the cases")
    options = parser.parse_args()
    if options.command == "build":
        build(options.file, options.target, options.only)
    else:
        run(options.file, options.device)


if __name__ == "__main__":
    main()
