"""Mutated ONNX models and exported programs through disc-compile: files.py onnx|pt2 SECONDS [SEED].

A case is a valid file with a few changes: to its bytes, or to what they mean (nodes, attributes, extents; the JSON in
an archive). disc-compile must end with IR or with an error of its own: another exception, a crash and a case that takes
more than LIMIT seconds are findings, whose files are kept. Cases run in forks of a process that has imported all of it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper

from disc.cli import compile as command

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "build/fuzz/findings"
LIMIT = 60
NUMBERS = [0, 1, -1, 2, 3, 7, 64, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 64]
"""Numbers that code forgets."""


def onnx_seeds() -> list[bytes]:
    """Small models: products, shapes that are computed, a branch, a loop's worth of reductions."""
    f32, i64 = TensorProto.FLOAT, TensorProto.INT64
    weight = helper.make_tensor("w", f32, [4, 3], [float(i) for i in range(12)])
    shape = helper.make_tensor("s", i64, [2], [-1, 2])
    axes = helper.make_tensor("a", i64, [1], [1])
    x, y = helper.make_tensor_value_info("x", f32, ["B", 4]), helper.make_tensor_value_info("y", f32, None)
    then = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["t"])], "then", [], [helper.make_tensor_value_info("t", f32, ["B", 4])]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", f32, ["B", 4])]
    )
    flag = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    graphs = [
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=-1)],
        [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("ReduceSum", ["r", "a"], ["y"], keepdims=0)],
        [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [
            helper.make_node("Shape", ["x"], ["n"]),
            helper.make_node("Gather", ["n", "a"], ["k"]),
            helper.make_node("Transpose", ["x"], ["z"], perm=[1, 0]),
            helper.make_node("Concat", ["z", "z"], ["v"], axis=0),
            helper.make_node("TopK", ["v", "k"], ["y", "i"], axis=0),
        ],
    ]
    seeds = []
    for nodes in graphs:
        graph = helper.make_graph(nodes, "g", [x], [y], [weight, shape, axes, flag])
        seeds.append(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return seeds


class Product(torch.nn.Module):
    """A product, a softmax, and an extent that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.linear(x).softmax(-1), x[:, :1]], 1).reshape(-1, 2).sum(0)


class Choice(torch.nn.Module):
    """Indices and a comparison."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.where(x > 0, x, x.exp())[i], x.topk(2).indices


def pt2_seeds() -> list[bytes]:
    """Programs with a dynamic extent."""
    batch = torch.export.Dim("batch", min=2, max=64)
    seeds = []
    cases: list[tuple[torch.nn.Module, tuple[torch.Tensor, ...], Any]] = [
        (Product(), (torch.randn(4, 4),), ({0: batch},)),
        (Choice(), (torch.randn(4, 4), torch.tensor([1, 2])), ({0: batch}, None)),
    ]
    for module, args, dims in cases:
        buffer = io.BytesIO()
        torch.export.save(torch.export.export(module, args, dynamic_shapes=dims), buffer)
        seeds.append(buffer.getvalue())
    return seeds


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, left out, doubled, or the end cut off."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) or 1)
        kind = rng.randrange(5)
        if kind == 0 and changed:
            changed[at] = rng.randrange(256)
        elif kind == 1 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del changed[at : at + rng.randint(1, 16)]
        elif kind == 3:
            changed[at:at] = changed[at : at + rng.randint(1, 16)]
        elif rng.randrange(4) == 0:
            del changed[at:]
    return bytes(changed)


def change_model(data: bytes, rng: random.Random) -> bytes:
    """Other operators, operands, attributes, extents and types of an ONNX model."""
    model = onnx.load_model_from_string(data)
    graph = model.graph
    operators = [schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain]
    names = ["", "x", *(name for node in graph.node for name in node.output), *(t.name for t in graph.initializer)]
    for _ in range(rng.randint(1, 3)):
        node = rng.choice(graph.node) if graph.node else None
        kind = rng.randrange(9)
        if kind == 0 and node:
            node.op_type = rng.choice(operators)
        elif kind == 1 and node and node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(names)
        elif kind == 2 and node:
            node.input.append(rng.choice(names))
        elif kind == 3 and node and node.attribute:
            attribute = rng.choice(node.attribute)
            if attribute.ints:
                attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS[:-1])
            else:
                attribute.i = rng.choice(NUMBERS[:-1])
        elif kind == 4 and node:
            graph.node.remove(node)
        elif kind == 5 and graph.initializer:
            tensor = rng.choice(graph.initializer)
            if tensor.dims:
                tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS[:-1])
        elif kind == 6 and graph.initializer:
            rng.choice(graph.initializer).data_type = rng.randrange(25)
        elif kind == 7 and graph.input:
            type_ = rng.choice(graph.input).type.tensor_type
            if rng.randrange(2) or not type_.shape.dim:
                type_.elem_type = rng.randrange(25)
            else:
                type_.shape.dim[0].dim_value = rng.choice(NUMBERS[:-1])
        elif node:
            graph.node.append(node)
    return model.SerializeToString()


