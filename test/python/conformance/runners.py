"""Ways to compile a case for a target and to run it there."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import disc
from disc.weights import NAMES, write_weights

from .cases import Case

Run = Callable[..., Sequence[Tensor]]
_LIB = Path(disc.__file__).parent / "lib"
_DTYPES = {name: dtype for dtype, name in NAMES.items()}


class Runner:
    """A target. ``missing`` says what this machine lacks to run its code; "" if nothing."""

    name: str
    missing = ""

    @contextlib.contextmanager
    def compile(self, case: Case, module: nn.Module, folder: Path) -> Iterator[Run]:
        """Compiles a case; gives what runs it, as long as the context lasts."""
        raise NotImplementedError
        yield

    def __str__(self) -> str:
        return self.name


class InProcess(Runner):
    """A target whose models run in this process."""

    def __init__(self, target: str, sanitize: bool = False) -> None:
        self.name = f"{target}-sanitized" if sanitize else target
        self.options = disc.Options(target=target, sanitize=sanitize)
        self.missing = disc.targets.find(target).target.missing()

    @contextlib.contextmanager
    def compile(self, case: Case, module: nn.Module, folder: Path) -> Iterator[Run]:
        model = disc.compile(module, case.examples(), dynamic_shapes=case.dynamic_shapes, options=self.options)
        yield lambda *inputs: torch.utils._pytree.tree_leaves(model(*inputs))


@dataclass
class Foreign(Runner):
    """A CPU of another kind, emulated: a library, and disc-call in a process of its own that serves calls."""

    name: str
    machine: str
    cpu: str | None
    emulator: Sequence[str]

    def __post_init__(self) -> None:
        self._caller = _LIB / self.machine / "disc-call"
        if not shutil.which(self.emulator[0]):
            self.missing = f"{self.emulator[0]} (Debian's package qemu-user)"
        elif not self._caller.is_file():
            self.missing = f"{self._caller} (Debian's package g++-{self.machine}, then make)"

    @contextlib.contextmanager
    def compile(self, case: Case, module: nn.Module, folder: Path) -> Iterator[Run]:
        library = disc.aot_compile(
            module,
            case.examples(),
            dynamic_shapes=case.dynamic_shapes,
            output=folder / f"lib{case.name}.so",
            target=self.machine,
            cpu=self.cpu,
        )
        with self.serve(library, folder) as run:
            yield run

    @contextlib.contextmanager
    def serve(self, library: disc.Artifact, folder: Path) -> Iterator[Run]:
        """Calls of a library, as long as the context lasts."""
        command = [*self.emulator, "-L", f"/usr/{self.machine}", str(self._caller), str(library.path), "--threads", "2"]
        names = [spec.name for spec in library.interface.inputs]
        updated = [spec.name for spec in library.interface.inputs if spec.updated]
        outputs = [spec.name for spec in library.interface.outputs]
        given, taken = folder / "inputs.safetensors", folder / "outputs.safetensors"

        def run(*inputs: Tensor) -> Sequence[Tensor]:
            write_weights(given, dict(zip(names, inputs, strict=True)))
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{given}\t{taken}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, f"{self.name}: the process ended with {process.wait()}"
            _raise(json.loads(answer))
            found = _read(taken)
            for name in updated:
                inputs[names.index(name)].copy_(found[name])
            return [found[name] for name in outputs]

        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield run
            finally:
                process.kill()


def _raise(answer: dict[str, object]) -> None:
    """What disc.Library raises for an answer of disc-call."""
    status, message = answer["status"], str(answer.get("message"))
    if status == "DISC_OK":
        return
    if status == "DISC_ERROR_SHAPE":
        raise disc.ShapeError(message)
    kinds = {"DISC_ERROR_TYPE": TypeError, "DISC_ERROR_INDEX": IndexError, "DISC_ERROR_MEMORY": MemoryError}
    raise kinds.get(str(status), RuntimeError)(message)


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    image = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(image[:8], "little")
    result = {}
    for name, entry in json.loads(image[8:end]).items():
        dtype, (begin, finish) = _DTYPES[entry["dtype"]], entry["data_offsets"]
        # A buffer of no bytes is no tensor to torch.
        flat = (
            torch.frombuffer(image, dtype=torch.uint8, offset=end + begin, count=finish - begin)
            if finish > begin
            else None
        )
        tensor = torch.empty(0, dtype=dtype) if flat is None else flat.clone().view(dtype)
        result[name] = tensor.reshape(entry["shape"])
    return result


RUNNERS: list[Runner] = [
    InProcess("cpu"),
    InProcess("cpu", sanitize=True),
    InProcess("cuda-emulated"),
    InProcess("rocm-emulated"),
    Foreign("qemu-aarch64", "aarch64-linux-gnu", "cortex-a76", ["qemu-aarch64"]),
    Foreign("qemu-arm", "arm-linux-gnueabihf", None, ["qemu-arm"]),
]
SVE = Foreign(
    "qemu-aarch64-sve",
    "aarch64-linux-gnu",
    "neoverse-v1+sve256",
    ["qemu-aarch64", "-cpu", "max,sve-default-vector-length=32"],
)
