"""disc.h and libdisc.so as C sees them: warnings, exported names, what they need."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "python/disc/lib/libdisc.so"
HEADER_FOLDER = ROOT / "python/disc/include"
EXPORTS = (ROOT / "test/runtime/exports.txt").read_text().split()
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
COMPILERS = [c for c in ("cc", "gcc", "clang-22") if shutil.which(c)]

# Every function through the header alone, every error without a model.
PROGRAM = """
#include <disc.h>
#include <stdio.h>
#include <string.h>

static int count;

static void expect(int holds, const char *what) {
  if (holds)
    return;
  ++count;
  fprintf(stderr, "%s: %s\\n", what, disc_last_error());
}

int main(void) {
  disc_options options = disc_default_options();
  disc_error error;
  disc_model *model = NULL;
  memset(&error, 0, sizeof(error));
  error.size = sizeof(error);
  expect(strcmp(disc_last_error(), "") == 0, "no error yet");
  expect(disc_version() == DISC_VERSION, "version");
  expect(strcmp(disc_status_name((disc_status)-1), "unknown status") == 0, "status name");
  expect(disc_load("/no/such/library.so", &options, &model) == DISC_ERROR_FILE, "no file");
  expect(strcmp(disc_last_error(), "/no/such/library.so: cannot open: No such file or directory") == 0, "its text");
  expect(disc_last_error_details(&error) == DISC_OK && error.status == DISC_ERROR_FILE, "details");
  expect(disc_open(NULL, NULL, &model) == DISC_ERROR_INVALID, "no library");
  expect(disc_run(model, NULL, 0, NULL, 0) == DISC_ERROR_INVALID, "no model");
  expect(disc_output_shapes(NULL, NULL, 0, NULL, 0) == DISC_ERROR_INVALID, "no model");
  expect(disc_swap_weights(NULL, "x") == DISC_ERROR_INVALID, "no model");
  expect(disc_describe(NULL, NULL) == DISC_ERROR_INVALID, "no model");
  expect(disc_describe_input(NULL, 0, NULL) == DISC_ERROR_INVALID, "no model");
  expect(disc_describe_output(NULL, 0, NULL) == DISC_ERROR_INVALID, "no model");
  expect(disc_describe_parameter(NULL, 0, NULL) == DISC_ERROR_INVALID, "no model");
  expect(disc_describe_symbol(NULL, 0, NULL) == DISC_ERROR_INVALID, "no model");
  expect(disc_run_on(NULL, NULL, NULL, 0, NULL, 0) == DISC_ERROR_INVALID, "no model");
  expect(disc_synchronize(NULL, NULL) == DISC_ERROR_INVALID, "no model");
  expect(disc_find_device("null", 0) == DISC_OK, "the null device");
  expect(disc_find_device("abacus", 0) == DISC_ERROR_TARGET, "no device");
  expect(disc_free(NULL) == DISC_OK, "free");
  return count;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(("language", "standard"), [("c", "c99"), ("c", "c11"), ("c++", "c++17")])
def test_header_compiles_without_warnings_and_runs(tmp_path, compiler, language, standard):
    """The same program in C99, C11 and C++17, against the package's own header and library alone."""
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text(PROGRAM)
    flags = ["-x", language, f"-std={standard}", *STRICT, "-I", HEADER_FOLDER, source, "-x", "none"]
    subprocess.run([compiler, *flags, LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}", "-o", program], check=True)
    subprocess.run([program], check=True)


def test_exported_names():
    """libdisc.so shows the functions of disc.h, all of them, and nothing else."""
    listing = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    assert sorted(line.split()[-1] for line in listing.splitlines()) == EXPORTS
    declared = re.findall(r"^DISC_API [^(]*?\b(disc_\w+)\(", (HEADER_FOLDER / "disc.h").read_text(), re.MULTILINE)
    assert sorted(declared) == EXPORTS


def test_needs_only_the_c_and_cxx_libraries():
    """No LLVM, no Python, no torch."""
    dynamic = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic))
    assert needed <= {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0"}
