"""Libraries as C programs meet them: what they need, what they export, and a program linked by `cc` alone."""

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import torch

import disc
from aot_cases import CASES, check
from disc import package

ROOT = Path(__file__).resolve().parents[3]
# The interface of every library.
EXPORTED = (ROOT / "test/runtime/exports.txt").read_text().split()
SYSTEM = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "ld-linux-x86-64.so.2"}
CC = shutil.which("cc")


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


@pytest.mark.parametrize("target", ["host", ["x86-64-v4", "x86-64-v3", "x86-64-v2"]], ids=["host", "three"])
def test_what_a_library_needs_and_exports(libraries, target):
    path = libraries("mlp", target=target, packed=target == "host").path
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", path)))
    assert needed <= SYSTEM
    assert "Library soname: [libmlp.so]" in output("readelf", "-dW", path)
    symbols = [line.split()[-1] for line in output("nm", "-D", "--defined-only", path).splitlines()]
    assert sorted(symbols) == sorted([*EXPORTED, "disc_library_mlp", "disc_library_model"])
    # Nothing of the machine it was made on.
    assert not re.search(r"\((RPATH|RUNPATH|TEXTREL)\)", output("readelf", "-dW", path))
    # No page that can be both written to and run, and no executable stack.
    segments = output("readelf", "-lW", path)
    assert not re.search(r"\bRWE\b", segments)
    assert re.search(r"GNU_STACK\s.* RW\s", segments)


PROGRAM = """
#include "attention.h"
#include <stdio.h>
#include <stdlib.h>

/* Reads batch, length and the input from a file; writes the result to another. */
int main(int argc, char **argv) {
  int64_t extents[2];
  disc_model *model;
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  if (argc != 3 || !in || !out || attention_open(NULL, &model) != DISC_OK)
    return fprintf(stderr, "%s\\n", disc_last_error()), 1;
  while (fread(extents, sizeof extents, 1, in) == 1) {
    size_t count = (size_t)attention_output_0_elements(extents[0], extents[1]);
    float *x = (float *)malloc(count * sizeof(float));
    float *y = (float *)malloc(attention_output_0_bytes(extents[0], extents[1]));
    if (fread(x, sizeof(float), count, in) != count)
      return 2;
    if (attention_run(model, extents[0], extents[1], x, y) != DISC_OK)
      return fprintf(stderr, "%s\\n", disc_last_error()), 3;
    fwrite(y, sizeof(float), count, out);
    free(x);
    free(y);
  }
  fclose(out);
  /* What is wrong has a status and a text. */
  static float x[(ATTENTION_BATCH_MAX + 1) * ATTENTION_X_EXTENT_2], y[(ATTENTION_BATCH_MAX + 1) * ATTENTION_X_EXTENT_2];
  if (attention_run(model, ATTENTION_BATCH_MAX + 1, 1, x, y) != DISC_ERROR_SHAPE)
    return fprintf(stderr, "%s\\n", disc_last_error()), 4;
  fprintf(stderr, "%s\\n", disc_last_error());
  return disc_free(model) == DISC_OK ? 0 : 5;
}
"""


@pytest.fixture(scope="module")
def program(libraries, tmp_path_factory):
    """A folder with the program, the library beside it, and its weights beside that."""
    if not CC:
        pytest.skip("no C compiler")
    library = libraries("attention", weights="attention.safetensors")
    folder = tmp_path_factory.mktemp("program")
    (folder / "main.c").write_text(PROGRAM)
    for file in (library.path, library.folder / "attention.safetensors", library.folder / "attention.h"):
        shutil.copy(file, folder)
    shutil.copy(package.disc_header(), folder)
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    output(CC, *strict, "-I.", "main.c", "-L.", "-lattention", "-Wl,-rpath,$ORIGIN", "-o", "main", cwd=folder)
    return library, folder


def write_inputs(library, path):
    inputs = [library.case.inputs(*point) for point in library.case.points]
    with open(path, "wb") as file:
        for point, (x,) in zip(library.case.points, inputs, strict=True):
            file.write(struct.pack("qq", *point) + x.numpy().tobytes())
    return inputs


def check_outputs(library, inputs, path):
    content = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)
    at = 0
    for (x,) in inputs:
        check(content[at : at + x.numel()].view(x.shape), library.module, (x,), library.case.tolerance)
        at += x.numel()
    assert at == content.numel()


