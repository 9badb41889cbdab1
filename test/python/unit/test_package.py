"""An installed library, as projects find it with CMake and pkg-config."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from disc import package
from disc.header import header
from disc.interface import Interface, SymbolSpec, TensorSpec

ROOT = Path(__file__).resolve().parents[3]
INTERFACE = Interface(
    [TensorSpec("x", "float32", ("n", 3))], [TensorSpec("y", "float32", ("n",))], [SymbolSpec("n", 1, 8)]
)

# A library that has what a program needs to link, in C++ to be honest about what an archive needs.
LIBRARY = """
#include "disc.h"
#include <stdexcept>
#include <string>
extern "C" {
struct disc_library { int number; };
extern DISC_API const disc_library disc_library_Mini;
const disc_library disc_library_Mini = {42};
static thread_local std::string text;
disc_status disc_open(const disc_library *library, const disc_options *, disc_model **model) {
  try { if (library->number != 42) throw std::runtime_error("other"); } catch (std::exception &e) { text = e.what(); }
  *model = nullptr;
  return text.empty() ? DISC_OK : DISC_ERROR_INVALID;
}
disc_status disc_run(disc_model *, const DLTensor *const *, int64_t, disc_output *, int64_t) { return DISC_OK; }
}
"""
PROGRAM = """
#include <Mini.h>
#include <stdio.h>
int main(void) {
  disc_model *model;
  if (Mini_open(NULL, &model) != DISC_OK) return 1;
  printf("%d %d\\n", (int)MINI_N_MAX, (int)Mini_y_bytes(5));
  return 0;
}
"""


@pytest.fixture(params=["so", "a"])
def installed(request, tmp_path, monkeypatch):
    """A folder with an installed library, moved after it was installed."""
    monkeypatch.setattr(package, "disc_header", lambda: ROOT / "lib/Runtime/disc.h")
    source, built = tmp_path / "library.cpp", tmp_path / f"built.{request.param}"
    source.write_text(LIBRARY)
    compile_it = ["g++", "-std=c++17", "-fPIC", "-O1", "-I", ROOT / "lib/Runtime", source]
    if request.param == "so":
        subprocess.run([*compile_it, "-shared", "-Wl,-soname,libMini.so", "-o", built], check=True)
    else:
        subprocess.run([*compile_it, "-c", "-o", tmp_path / "library.o"], check=True)
        subprocess.run(["ar", "rcs", built, tmp_path / "library.o"], check=True)
    weights = tmp_path / "mini.safetensors"
    weights.write_bytes(b"weights")
    files = package.install_library(
        tmp_path / "first",
        name="Mini",
        library=built,
        header=header("Mini", INTERFACE, version="1.2.3"),
        version="0.3.1",
        weights=weights,
    )
    assert all(file.is_file() for file in files)
    prefix = tmp_path / "a folder"
    (tmp_path / "first").rename(prefix)
    (tmp_path / "main.c").write_text(PROGRAM)
    return prefix


def test_layout(installed):
    found = sorted(p.relative_to(installed).as_posix() for p in installed.rglob("*") if p.is_file())
    library = next(p for p in found if "libMini" in p)
    assert found == sorted(
        [
            "include/Mini.h",
            "include/disc.h",
            "lib/cmake/Mini/mini-config-version.cmake",
            "lib/cmake/Mini/mini-config.cmake",
            library,
            "lib/mini.safetensors",
            "lib/pkgconfig/Mini.pc",
        ]
    )
    for path in installed.rglob("*"):
        if path.suffix in (".cmake", ".pc", ".h"):
            assert str(installed.parent) not in path.read_text()


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
def test_pkg_config(installed, tmp_path):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(installed / "lib/pkgconfig")}
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "Mini >= 0.3"], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()
    # Through a shell, as makefiles do: names with spaces are quoted. `cc` alone, also for an archive.
    subprocess.run(f"cc -std=c99 -Wall -Werror main.c {flags} -o main", shell=True, cwd=tmp_path, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(installed / "lib")}
    assert subprocess.run([tmp_path / "main"], env=environment, capture_output=True, text=True).stdout == "8 20\n"


@pytest.mark.parametrize(
    ("wanted", "fits"), [("", True), ("0.3", True), ("0.3.1 EXACT", True), ("0.4", False), ("0.2", False)]
)
def test_cmake(installed, tmp_path, wanted, fits):
    project = tmp_path / "project"
    project.mkdir()
    # C alone: no other language may be needed.
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(try C)\n"
        f"find_package(Mini {wanted} REQUIRED)\nfind_package(Mini {wanted} REQUIRED)\n"
        "add_executable(main ../main.c)\ntarget_link_libraries(main PRIVATE Mini::Mini)\n"
    )
    configure = ["cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={installed}"]
    result = subprocess.run(configure, capture_output=True, text=True)
    assert (result.returncode == 0) == fits, result.stderr
    if not fits:
        assert "0.3.1" in result.stderr
    elif not wanted:
        subprocess.run(["cmake", "--build", project / "build"], check=True, capture_output=True)
        run = subprocess.run([project / "build/main"], capture_output=True, text=True)
        assert run.stdout == "8 20\n", run.stderr


def test_files_are_replaced_not_written_into(installed, tmp_path):
    library = next((installed / "lib").glob("libMini.*"))
    before = library.stat().st_ino
    with open(library, "rb") as opened:
        content = opened.read(4)
        package.install_library(
            installed, name="Mini", library=next(tmp_path.glob("built.*")), header="/* new */", version="1"
        )
        opened.seek(0)
        assert opened.read(4) == content
    assert library.stat().st_ino != before
    assert (installed / "include/Mini.h").read_text() == "/* new */"
    assert not list(installed.rglob(".*"))


def test_a_newer_disc_header_stays(installed, tmp_path):
    header_file = installed / "include/disc.h"
    text = header_file.read_text()
    for major, stays in (("#define DISC_VERSION_MAJOR 99", True), ("#define DISC_VERSION_MAJOR 0", False)):
        marked = text.replace("#define DISC_VERSION_MAJOR 0", major) + "/* mark */\n"
        header_file.write_text(marked)
        package.install_library(
            installed, name="Mini", library=next(tmp_path.glob("built.*")), header="/* new */", version="1"
        )
        assert (header_file.read_text() == marked) == stays


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="'a-b' cannot name a library"):
        package.install_library(tmp_path, name="a-b", library="x.so", header="", version="1")
    with pytest.raises(ValueError, match=r"version: expected numbers separated by points, got '1\.x'"):
        package.install_library(tmp_path, name="a", library="x.so", header="", version="1.x")
    with pytest.raises(ValueError, match=r"x\.o: only shared libraries"):
        package.install_library(tmp_path, name="a", library="x.o", header="", version="1")
    assert not list(tmp_path.iterdir())
