"""ONNX's backend node tests: one small model for each use of an operator, compiled and compared with ONNX's results.

``python test/python/onnx_nodes.py`` runs all of them, prints what fails, by reason, and compares that with the list.
"""

from __future__ import annotations

import argparse
import collections
import functools
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from opinfo import pool

FAILURES = Path(__file__).with_name("onnx_failures.txt")
"""The cases that fail, with their reasons: it can only shrink."""

_HEADER = (
    "# ONNX's node tests that fail, and why. The list can only shrink: python test/python/onnx_nodes.py --shrink\n"
)
_SECONDS = 120.0


@functools.cache
def load():
    """All cases by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def _made_dynamic(case):
    """Makes each dim of an input a symbol of its own, and forgets the outputs' dims."""
    graph = case.model.graph
    for value in (*graph.input, *graph.output):
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_value != 1:
                dim.dim_param = f"{value.name}_{i}"
    del graph.value_info[:]


def reason(name: str, dynamic: bool = False) -> str:
    """Why a case fails, in one line; "" if it passes, or is refused with ``dynamic`` dims."""
    import disc

    case = load()[name]
    if dynamic:
        _made_dynamic(case)
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
                through = ("decides the shape of the result, is computed from data", "data decides between them")
                if not steering and any(text in str(error) for text in through):
                    # Through other operators: whatever may be a shape, an axis, or the size that an If asks about.
                    kinds = {i.name: i.type.tensor_type for i in case.model.graph.input}
                    integers = {n for n in names if kinds[n].elem_type in (6, 7) and len(kinds[n].shape.dim) <= 1}
                    steering = integers - set(fixed)
                if not steering and dynamic:
                    return ""
                if not steering:
                    return "; ".join(dict.fromkeys(f"{op.name}: {op.reason}" for op in error.ops))
                fixed |= {key: inputs[names.index(key)] for key in steering}
    except disc.CompileError as error:
        return " ".join(str(error).split("\n  reproduce")[0].split()).replace(f"{name}.onnx: ", "")[:240]
    except Exception as error:
        return f"{type(error).__name__}: {error}".split("\n")[0][:240]
    try:
        return _compare(case, model, inputs, outputs, names, fixed)
    except Exception as error:
        return f"{type(error).__name__} when called: {error}".split("\n")[0][:240]


def _compare(case, model, inputs, outputs, names, fixed) -> str:
    import numpy as np
    import onnx
    import torch
    from onnx import numpy_helper

    given = [_tensor(x) for name, x in zip(names, inputs, strict=False) if name not in fixed]
    result = model(*given)
    results = list(result.values()) if isinstance(result, dict) else [result]
    triples = []
    for value, want, got in zip(case.model.graph.output, outputs, results, strict=True):
        # A sequence is a list of tensors.
        pairs = zip(want, got, strict=True) if isinstance(got, list) else [(want, got)]
        triples += [(value, *pair) for pair in pairs]
    for value, want, got in triples:
        expected = _tensor(want)
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return f"{value.name} is {got.dtype} {list(got.shape)}, not {expected.dtype} {list(expected.shape)}"
        rtol, atol = case.rtol, max(case.atol, 1e-6)
        if got.dtype.is_floating_point:
            # One unit in the last place of half types is more than what the cases allow; so is, where terms cancel, one
            # of the largest result.
            eps = torch.finfo(got.dtype).eps
            finite = expected[expected.isfinite()].abs()
            rtol, atol = max(rtol, eps), max(atol, eps * float(finite.max()) if finite.numel() else 0.0)
        array = np.array(numpy_helper.to_array(want) if isinstance(want, onnx.TensorProto) else want)
        if got.dtype == torch.bfloat16:
            got, expected = got.float(), expected.float()
        elif got.dtype == torch.uint8 and array.dtype != np.uint8:
            # Codes of narrow types, of which several may be NaN.
            got, expected = (torch.from_numpy(t.numpy().view(array.dtype).astype("f4")) for t in (got, expected))
        if not np.allclose(got.numpy(), expected.numpy(), rtol=rtol, atol=atol, equal_nan=True):
            return f"{value.name} differs"
    return ""


