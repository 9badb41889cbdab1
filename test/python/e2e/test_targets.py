"""The conformance suite on every target that can run here, and what is particular to libraries for other machines."""

import re
import shutil
import subprocess

import pytest
import torch
from torch.export import Dim

import disc
from conformance.cases import CASES, check
from conformance.runners import RUNNERS, SVE
from disc import package
from minilm import load_model, random_inputs
from models import MLP

pytestmark = pytest.mark.share(4)

AARCH64 = "aarch64-linux-gnu"


def run_case(case, runner, folder):
    if runner.missing:
        pytest.skip(f"needs {runner.missing}")
    torch.manual_seed(0)
    module = case.make().eval()
    with runner.compile(case, module, folder) as run:
        check(case, module, run)


# Every fifth of 6 runners in turn: each case runs somewhere, and each runner has one of five cases.
@pytest.mark.share(5, even=True)
@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conformance(case, runner, tmp_path):
    run_case(case, runner, tmp_path)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in ("products", "maths")], ids=str)
def test_long_vectors(case, tmp_path):
    run_case(case, SVE, tmp_path)


def test_minilm(tmp_path):
    """The real sentence-embedding model."""
    runner = next(r for r in RUNNERS if r.name == "qemu-aarch64")
    if runner.missing:
        pytest.skip(f"needs {runner.missing}")
    eager = load_model()
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=1, max=512)
    library = disc.aot_compile(
        eager,
        random_inputs(2, 8),
        dynamic_shapes=({0: batch, 1: length},) * 2,
        output=tmp_path / "libminilm.so",
        target=runner.machine,
        cpu=runner.cpu,
    )
    with runner.serve(library, tmp_path) as run, torch.no_grad():
        for shape in [(1, 1), (1, 7), (2, 16), (3, 5)]:
            inputs = random_inputs(*shape, padded=shape != (1, 1))
            torch.testing.assert_close(run(*inputs)[0], eager(*inputs), rtol=0, atol=1e-5)
        with pytest.raises(
            disc.ShapeError, match=r"dim 0 \(batch\) is out of range: expected 1 <= batch <= 64, got 65"
        ):
            run(*random_inputs(65, 4))