def test_a_c_program(program, tmp_path):
    library, folder = program
    inputs = write_inputs(library, tmp_path / "in")
    result = subprocess.run(
        [folder / "main", tmp_path / "in", tmp_path / "out"], capture_output=True, text=True, cwd="/", env={}
    )
    assert result.returncode == 0, result.stderr
    assert "batch" in result.stderr
    check_outputs(library, inputs, tmp_path / "out")


def test_in_an_empty_root(program, tmp_path):
    """With the system's C and C++ libraries, and nothing else."""
    library, folder = program
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    root = tmp_path / "root"
    shutil.copytree(folder, root / "app")
    for name in re.findall(r"(/\S+) \(0x", output("ldd", folder / "main")):
        if Path(name).name not in SYSTEM:
            assert Path(name).parent == folder
            continue
        target = root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, target)
    assert {p.name for p in root.rglob("*.so*")} <= SYSTEM | {"libattention.so"}
    inputs = write_inputs(library, root / "in")

    def enter():
        os.chroot(root)
        os.chdir("/")

    try:
        subprocess.run(["/bin/true"], preexec_fn=lambda: os.chroot("/"), check=True)
    except (subprocess.SubprocessError, PermissionError):
        pytest.skip("chroot is not permitted")
    # Without /proc the dynamic linker does not know what $ORIGIN is.
    command, environment = ["/app/main", "/in", "/out"], {"LD_LIBRARY_PATH": "/app"}
    result = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    check_outputs(library, inputs, root / "out")


TWO = """
#include "mlp.h"
#include "pairs.h"
#include <stdio.h>

int main(void) {
  disc_options options = disc_default_options();
  disc_model *mlp, *pairs;
  static float x[3 * MLP_X_EXTENT_1], y[3 * MLP_OUTPUT_0_EXTENT_1];
  const float left[6] = {1, 2, 3, 4, 5, 6}, right[3] = {1, 10, 100};
  float result[3];
  int i;
  options.threads = 1;
  if (mlp_open(&options, &mlp) || pairs_open(&options, &pairs) || mlp_run(mlp, 3, x, y) ||
      pairs_run(pairs, 1, left, right, result) || disc_free(mlp) || disc_free(pairs))
    return fprintf(stderr, "%s\\n", disc_last_error()), 1;
  for (i = 0; i < (int)mlp_output_0_elements(3); ++i)
    printf("%.9g ", y[i]);
  printf("%g %g %g\\n", result[0], result[1], result[2]);
  return 0;
}
"""


@pytest.mark.parametrize("emit", ["static", "shared"])
def test_two_models_in_one_program(tmp_path, emit):
    if not CC:
        pytest.skip("no C compiler")
    for name in ("mlp", "pairs"):
        install(name, emit, tmp_path)
    (tmp_path / "main.c").write_text(TWO)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(tmp_path / "there/lib/pkgconfig")}
    flags = output("pkg-config", "--cflags", "--libs", "mlp", "pairs", env=environment).split()
    output(CC, "-Wall", "-Werror", "main.c", *flags, f"-Wl,-rpath,{tmp_path}/there/lib", "-o", "main", cwd=tmp_path)
    numbers = [float(number) for number in output(tmp_path / "main").split()]
    assert numbers[-3:] == [5, 70, 900]
    torch.manual_seed(0)
    check(torch.tensor(numbers[:-3]).view(3, 10), CASES["mlp"].make(), (torch.zeros(3, 24),), 1e-5)


def test_an_installed_library_has_its_own_name(tmp_path):
    with pytest.raises(ValueError, match=r"installed as libmlp\.so: call the output so, not mlp\.so"):
        disc.aot_compile(CASES["mlp"].make(), CASES["mlp"].inputs(5), output=tmp_path / "mlp.so", prefix=tmp_path)


def install(name, emit, folder):
    case = CASES[name]
    torch.manual_seed(0)
    disc.aot_compile(
        case.make(),
        case.inputs(5),
        dynamic_shapes=case.dynamic_shapes,
        output=folder / f"lib{name}{'.a' if emit == 'static' else '.so'}",
        name=name,
        prefix=folder / "there",
        emit=emit,
    )