def change_json(value: Any, rng: random.Random) -> bool:
    """Changes one place of a JSON value; False if there was none."""
    places: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        inner = stack.pop()
        items = inner.items() if isinstance(inner, dict) else enumerate(inner)
        for key, each in items:
            places.append((inner, key))
            if isinstance(each, dict | list):
                stack.append(each)
    if not places:
        return False
    inner, key = rng.choice(places)
    kind = rng.randrange(4)
    if kind == 0:
        del inner[key]
    elif kind == 1:
        inner[key] = rng.choice(NUMBERS)
    elif kind == 2:
        inner[key] = rng.choice([None, "", "x", [], {}, True, 1.5, "torch.ops.aten.sum.default"])
    else:
        inner[key] = json.loads(json.dumps(rng.choice(places)[0]))
    return True


def change_archive(data: bytes, rng: random.Random) -> bytes:
    """Other JSON, or other bytes, in one member of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    models = [i for i, (name, _) in enumerate(members) if name.endswith(".json")]
    chosen = rng.choice(models) if models and rng.randrange(5) else rng.randrange(len(members))
    name, text = members[chosen]
    if chosen in models:
        value = json.loads(text)
        for _ in range(rng.randint(1, 2)):
            change_json(value, rng)
        members[chosen] = (name, json.dumps(value).encode())
    elif rng.randrange(3):
        members[chosen] = (name, change_bytes(text, rng))
    else:
        del members[chosen]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members:
            archive.writestr(name, text)
    return buffer.getvalue()


KINDS: dict[str, tuple[Callable[[], list[bytes]], Callable[[bytes, random.Random], bytes]]] = {
    "onnx": (onnx_seeds, change_model),
    "pt2": (pt2_seeds, change_archive),
}


def make(kind: str, seeds: list[bytes], number: int) -> bytes:
    """The case of that number."""
    rng = random.Random(number)
    data = rng.choice(seeds)
    return change_bytes(data, rng) if rng.randrange(4) == 0 else KINDS[kind][1](data, rng)


def run(path: Path) -> str:
    """What is wrong with how disc-compile takes the file; "" if nothing."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            status = command.main([str(path), "--compile-to", "shape", "-o", "-", "-q"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
        if status and not said.getvalue().strip() and not isinstance(end.code, str):
            return "it failed without a text"
    except BaseException:
        return traceback.format_exc()
    return "" if status in (0, 1, 2) else f"it ended with status {status}"


def work(kind: str, seeds: list[bytes], first: int, out: int, folder: Path) -> None:
    """Runs cases from `first` on; writes the number of each before it runs, and behind a finding its text."""
    path = folder / f"case.{kind}"
    for number in range(first, first + 500):
        path.write_bytes(make(kind, seeds, number))
        os.write(out, f"{number}\n".encode())
        if problem := run(path):
            FINDINGS.mkdir(parents=True, exist_ok=True)
            (FINDINGS / f"{kind}-{number}.{kind}").write_bytes(path.read_bytes())
            (FINDINGS / f"{kind}-{number}.txt").write_text(problem)


def main() -> int:
    """Forks workers one after the other until the time is over."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    number = int(sys.argv[3]) * 1_000_000 if len(sys.argv) > 3 else 0
    seeds = KINDS[kind][0]()
    torch.set_num_threads(1)
    end, cases, crashes = time.monotonic() + seconds, 0, 0
    before = set(FINDINGS.glob(f"{kind}-*.txt"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        valid = folder / f"valid.{kind}"
        for seed in seeds:
            valid.write_bytes(seed)
            if problem := run(valid):
                print(problem)
                return 1
        while time.monotonic() < end:
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reader)
                with contextlib.suppress(BaseException):
                    work(kind, seeds, number, writer, folder)
                os._exit(0)
            os.close(writer)
            hung = False
            while time.monotonic() < end:
                ready, _, _ = select.select([reader], [], [], LIMIT)
                text = os.read(reader, 65536) if ready else b""
                if text:
                    cases += text.count(b"\n")
                    number = int(text.split()[-1]) + 1
                hung = not ready
                if not text:
                    break
            if time.monotonic() >= end or hung:
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            os.close(reader)
            if hung or (os.WIFSIGNALED(status) and time.monotonic() < end):
                crashes += 1
                FINDINGS.mkdir(parents=True, exist_ok=True)
                (FINDINGS / f"{kind}-{number - 1}.{kind}").write_bytes(make(kind, seeds, number - 1))
                (FINDINGS / f"{kind}-{number - 1}.txt").write_text(
                    "it hangs" if hung else f"signal {os.WTERMSIG(status)}"
                )
    found = sorted(set(FINDINGS.glob(f"{kind}-*.txt")) - before)
    print(f"{kind:<14} {cases} executions in {seconds:.0f} s, {len(found)} findings ({crashes} crashes or hangs)")
    for file in found[:3]:
        print(f"{file}: {file.read_text().strip().splitlines()[-1]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
