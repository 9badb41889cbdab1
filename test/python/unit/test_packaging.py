"""The metadata of the distributions: names, versions, ranges, and the files of the runtime's own."""

import ast
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import disc
from disc import torch_version

tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "python/disc"
COMPILER = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = tomllib.loads((ROOT / "packaging/runtime/pyproject.toml").read_text())
RUNTIME_FILES = [
    line for line in (ROOT / "python/runtime-files.txt").read_text().splitlines() if not line.startswith("#")
]


def test_versions_agree():
    version = re.search(r"project\(disc VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    numbers = re.findall(r"#define DISC_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", (ROOT / "lib/Runtime/disc.h").read_text())
    assert {COMPILER["project"]["version"], RUNTIME["project"]["version"], version, ".".join(numbers)} == {
        disc.__version__
    }


def test_names_and_what_distributions_share():
    assert (COMPILER["project"]["name"], RUNTIME["project"]["name"]) == ("disc-compiler", "disc-compiler-runtime")
    for key in ("license", "license-files", "requires-python"):
        assert COMPILER["project"][key] == RUNTIME["project"][key]
    assert COMPILER["build-system"] == RUNTIME["build-system"]
    for file in COMPILER["project"]["license-files"]:
        assert (ROOT / "packaging/runtime" / file).read_text() == (ROOT / file).read_text()


def test_wheels_contain_llvm_and_other_builds_do_not():
    assert COMPILER["tool"]["scikit-build"]["cmake"]["define"] == {"DISC_STATIC_LLVM": "ON"}
    assert RUNTIME["tool"]["scikit-build"]["cmake"]["define"] == {"DISC_RUNTIME_ONLY": "ON"}
    assert re.search(r"option\(DISC_STATIC_LLVM .* OFF\)", (ROOT / "cmake/Llvm.cmake").read_text())
    assert re.search(r"option\(DISC_RUNTIME_ONLY .* OFF\)", (ROOT / "CMakeLists.txt").read_text())


def test_back_ends_of_the_wheel_are_those_of_the_targets():
    kept = re.search(r"set\(DISC_LLVM_BACKENDS (.*)\)", (ROOT / "cmake/Llvm.cmake").read_text())[1].split()
    assert set(kept) == {"X86", "AArch64", "ARM", "NVPTX", "AMDGPU"}


def test_pinned_versions_are_in_the_ranges():
    """What `make` installs is something that a wheel would accept."""
    pins = {}
    for file in ("requirements.txt", "requirements-dev.txt"):
        for line in (ROOT / file).read_text().splitlines():
            if match := re.fullmatch(r"([\w-]+)==(\S+)", line):
                pins[match[1]] = Version(match[2])
    wanted = [*COMPILER["project"]["dependencies"], *COMPILER["project"]["optional-dependencies"]["onnx"]]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[requirement.name]), requirement
    (torch,) = (r for r in map(Requirement, wanted) if r.name == "torch")
    assert torch.specifier.contains(f"{torch_version.supported().removesuffix('.*')}.1")


@pytest.mark.parametrize("version", ["2.13.0", "2.13.1+cpu", "2.13.0a0+git1"])
def test_supported_torch(version):
    assert torch_version.unsupported(version) == ""


@pytest.mark.parametrize("version", ["2.12.1", "2.14.0+cpu", "3.13.0", "2"])
def test_other_torch_is_an_error_that_says_which_works(version, monkeypatch):
    monkeypatch.setattr(torch_version.importlib.metadata, "version", lambda name: version)
    monkeypatch.delitem(vars(disc), "compile", raising=False)
    with pytest.raises(ImportError, match=re.escape(f"torch 2.13.*, and torch {version} is installed")):
        _ = disc.compile


def test_mixed_installations_are_an_error(monkeypatch):
    monkeypatch.delitem(vars(disc), "load", raising=False)
    monkeypatch.setattr(disc._runtime, "version", 0x10203)
    with pytest.raises(ImportError, match=r"disc\._runtime of version 1\.2\.3: two installations are mixed"):
        _ = disc.load


@pytest.mark.parametrize("project", [COMPILER, RUNTIME], ids=["compiler", "runtime"])
def test_commands_exist(project):
    for entry in project["project"]["scripts"].values():
        module, _, function = entry.partition(":")
        path = PACKAGE.parent / (module.replace(".", "/") + ".py")
        assert f"def {function}(" in path.read_text()
        if project is RUNTIME:
            assert str(path.relative_to(PACKAGE)) in RUNTIME_FILES


def _imported(path: Path) -> set[str]:
    """The files of the package that a file imports when it is imported itself."""
    found = set()
    tree = ast.parse(path.read_text())
    skipped = {id(n) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.If)) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in skipped:
            continue
        folder = path.parents[node.level - 1]
        names = [node.module] if node.module else [alias.name for alias in node.names]
        for name in names:
            target = folder / (name.replace(".", "/") + ".py")
            if target.exists():
                found.add(str(target.relative_to(PACKAGE)))
    return found


def test_runtime_files_need_no_others():
    assert sorted(RUNTIME_FILES) == sorted(set(RUNTIME_FILES))
    for name in RUNTIME_FILES:
        path = PACKAGE / name
        assert path.is_file(), name
        if path.suffix == ".py":
            assert _imported(path) <= set(RUNTIME_FILES), name


def test_runtime_files_need_numpy_alone():
    """Nothing that they import at once comes from outside Python's own library, but for the commands' click."""
    for name in RUNTIME_FILES:
        path = PACKAGE / name
        if path.suffix != ".py":
            continue
        tree = ast.parse(path.read_text())
        skipped = {id(n) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.If)) for n in ast.walk(f)}
        for node in ast.walk(tree):
            if id(node) in skipped:
                continue
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module]
            for module in modules:
                top = module.split(".")[0]
                assert top in sys.stdlib_module_names or (top == "click" and name.startswith("cli/")), (name, module)
