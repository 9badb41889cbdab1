"""ONNX's backend node tests: one small model for each use of an operator, compiled and compared with ONNX's results.

``python test/python/onnx_nodes.py`` runs all of them and prints what fails, by reason.
"""

from __future__ import annotations

import argparse
import collections
import functools
import multiprocessing
import re
import sys
import time
import warnings
from pathlib import Path

FAILURES = Path(__file__).with_name("onnx_failures.txt")
"""The cases that fail, with their reasons: it can only shrink."""


@functools.cache
def load():
    """All cases by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def reason(name: str) -> str:
    """Why a case fails, in one line; "" if it passes."""
    import disc

    case = load()[name]
    inputs, outputs = case.data_sets[0]
    names = [i.name for i in case.model.graph.input]
    try:
        fixed: dict = {}
        while True:
            try:
                model = disc.compile(case.model, fixed=fixed)
                break
            except disc.UnsupportedOpError as error:
                # What decides shapes comes as an input in these models, where real ones have a constant.
                steering = set(re.findall(r"give its value with fixed=\{'(\w+)'", str(error))) - set(fixed)
                if not steering and "decides the shape of the result, is computed from data" in str(error):
                    # Through other operators: whatever may be a shape or an axis.
                    kinds = {i.name: i.type.tensor_type for i in case.model.graph.input}
                    steering = {n for n in names if kinds[n].elem_type == 7 and len(kinds[n].shape.dim) <= 1} - set(
                        fixed
                    )
                if not steering:
                    return "; ".join(dict.fromkeys(f"{op.name}: {op.reason}" for op in error.ops))
                fixed |= {key: inputs[names.index(key)] for key in steering}
    except disc.CompileError as error:
        return " ".join(str(error).split("\n  reproduce")[0].split())[:240]
    except Exception as error:
        return f"{type(error).__name__}: {error}".split("\n")[0][:240]
    try:
        return _compare(case, model, inputs, outputs, names, fixed)
    except Exception as error:
        return f"{type(error).__name__} when called: {error}".split("\n")[0][:240]


def _compare(case, model, inputs, outputs, names, fixed) -> str:
    import numpy as np
    import torch

    given = [_tensor(x) for name, x in zip(names, inputs, strict=False) if name not in fixed]
    result = model(*given)
    results = [result] if isinstance(result, torch.Tensor) else list(result.values())
    for value, want, got in zip(case.model.graph.output, outputs, results, strict=True):
        expected = _tensor(want)
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return f"{value.name} is {got.dtype} {list(got.shape)}, not {expected.dtype} {list(expected.shape)}"
        # Half types: one unit in the last place is more than what the cases allow.
        rtol = max(case.rtol, torch.finfo(got.dtype).eps) if got.dtype.is_floating_point else case.rtol
        if got.dtype == torch.bfloat16:
            got, expected = got.float(), expected.float()
        if not np.allclose(got.numpy(), expected.numpy(), rtol=rtol, atol=max(case.atol, 1e-6), equal_nan=True):
            return f"{value.name} differs"
    return ""


def _tensor(x):
    import numpy as np
    import onnx
    import torch

    if isinstance(x, onnx.TensorProto):
        x = onnx.numpy_helper.to_array(x)
    array = np.array(x)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _one(name: str) -> tuple[str, str, float]:
    import torch

    torch.set_num_threads(1)
    start = time.perf_counter()
    return name, reason(name), time.perf_counter() - start


def run(names, jobs: int = 2) -> dict[str, str]:
    """The reason of each failing case among ``names``."""
    # Loaded before the fork, which is before anything starts threads.
    load()
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        return {name: why for name, why, _ in pool.imap_unordered(_one, names, chunksize=8) if why}


def known_failures() -> dict[str, str]:
    """The checked-in list."""
    lines = FAILURES.read_text().splitlines() if FAILURES.exists() else []
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def _check(names, failed: dict[str, str]) -> int:
    """Whether exactly those cases fail that are known to."""
    known = known_failures()
    new = {name: why for name, why in failed.items() if name not in known}
    passing = [name for name in names if name in known and name not in failed]
    for name, why in sorted(new.items()):
        print(f"fails: {name}: {why}")
    for name in passing:
        print(f"passes, take it off {FAILURES.name}: {name}")
    return 1 if new or passing else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "pattern", nargs="?", default="", help="only the cases whose name this regular expression finds"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cases", action="store_true", help="print every failing case")
    parser.add_argument("--every", type=int, default=1, help="only each so-and-so-many-th case")
    parser.add_argument("--check", action="store_true", help="compare with the list of failures; exit status 1 if not")
    parser.add_argument("--write", action="store_true", help="write the list of failures")
    options = parser.parse_args()
    names = sorted(name for name in load() if re.search(options.pattern, name))[:: options.every]
    start = time.perf_counter()
    failed = run(names, options.jobs)
    if options.check:
        return _check(names, failed)
    reasons = collections.defaultdict(list)
    for name in sorted(failed):
        reasons[failed[name]].append(name)
        if options.cases:
            print(f"{name}: {failed[name]}")
    if not options.cases:
        for why, cases in sorted(reasons.items(), key=lambda item: -len(item[1])):
            print(f"{len(cases):4}  {why}\n        {' '.join(cases[:4])}")
    share = 100 * (1 - len(failed) / max(len(names), 1))
    print(f"{len(names) - len(failed)} of {len(names)} pass ({share:.1f} %), {time.perf_counter() - start:.0f} s")
    if options.write:
        FAILURES.write_text("".join(f"{name}: {failed[name]}\n" for name in sorted(failed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
