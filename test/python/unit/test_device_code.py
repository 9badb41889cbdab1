"""Back ends for GPUs: every function of elements that lowering rules use, for every element type, without a library."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import disc
from disc import _native, pipeline, targets, toolchain

UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh erf "
    "erfc floor ceil trunc roundeven absf"
).split()
BINARY = ("math.powf", "math.atan2", "math.copysign", "arith.remf", "arith.maximumf", "arith.minimumf", "arith.maxnumf",
          "arith.minnumf", "arith.divf")  # fmt: skip
ARCHS = {"cuda": ("sm_80", "sm_90"), "rocm": ("gfx90a", "gfx942")}
LANES = {"f32": 4, "f16": 8, "bf16": 8, "f64": 2}
READOBJ = shutil.which("llvm-readobj-22") or "/usr/lib/llvm-22/bin/llvm-readobj"


def kernel(name, op, operands, element):
    """One function of a scalar and of a vector."""
    vector = f"vector<{LANES[element]}x{element}>"
    # Each thread has elements of its own.
    lines = ["    %t = gpu.thread_id x", "    %i = arith.index_cast %t : index to i64"]
    for p in "xr":
        lines += [f"    %{p}t = llvm.getelementptr %{p}[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, vector<32xf32>"]
    for i, type in enumerate((element, vector)):
        for k in range(operands):
            lines += [f"    %p{i}{k} = llvm.getelementptr %xt[{64 * i + 16 * k}] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8"]
            lines += [f"    %v{i}{k} = llvm.load %p{i}{k} : !llvm.ptr<1> -> {type}"]
        arguments = ", ".join(f"%v{i}{k}" for k in range(operands))
        lines += [f"    %y{i} = {op} {arguments} : {type}"]
        lines += [f"    %q{i} = llvm.getelementptr %rt[{64 * i}] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8"]
        lines += [f"    llvm.store %y{i}, %q{i} : {type}, !llvm.ptr<1>"]
    body = "\n".join(lines)
    return f"""
  gpu.func @{name}(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>) kernel attributes {{known_block_size = array<i32: 64, 1, 1>}} {{
{body}
    gpu.return
  }}"""


def functions(element):
    ops = [(f"math.{name}", 1) for name in UNARY] + [(name, 2) for name in BINARY]
    return {op.replace(".", "_"): kernel(op.replace(".", "_"), op, n, element) for op, n in ops}


def archs(element, device):
    """The half types are f32 inside: one chip will do."""
    return ARCHS[device] if element in ("f32", "f64") else ARCHS[device][:1]


def compiled(device, kernels, archs, options=""):
    chips = ", ".join(f'"{arch}"' for arch in archs)
    text = "\n".join(kernels)
    module = _native.Module.parse(
        f"module attributes {{disc_plan.target = #disc_plan.target<arch = [{chips}]>}} {{\n"
        f"gpu.module @kernels {{ {text} }} }}"
    )
    *passes, serialize = pipeline.DEVICE_CODE[device]
    # The pass itself searches PATH alone; the package `nvidia-cuda-nvcc` is found by Python.
    if device == "cuda" and "ptxas=" not in options and (ptxas := toolchain.find_ptxas()):
        options += f" ptxas={ptxas}"
    module.run(f"builtin.module({','.join(passes)},{serialize}{{{options}}})")
    return module.images()


@pytest.mark.parametrize("element", LANES)
def test_functions_on_nvidia(element):
    """No call is left, and where ptxas is there no local memory is used."""
    kernels = functions(element)
    images = compiled("cuda", kernels.values(), archs(element, "cuda"))
    texts = [image for image in images if image[1] == "text"]
    assert len(texts) == 1 and b"call" not in texts[0][2]
    assert texts[0][2].count(b".visible .entry") == len(kernels)
    if not toolchain.find_ptxas():
        pytest.skip("PTX alone: no ptxas")
    assert [image[0] for image in images if image[1] == "binary"] == list(archs(element, "cuda"))
    for chip, kind, _, needs in images:
        if kind == "binary":
            assert set(needs) == set(kernels)
            for name, need in needs.items():
                assert need["registers"] > 0
                used = {key: need[key] for key in ("stack", "spill_stores", "spill_loads", "shared")}
                if element == "f64":  # ptxas calls a routine for divisions, which may keep a register there
                    used["stack"] -= min(used["stack"], 16)
                assert not any(used.values()), (chip, name, used)


@pytest.mark.parametrize("element", LANES)
def test_functions_on_amd(element):
    kernels = functions(element)
    images = compiled("rocm", kernels.values(), archs(element, "rocm"))
    assert [image[:2] for image in images] == [(arch, "binary") for arch in archs(element, "rocm")]
    for chip, _, _, needs in images:
        assert set(needs) == set(kernels)
        for name, need in needs.items():
            assert need["vgprs"] > 0
            used = {key: need[key] for key in ("stack", "vgpr_spills", "sgpr_spills", "shared")}
            assert not any(used.values()), (chip, name, used)


def test_code_objects_hold_metadata_and_descriptors(tmp_path):
    images = compiled("rocm", [kernel("k", "math.exp", 1, "f32")], ARCHS["rocm"])
    for chip, _, image, _ in images:
        file = Path(tmp_path) / f"{chip}.hsaco"
        file.write_bytes(image)
        out = subprocess.run(
            [READOBJ, "--file-headers", "--notes", "--dyn-symbols", file], capture_output=True, text=True, check=True
        ).stdout
        out = " ".join(out.split())
        assert f"EF_AMDGPU_MACH_AMDGCN_{chip.upper()}" in out
        assert "ABIVersion: 3" in out  # code object version 5
        assert ".wavefront_size: 64" in out and ".max_flat_workgroup_size: 64" in out
        assert "Name: k.kd" in out


def test_spills_and_arrays_are_reported():
    """A vector that is indexed by a value lies in local memory."""
    text = """
  gpu.func @k(%x: !llvm.ptr<1>, %i: i64) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %v = llvm.load %x : !llvm.ptr<1> -> vector<8xf32>
    %n = arith.index_cast %i : i64 to index
    %w = arith.addf %v, %v : vector<8xf32>
    %f = vector.extract %w[%n] : f32 from vector<8xf32>
    llvm.store %f, %x : f32, !llvm.ptr<1>
    gpu.return
  }"""
    (text_image,) = compiled("cuda", [text], ["sm_80"], "cubin=false")
    assert text_image[3] == {"k": {}}
    if toolchain.find_ptxas():
        (cubin, _) = compiled("cuda", [text], ["sm_80"])
        assert cubin[3]["k"]["stack"] > 0


def test_failing_ptxas_is_quoted(tmp_path):
    """The error contains what ptxas printed, also if a signal ended it."""
    text = "gpu.func @k() kernel attributes {known_block_size = array<i32: 64, 1, 1>} { gpu.return }"
    for last, expected in (("exit 3", "cannot load libfoo.so"), ("kill -ABRT $$", "cannot load libfoo.so")):
        program = tmp_path / "ptxas"
        program.write_text(f"#!/bin/sh\necho cannot load libfoo.so >&2\n{last}\n")
        program.chmod(0o755)
        with pytest.raises(_native.PipelineError, match=f"(?s)ptxas failed for sm_80.*{expected}"):
            compiled("cuda", [text], ["sm_80"], f"ptxas={program}")


def test_find_ptxas(tmp_path, monkeypatch):
    """PATH first, then the package."""
    program = tmp_path / "bin" / "ptxas"
    package = tmp_path / "site" / "nvidia" / "cu13" / "bin" / "ptxas"
    for path in (program, package):
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert toolchain.find_ptxas() == str(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(__import__("sys").modules, "nvidia", raising=False)
    assert toolchain.find_ptxas() == str(package)
    # Without either, whatever package the tests' own environment has.
    package.unlink()
    assert str(tmp_path) not in toolchain.find_ptxas()


class Encoder(torch.nn.Module):
    """Kernels of every kind: products, attention, norms, softmax, reductions of columns, sums so far, views."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(100, 64)
        self.layer = torch.nn.TransformerEncoderLayer(64, 2, 128, batch_first=True, activation="gelu")

    def forward(self, words):
        x = self.layer(self.words(words))
        parts = torch.cat([x, torch.cumsum(x, 1)], -1)
        return torch.softmax(x, -1), x.mean(1), x.transpose(1, 2).contiguous(), parts.sin()


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx90a"])
def test_kernels_of_a_model(target):
    """No kernel spills, and none has arrays of its own."""
    if target.startswith("cuda") and not toolchain.find_ptxas():
        pytest.skip("no ptxas")
    length = torch.export.Dim("S", min=2, max=512)
    model = disc.compile(
        Encoder().eval(),
        (torch.randint(0, 100, (2, 16)),),
        dynamic_shapes=({1: length},),
        options=disc.Options(target=target, stop_after="memory"),
    )
    (kernels,) = targets.resources(model.ir("memory"), target).values()
    assert len(kernels) > 8
    for name, needs in kernels.items():
        used = {key: n for key, n in needs.items() if n and ("spill" in key or key == "stack")}
        assert not used, (name, used)