def _tensor(x):
    import numpy as np
    import onnx
    import torch

    if isinstance(x, onnx.TensorProto):
        x = onnx.numpy_helper.to_array(x)
    array = np.array(x)
    if array.dtype.name.startswith(("int4", "uint4", "int2", "uint2")):
        return torch.from_numpy(array.astype(np.uint8 if array.dtype.name[0] == "u" else np.int8))
    if array.dtype.name.startswith(("float8", "float4")):
        return torch.from_numpy(array.view(np.uint8))
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def run(names, jobs: int, dynamic: bool = False) -> Iterator[tuple[str, str]]:
    """(case, reason) of each case, as they end; the reason of those that pass is ""."""
    # Loaded before the workers are forked.
    load()
    tasks = [(reason, (name, dynamic)) for name in names]
    for place, why in pool.run(tasks, jobs, _SECONDS):
        yield names[place], str(why)


def selection(every: int) -> list[str]:
    """What CI runs: a case that should pass for each operator, and every so-and-so-many-th case."""
    known = known_failures()
    names = sorted(load())
    chosen = set(names[::every])
    covered: set[str] = set()
    for name in sorted(names, key=lambda name: (name in known, "_expanded" in name)):
        operators = {node.op_type for node in load()[name].model.graph.node}
        if operators - covered:
            covered |= operators
            chosen.add(name)
    return sorted(chosen)


def known_failures() -> dict[str, str]:
    """The checked-in list."""
    lines = FAILURES.read_text().splitlines() if FAILURES.exists() else []
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def disagreements(failed: dict[str, str], names) -> list[str]:
    """What the list says otherwise about the cases ``names``."""
    known = known_failures()
    lines = [f"fails: {name}: {why}" for name, why in sorted(failed.items()) if name not in known]
    passing = [name for name in names if name in known and name not in failed]
    return lines + [f"passes, take it off the list (--shrink): {name}" for name in passing]


def renew(failed: dict[str, str], names, *, grow: bool) -> None:
    """Takes off the list what passes, renews the reasons, and with ``grow`` adds what fails."""
    known = known_failures()
    kept = {name: why for name, why in known.items() if name not in names}
    kept |= {name: why for name, why in failed.items() if grow or name in known}
    FAILURES.write_text(_HEADER + "".join(f"{name}: {kept[name]}\n" for name in sorted(kept)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "pattern", nargs="?", default="", help="only the cases whose name this regular expression finds"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="what CI runs: a case of each operator, and some more")
    parser.add_argument("--listed", action="store_true", help="only what is listed as failing")
    parser.add_argument("--shrink", action="store_true", help="take what passes off the list of failures")
    parser.add_argument("--grow", action="store_true", help="also list what fails (for a new version of ONNX)")
    parser.add_argument(
        "--dynamic",
        action="store_true",
        help="make all dims dynamic, of what is not listed; to be refused is not to fail",
    )
    options = parser.parse_args()
    names = selection(24) if options.quick else sorted(load())
    listed = known_failures()
    names = [n for n in names if re.search(options.pattern, n) and (n in listed or not options.listed)]
    if options.dynamic:
        names = [n for n in names if n not in listed]
    start = time.monotonic()
    failed: dict[str, str] = {}
    for name, why in run(names, options.jobs, options.dynamic):
        if why:
            failed[name] = why
            print(f"{name}: {why}", flush=True)
    reasons = collections.defaultdict(list)
    for name in sorted(failed):
        reasons[failed[name]].append(name)
    if not options.quick:
        print()
        for why, cases in sorted(reasons.items(), key=lambda item: -len(item[1])):
            print(f"{len(cases):4}  {why}\n        {' '.join(cases[:4])}")
    share = 100 * (1 - len(failed) / max(len(names), 1))
    if (options.shrink or options.grow) and not options.dynamic:
        renew(failed, names, grow=options.grow)
    lines = disagreements(failed, names)
    print("\n".join(lines))
    print(f"{len(names) - len(failed)} of {len(names)} pass ({share:.1f} %), {time.monotonic() - start:.0f} s")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