@pytest.mark.parametrize("target", ["cuda-emulated:fast", "rocm-emulated:fast"])
def test_minilm_on_emulated_devices(target):
    """The same, as kernels of blocks of threads."""
    eager = load_model()
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=1, max=512)
    model = disc.compile(eager, random_inputs(2, 8), dynamic_shapes=({0: batch, 1: length},) * 2, target=target)
    with torch.no_grad():
        for shape in [(1, 1), (2, 7), (1, 33)]:
            inputs = random_inputs(*shape, padded=shape != (1, 1))
            torch.testing.assert_close(model(*inputs), eager(*inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("target", ["cuda", "rocm"])
def test_minilm_for_devices(target, tmp_path):
    """Made on a machine without any: every chip's image, whose kernels neither spill nor have arrays of their own."""
    eager = load_model()
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=1, max=512)
    shapes = ({0: batch, 1: length},) * 2
    options = disc.Options(target=target, stop_after="memory")
    described = disc.compile(eager, random_inputs(2, 8), dynamic_shapes=shapes, options=options).ir("memory")
    needs = disc.targets.resources(described, target)
    assert set(needs) == set(disc.targets.find(target).chips)
    for chip, kernels in needs.items():
        assert len(kernels) > 10
        for kernel, need in kernels.items():
            spilled = {name: value for name, value in need.items() if "spill" in name or name == "stack"}
            assert spilled and not any(spilled.values()), (chip, kernel, need)


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx90a"])
def test_short_products_for_devices(target):
    """Steps of a number that is known are not unrolled: a block's registers leave room for others."""
    options = disc.Options(target=target, stop_after="memory")
    shapes = ({0: Dim("n", min=1, max=300)},)
    described = disc.compile(torch.nn.Linear(64, 32), (torch.randn(5, 64),), dynamic_shapes=shapes, options=options)
    ((_, kernels),) = disc.targets.resources(described.ir("memory"), target).items()
    for kernel, need in kernels.items():
        registers = need["registers" if "registers" in need else "vgprs"]
        assert registers <= 96, (kernel, need)


@pytest.mark.parametrize("target", ["cuda", "cuda:sm_90", "rocm:gfx942"])
def test_libraries_for_devices(target, tmp_path):
    library = disc.aot_compile(
        MLP(64, 256, 10),
        (torch.randn(5, 64),),
        dynamic_shapes=({0: Dim("n", min=1, max=300)},),
        output=tmp_path / "libmlp.so",
        target=target,
    )
    image = library.path.read_bytes()
    for chip in target.partition(":")[2].split(",") if ":" in target else ("sm_80", "sm_90"):
        assert chip.encode() in image
    if missing := disc.targets.find(target).target.missing():
        with pytest.raises(disc.LibraryError, match="needs"):
            disc.load(library.path)
        assert "needs" in missing


def compile_mlp(path, module=None, **options):
    return disc.aot_compile(
        module or MLP(64, 256, 10),
        (torch.randn(5, 64),),
        dynamic_shapes=({0: Dim("n", min=1, max=300)},),
        output=path,
        name="mlp",
        **options,
    )


def assembly(tmp_path, **options):
    """The functions of a library, by name."""
    compile_mlp(tmp_path / "mlp.s", emit="asm", **options)
    text = (tmp_path / "mlp.s").read_text()
    return dict(re.findall(r"^disc_mlp_\w+?_(product_\w+|k\d\w+):\n(.*?)^\.?Lfunc_end", text, re.M | re.S))


@pytest.mark.parametrize(
    ("cpu", "panel", "product"),
    [
        ("cortex-a76", 8, r"fmla\tv(\d+)\.4s, v\d+\.4s, v\d+\.(?:4s|s\[0\])"),
        ("neoverse-v1+sve256", 16, r"fmla\tz(\d+)\.s, p\d/m, z\d+\.s, z\d+\.s"),
    ],
    ids=["neon", "sve"],
)
def test_products_fill_the_registers_of_aarch64(tmp_path, cpu, panel, product):
    """28 sums in registers, each added to once, and nothing else that touches memory than what is multiplied."""
    code = assembly(tmp_path, target=AARCH64, cpu=cpu)
    kernel = code[f"product_f32_f32_f32_x{panel}_p_r14"]
    ((_, loop),) = re.findall(r"^(\.LBB\d+_\d+):(.*?)\tb\.ne\t\1$", kernel, re.M | re.S)
    sums = re.findall(product, loop)
    assert len(sums) == 28 and len(set(sums)) == 28
    assert "sp" not in re.findall(r"\w+", loop), "spills"
    assert not re.search(r"^\tst", loop, re.M)


def test_named_cpus_multiply_and_add_at_once(tmp_path):
    code = assembly(tmp_path, cpu="x86-64-v3")
    kernel = code["product_f32_f32_f32_x16_p_r6"]
    assert "vfmadd" in kernel and "vmulps" not in kernel
    assert "vfmadd" not in "".join(assembly(tmp_path, cpu="x86-64-v2").values())


def test_weights_of_few_rows_on_cpus_of_intel(tmp_path):
    """One row fetches its weights to the second-level cache, and leaves them to the hardware on other CPUs."""
    code = assembly(tmp_path, cpu="sapphirerapids")
    assert "prefetcht1" in code["product_f32_f32_f32_x32_p2_r1"]
    assert "prefetch" not in assembly(tmp_path, cpu="znver4")["product_f32_f32_f32_x32_p_r1"]


def test_what_is_not_there(tmp_path):
    def refused(match, **options):
        with pytest.raises(ValueError, match=match):
            compile_mlp(tmp_path / "libmlp.so", **options)

    refused(
        "no CPU is called 'pentium9000' for aarch64-linux-gnu; there are: .*cortex-a76,",
        target=AARCH64,
        cpu="pentium9000",
    )
    refused(
        "no feature is called 'warp' for aarch64-linux-gnu; there are: .*dotprod,",
        target=AARCH64,
        cpu="cortex-a76+warp",
    )
    refused(
        "no target is called 'riscv64-linux-gnu'; there are: aarch64-linux-gnu,", target="riscv64-linux-gnu", cpu="x"
    )
    refused(
        "no CPU is called 'riscv64-linux-gnu' for x86_64-linux-gnu; there are: .*x86-64-v3", target="riscv64-linux-gnu"
    )
    refused("'host' is this machine, x86_64-linux-gnu: name a CPU of aarch64-linux-gnu", target=AARCH64, cpu="host")
    refused("'cortex-m4' has no NEON", target="arm-linux-gnueabihf", cpu="cortex-m4")
    with pytest.raises(
        ValueError, match=r"code for aarch64-linux-gnu can't run in this process: disc.aot_compile makes"
    ):
        disc.compile(MLP(), (torch.randn(5, 24),), target=AARCH64)


def test_a_runtime_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(disc.aot, "__file__", str(tmp_path / "aot.py"))
    with pytest.raises(
        FileNotFoundError, match=r"runtime for aarch64-linux-gnu.* install the package g.*-aarch64-linux-gnu"
    ):
        compile_mlp(tmp_path / "libmlp.so", target=AARCH64)


def test_static_libraries_and_objects(tmp_path):
    for target, machine in ((AARCH64, 183), ("arm-linux-gnueabihf", 40)):
        compile_mlp(tmp_path / "mlp.o", emit="obj", target=target)
        assert int.from_bytes((tmp_path / "mlp.o").read_bytes()[18:20], "little") == machine
        compile_mlp(tmp_path / "libmlp.a", emit="static", target=target)
        assert (tmp_path / "libmlp.a").read_bytes().startswith(b"!<arch>")


def test_the_best_variant_that_runs_is_chosen(tmp_path):
    """SVE of 256 bits where there is just that, else NEON."""
    if SVE.missing:
        pytest.skip(f"needs {SVE.missing}")
    library = compile_mlp(tmp_path / "libmlp.so", target=AARCH64, cpu=["cortex-a76", "neoverse-v1+sve256", "generic"])
    plain = next(r for r in RUNNERS if r.name == "qemu-aarch64")
    x = torch.randn(3, 64)
    for runner in (SVE, plain):
        with runner.serve(library, tmp_path) as run:
            assert run(x)[0].shape == (3, 10)
    only = compile_mlp(tmp_path / "libonly.so", target=AARCH64, cpu="neoverse-v1+sve256")
    with pytest.raises(AssertionError, match="ended with 1"), plain.serve(only, tmp_path) as run:
        run(x)


class Outer(torch.nn.Module):
    def forward(self, x):
        return x[:, None] + x


def test_memory_beyond_addresses(tmp_path):
    """16 GiB are no 0 bytes where sizes have 32 bits."""
    runner = next(r for r in RUNNERS if r.name == "qemu-arm")
    if runner.missing:
        pytest.skip(f"needs {runner.missing}")
    library = disc.aot_compile(
        Outer(),
        (torch.randn(5),),
        dynamic_shapes=({0: Dim("n", max=1 << 20)},),
        output=tmp_path / "libouter.so",
        target=runner.machine,
    )
    with runner.serve(library, tmp_path) as run:
        with pytest.raises(MemoryError):
            run(torch.zeros(1 << 16))
        assert run(torch.ones(3))[0].sum() == 18


PROGRAM = """
#include "mlp.h"
#include <stdio.h>

int main(void) {
  static float x[3 * 64], y[3 * 10], wide[MLP_N_MAX + 1][64], all[MLP_N_MAX + 1][10];
  disc_model *model;
  for (int i = 0; i < 3 * 64; ++i)
    x[i] = (float)i / 64;
  if (mlp_open(NULL, &model) || mlp_run(model, 3, x, y))
    return fprintf(stderr, "%s\\n", disc_last_error()), 1;
  for (int i = 0; i < 3 * 10; ++i)
    printf("%.8g\\n", y[i]);
  if (mlp_run(model, MLP_N_MAX + 1, wide[0], all[0]) != DISC_ERROR_SHAPE)
    return 2;
  return disc_free(model) != DISC_OK;
}
"""


@pytest.mark.parametrize("name", ["qemu-aarch64", "qemu-arm"])
def test_programs_in_c(tmp_path, name):
    """Linked with a library, and with an archive, by the other machine's compiler."""
    runner = next(r for r in RUNNERS if r.name == name)
    if runner.missing:
        pytest.skip(f"needs {runner.missing}")
    torch.manual_seed(0)
    module = MLP(64, 256, 10).eval()
    expected = module(torch.arange(3 * 64).reshape(3, 64) / 64).detach().flatten()
    shutil.copy(package.disc_header(), tmp_path)
    (tmp_path / "main.c").write_text(PROGRAM)
    for file, emit, libraries in (
        ("libmlp.so", "shared", ["-L.", "-lmlp", "-Wl,-rpath,$ORIGIN"]),
        ("libmlp.a", "static", ["libmlp.a", "-lstdc++", "-lm", "-lpthread", "-ldl"]),
    ):
        compile_mlp(tmp_path / file, module, emit=emit, header=tmp_path / "mlp.h", target=runner.machine)
        command = [f"{runner.machine}-gcc", "-std=c99", "-Wall", "-Werror", "main.c", *libraries, "-o", emit]
        subprocess.run(command, cwd=tmp_path, check=True)
        program = [*runner.emulator, "-L", f"/usr/{runner.machine}", str(tmp_path / emit)]
        printed = subprocess.run(program, check=True, capture_output=True, text=True).stdout
        torch.testing.assert_close(torch.tensor([float(line) for line in printed.split()]), expected)


class Products(torch.nn.Module):
    """What goes to a device's library where it is large, with what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(128, 256), torch.nn.Linear(256, 64, bias=False)

    def forward(self, x, y):
        wide = torch.nn.functional.gelu(self.first(x), approximate="tanh")
        narrow = self.second(wide)
        return torch.nn.functional.gelu(self.first(x)), narrow.relu(), narrow.mT @ x, (x @ y) * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_products_of_a_library(dtype, monkeypatch):
    """Whether products are small or large, and done by kernels or by a library, shows in their rounding alone."""
    torch.manual_seed(0)
    module = Products().eval().to(dtype)
    batch, rows = Dim("batch", min=1, max=8), Dim("rows", min=1, max=128)
    compiled = disc.compile(
        module,
        (torch.randn(2, 5, 128, dtype=dtype), torch.randn(2, 128, 5, dtype=dtype)),
        dynamic_shapes=({0: batch, 1: rows}, {0: batch, 2: rows}),
        target="cuda-emulated",
    )
    for library, b, n in (("1", 3, 128), ("0", 3, 128), ("1", 1, 7), ("1", 8, 61)):
        monkeypatch.setenv("DISC_EMULATE_LIBRARY", library)
        x, y = torch.randn(b, n, 128, dtype=dtype), torch.randn(b, 128, n, dtype=dtype)
        got, exact = compiled(x, y), Products().eval().double()
        exact.load_state_dict(module.double().state_dict())
        wanted = exact(x.double(), y.double())
        module.to(dtype)
        tolerance = 1e-5 if dtype == torch.float32 else 0.02
        for g, w in zip(got, wanted, strict=True):
            torch.testing.assert_close(g.double(), w, rtol=tolerance, atol=tolerance * 16)