@pytest.mark.parametrize("target", ["cuda:sm_90", "rocm:gfx942"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_divided_keys(target, dtype):
    """Few queries of heads that share keys: parts of the keys, in memory of the arena, and what combines them."""
    if target.startswith("cuda") and not toolchain.find_ptxas():
        pytest.skip("no ptxas")

    class Decode(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    batch, length = torch.export.Dim("B", min=1, max=512), torch.export.Dim("S", min=1, max=8192)
    inputs = (torch.randn(3, 8, 1, 128, dtype=dtype), *(torch.randn(3, 2, 7, 128, dtype=dtype) for _ in range(2)))
    options = disc.Options(target=target, stop_after="memory")
    model = disc.compile(Decode(), inputs, dynamic_shapes=({0: batch}, *({0: batch, 2: length},) * 2), options=options)
    assert "shared = 1" in model.ir("memory")
    memory = {b: [model.memory(B=b, S=s).arena for s in (255, 256, 8192)] for b in (1, 200)}
    assert memory[1][0] == memory[200][0] == memory[200][2] == 0 < memory[1][1] < memory[1][2] < 1 << 20
    (kernels,) = targets.resources(model.ir("memory"), target).values()
    assert sorted(name.split("_")[-1] for name in kernels) == ["attention", "parts", "whole"]
    for name, needs in kernels.items():
        used = {key: n for key, n in needs.items() if n and ("spill" in key or key == "stack")}
        assert not used, (name, used)


@pytest.mark.parametrize(
    ("dtype", "instruction"),
    [
        (torch.float32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
        (torch.float16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        (torch.bfloat16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    ],
    ids=str,
)
def test_products_use_tensor_cores(dtype, instruction):
    """In every size of tiles, with copies that nobody waits for at once, and in attention."""
    rows, length = torch.export.Dim("n", max=1 << 20), torch.export.Dim("s", max=512)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(256, 384, dtype=dtype)

        def forward(self, x, q):
            return self.linear(x), torch.nn.functional.scaled_dot_product_attention(q, q, q)

    module = Both().requires_grad_(False)
    model = disc.compile(
        module,
        (torch.randn(5, 256, dtype=dtype), torch.randn(2, 3, 7, 64, dtype=dtype)),
        dynamic_shapes=({0: rows}, {2: length}),
        options=disc.Options(target="cuda:sm_80", stop_after="memory"),
    )
    module = _native.Module.parse(model.ir("memory"))
    passes = targets.find("cuda:sm_80").pipeline["codegen"].passes
    end = next(i for i, name in enumerate(passes) if name.startswith("disc-nvvm-serialize"))
    module.run(f"builtin.module({','.join(passes[:end])},disc-nvvm-serialize{{cubin=false}})")
    ((_, _, text, _),) = module.images()
    kernels = {part.split(b"(")[0].strip(): part for part in text.split(b".entry ")[1:]}
    products = [name for name in kernels if b"linear" in name and b"epilogue" not in name]
    assert len(products) == 5
    for name, code in kernels.items():
        if b"epilogue" not in name and not name.endswith(b"_whole"):
            assert instruction.encode() in code, name
            is_sliced = name.endswith((b"_c32_s16", b"_c32_s8"))
            assert (b"cp.async.cg.shared.global" in code) == (not is_sliced), name
    assert (b"ldmatrix" in text) == (dtype != torch.float32)


class Rows(torch.nn.Module):
    """Norms, gates and softmax of rows of 768, twice: one kernel of many passes."""

    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(768) for _ in range(2)])

    def forward(self, x, gate):
        for norm in self.norms:
            y = torch.nn.functional.gelu(norm(x)) * torch.sigmoid(gate)
            x = x + y + 8 * torch.softmax(y.masked_fill(gate < -1, float("-inf")), -1)
        return x


class Softmax(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


ROWS = torch.export.Dim("rows", min=1, max=65536)
LENGTH = torch.export.Dim("length", min=1, max=65536)
KEPT = {
    "chain": (Rows, (torch.randn(3, 768),) * 2, ({0: ROWS},) * 2),
    "layer norm": (lambda: torch.nn.LayerNorm(768), (torch.randn(3, 768),), ({0: ROWS},)),
    "softmax": (Softmax, (torch.randn(3, 77),), ({0: ROWS, 1: LENGTH},)),
}


def kept(name, target):
    """The IR after the memory stage of a model whose rows stay in registers."""
    make, inputs, shapes = KEPT[name]
    options = disc.Options(target=target, stop_after="memory")
    return disc.compile(make().eval(), inputs, dynamic_shapes=shapes, options=options).ir("memory")


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90", "rocm:gfx942"])
@pytest.mark.parametrize("name", KEPT)
def test_kernels_of_kept_rows(name, target):
    """Registers hold what the passes share: nothing is spilled, and several blocks have room beside each other."""
    if target.startswith("cuda") and not toolchain.find_ptxas():
        pytest.skip("no ptxas")
    (kernels,) = targets.resources(kept(name, target), target).values()
    for kernel, needs in kernels.items():
        # ptxas calls a routine for divisions, which may keep a register in memory.
        used = {key: n for key, n in needs.items() if n > 8 and ("spill" in key or key == "stack")}
        assert not used, (kernel, used)
        assert needs.get("registers", needs.get("vgprs")) <= 128, (kernel, needs)


@pytest.mark.parametrize(("name", "kernel", "loads"), [
    ("chain", "k0", 2 * 6 + 4 * 6),  # x, the gate; the norms' weights
    ("layer norm", "k0", 3 * 6),
    ("softmax", "_v4_p8", 8),
])  # fmt: skip
def test_kept_rows_are_loaded_once(name, kernel, loads):
    """A thread has at most `loads` vectors of its operands, and reads each once."""
    module = _native.Module.parse(kept(name, "cuda:sm_80"))
    passes = targets.find("cuda:sm_80").pipeline["codegen"].passes
    end = next(i for i, each in enumerate(passes) if each.startswith("disc-nvvm-serialize"))
    module.run(f"builtin.module({','.join(passes[:end])},disc-nvvm-serialize{{cubin=false}})")
    (image,) = module.images()
    functions = re.split(r"\.visible \.entry ", image[2].decode())[1:]
    (text,) = [text for text in functions if kernel in text.partition("(")[0]]
    assert 0 < len(re.findall(r"ld\.global\S*\.v4", text)) <= loads
    assert not re.findall(r"ld\.global(?!\S*\.v4)", text)


def test_resources_of_what_makes_no_images():
    with pytest.raises(ValueError, match="makes no images"):
        targets.resources("module {}", "cpu")
