"""lit configuration: `lit -Dbuild=<CMake build folder> test/lit` (default build/)."""

# ruff: noqa: F821  (lit defines `config` and `lit_config`)
import importlib
import os
import sys
from pathlib import Path

import lit.formats

root = Path(__file__).resolve().parents[2]
build = Path(lit_config.params.get("build", os.environ.get("DISC_BUILD", root / "build"))).resolve()
llvm = Path(lit_config.params.get("llvm", "/usr/lib/llvm-22/bin"))

config.name = "DISC"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["lit.cfg.py", "Inputs"]
config.test_source_root = str(Path(__file__).parent)
config.test_exec_root = str(build / "test" / "lit")

disc_opt = next((p for p in (build / "tools/disc-opt/disc-opt", build / "bin/disc-opt") if p.exists()), None)
if disc_opt is None:
    lit_config.fatal(f"disc-opt is not built in {build}; run make, or pass -Dbuild=<CMake build folder>")

for name, tool in {
    "disc-opt": disc_opt,
    "disc-opt-twice": build / "test/kind/disc-opt-twice",
    "FileCheck": llvm / "FileCheck",
    "not": llvm / "not",
    "mlir-translate": llvm / "mlir-translate",
    "split-file": llvm / "split-file",
}.items():
    if not Path(tool).exists():
        lit_config.fatal(f"{tool} is missing; it comes with the packages that scripts/setup.sh installs")
    config.substitutions.append((rf"(?<![\w./-]){name}(?![\w./-])", str(tool)))

# The passes that make device images, as they are when models are compiled: %nvvm-passes and %rocdl-passes stop before
# images; %ptx and %isa print the text of one architecture.
sys.path.insert(0, str(root / "python"))
pipeline = importlib.import_module("disc.pipeline")
unescape = r"sed -e 's/\\0A/\n/g' -e 's/\\09/\t/g' -e 's/\\22/\d34/g'"
for device, name, text, options in (
    ("cuda", "nvvm", "%ptx", "cubin=false arch=sm_80"),
    ("rocm", "rocdl", "%isa", "assembly=true arch=gfx90a"),
):
    *lower, serialize = pipeline.DEVICE_CODE[device]
    image = f"{','.join(lower)},{serialize}{{{options}}}"
    config.substitutions.append((f"%{name}-passes", ",".join(lower)))
    config.substitutions.append((text, f"{disc_opt} --pass-pipeline='builtin.module({image})' %s | {unescape}"))
toolchain = importlib.import_module("disc.toolchain")
if ptxas := toolchain.find_ptxas():
    config.available_features.add("ptxas")
    config.substitutions.append(("%{ptxas}", ptxas))

config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%root", str(root)))
config.environment["PATH"] = os.pathsep.join([str(llvm), os.environ.get("PATH", "")])
# FileCheck prints what it was given when a test fails.
config.environment["FILECHECK_OPTS"] = "--enable-var-scope --dump-input=fail"
