"""Measures training under a memory budget, as in Dynamic Tensor Rematerialization (arXiv 2006.09616).

python -m bench.memory                          # nine models, two shapes each, peers
python -m bench.memory --quick                  # two models at one shape, without peers
python -m bench.memory --models mlp resnet      # these; the report keeps the others' last results
python -m bench.memory --report                 # only the report, from the results that exist
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.process import ROOT
from bench.report import markdown_table

from . import report
from .models import MODELS, QUICK
from .results import Result, load

RESULTS = Path(__file__).resolve().parents[1] / "results" / "memory"
QUICK_RESULTS = RESULTS.parent / "quick" / "memory"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="python -m bench.memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--models", nargs="+", choices=list(MODELS), help="default: all")
    result.add_argument("--quick", action="store_true", help=f"{' and '.join(QUICK)} at one shape, without peers")
    result.add_argument("--no-peers", action="store_true", help="measure DISC alone")
    result.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    result.add_argument("--only-compile", action="store_true", help="add torch.compile to the results that exist")
    result.add_argument("--seconds", type=float, default=30.0, help="measured per shape (default: 30, quick 5)")
    result.add_argument("--out", type=Path, help="folder of the results (default: bench/results/memory)")
    result.add_argument("--report", action="store_true", help="measure nothing, write the report again")
    return result


def measure(name: str, folder: Path, peers: bool, seconds: float, shapes: str) -> bool:
    """Measures a model in a process of its own, which may crash."""
    with tempfile.TemporaryDirectory(prefix="disc-memory-") as cache:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "DISC_CODE_CACHE": "",
            "TORCHINDUCTOR_CACHE_DIR": cache,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]),
        }
        command = [
            sys.executable,
            "-m",
            "bench.memory.worker",
            name,
            str(folder),
            str(int(peers)),
            str(seconds),
            shapes,
        ]
        return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode == 0


def read(folder: Path) -> list[Result]:
    """The results of a folder, in the order of the models."""
    paths = [folder / f"{name}.json" for name in MODELS]
    return [load(path) for path in paths if path.exists()]


def main() -> None:
    """Measures, and writes the results and the report."""
    command = parser()
    args = command.parse_args()
    folder = (args.out or (QUICK_RESULTS if args.quick else RESULTS)).resolve()
    failed = []
    if not args.report:
        for name in args.models or (QUICK if args.quick else MODELS):
            peers = not (args.quick or args.no_peers)
            seconds = 5.0 if args.quick else args.seconds
            done = args.only_compile or measure(name, folder, peers, seconds, "large" if args.quick else "all")
            # `torch.compile` has a process of its own: it may crash, or be stopped while it compiles.
            if not done or (peers and not args.no_compile and not measure(name, folder, True, seconds, "compiled")):
                failed.append(name)
    results = read(folder)
    if not results:
        command.error(f"no results in {folder}")
    (folder / "report.md").write_text("\n".join(report.markdown(results)) + "\n", encoding="utf-8")
    try:
        from .plot import draw

        draw(results, folder / "memory.png")
    except ImportError:
        print("no picture: matplotlib is not installed (see bench/requirements.txt)")
    print("\n".join(markdown_table(*report.overview(results))))
    print(f"tables and JSON: {folder}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
