"""lit configuration: `lit -Dbuild=<CMake build folder> test/lit` (default build/)."""

# ruff: noqa: F821  (lit defines `config` and `lit_config`)
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
    "FileCheck": llvm / "FileCheck",
    "not": llvm / "not",
    "mlir-translate": llvm / "mlir-translate",
    "split-file": llvm / "split-file",
}.items():
    if not Path(tool).exists():
        lit_config.fatal(f"{tool} is missing; it comes with the packages that scripts/setup.sh installs")
    config.substitutions.append((rf"(?<![\w./-]){name}(?![\w./-])", str(tool)))

config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%root", str(root)))
config.environment["PATH"] = os.pathsep.join([str(llvm), os.environ.get("PATH", "")])
# FileCheck prints what it was given when a test fails.
config.environment["FILECHECK_OPTS"] = "--enable-var-scope --dump-input=fail"
