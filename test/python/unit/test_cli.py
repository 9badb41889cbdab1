"""disc-compile: its command line, what it says of files that are no models, and what it hands on."""

import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.export import Dim

import disc
from disc.cli import compile as command
from disc.cli import text
from disc.interface import Interface, SymbolSpec, TensorSpec
from models import MLP


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "my-model.pt2"
    program = torch.export.export(MLP(), (torch.zeros(4, 24),), dynamic_shapes=({0: Dim("n", min=1, max=64)},))
    torch.export.save(program, path)
    return path


@pytest.fixture
def calls(monkeypatch):
    """The calls of disc.aot_compile, which writes small files."""
    seen = []

    def aot_compile(program, *, output, header=None, prefix=None, weights="embed", options=None, **rest):
        seen.append(
            SimpleNamespace(program=program, output=output, header=header, prefix=prefix, options=options, **rest)
        )
        seen[-1].weights = weights
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        for path in (output, header, None if weights == "embed" else weights):
            if path is not None:
                Path(path).write_bytes(bytes(2500))
        return SimpleNamespace(
            path=output,
            header=header,
            weights=None if weights == "embed" else weights,
            variants=["x86-64-v3"],
            timings={"import": 1.5, "emit": 0.25},
            interface=Interface(
                inputs=[TensorSpec("x", "float32", ("n", 24))],
                outputs=[TensorSpec("y", "float32", ("n", 10))],
                symbols=[SymbolSpec("n", 1, 64)],
            ),
        )

    monkeypatch.setattr(disc, "aot_compile", aot_compile, raising=False)
    return seen


def run(*args):
    """Exit status of the command in this process."""
    try:
        return command.main([str(arg) for arg in args])
    except SystemExit as exit:
        return exit.code


def error(capsys):
    """The one line that was printed."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("disc-compile: error: ")
    return line.removeprefix("disc-compile: error: ")


def test_options_are_handed_on(model, calls, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(model) == 0
    (call,) = calls
    assert isinstance(call.program, torch.export.ExportedProgram)
    assert str(call.output) == "libmy_model.so"
    assert (call.name, call.weights, call.packed, call.target, call.emit) == (
        "my_model",
        "embed",
        True,
        "host",
        "shared",
    )
    assert (call.header, call.prefix) == (None, None)
    printed = " ".join(capsys.readouterr().out.split())
    for part in (
        "libmy_model.so 2.5 kB",
        "input x: float32[n, 24]",
        "symbol n: 1 to 64",
        "emit 250.00 ms",
        "total 1.75 s",
    ):
        assert part in printed

    flags = ["-o", "libother.a", "--emit", "static", "--header", "x.h", "--weights", "w.safetensors", "--no-packed"]
    flags += ["--cpu", "x86-64-v4,x86-64-v3", "--opt-level", "1", "--precision", "bf16", "--dump-ir", "ir"]
    assert run(model, *flags) == 0
    call = calls[1]
    assert (call.name, call.weights, call.packed, call.emit) == ("other", Path("w.safetensors"), False, "static")
    assert (call.target, call.cpu) == ("host", ["x86-64-v4", "x86-64-v3"])
    assert (call.options.opt_level, call.options.precision, str(call.options.dump_ir)) == (1, "bf16", "ir")
    assert "w.safetensors" in capsys.readouterr().out

    assert run(model, "--prefix", tmp_path / "there", "--name", "Mini", "--weights", "w.safetensors", "-q") == 0
    assert calls[2].output == tmp_path / "there/lib/libMini.so"
    # Where the library looks for it.
    assert calls[2].weights == tmp_path / "there/lib/w.safetensors"
    assert capsys.readouterr().out == ""
    assert run(model, "--emit", "llvm", "-q") == 0
    assert str(calls[3].output) == "my_model.ll"
    assert run(model, "--target", "x86-64-v4,x86-64-v3", "-q") == 0
    assert (calls[4].target, calls[4].cpu) == (["x86-64-v4", "x86-64-v3"], None)


def test_compile_to(model, tmp_path, capsys):
    assert run(model, "--compile-to", "shape", "--dims", "x=n,") == 0
    assert "disc_shape.dim <n>" in capsys.readouterr().out
    assert run(model, "--compile-to", "shape") == 0
    assert "disc_shape.dim <x_0>" in capsys.readouterr().out
    assert run(model, "--compile-to", "import", "-o", tmp_path / "m.mlir") == 0
    assert capsys.readouterr().out == ""
    assert "linalg.generic" in (tmp_path / "m.mlir").read_text()
    assert run(model, "--compile-to", "schedule", "--target", "aarch64-linux-gnu", "--cpu", "cortex-a76") == 0
    assert "rows = 14" in capsys.readouterr().out


def test_files_that_are_no_models(model, tmp_path, capsys):
    (tmp_path / "text.pt2").write_text("model")
    assert run(tmp_path / "text.pt2") == 1
    assert error(capsys) == f"{tmp_path}/text.pt2 is not an exported program (torch.export.save writes them)"
    assert run(tmp_path / "none.pt2") == 1
    assert error(capsys) == f"{tmp_path}/none.pt2: No such file or directory"
    assert run(tmp_path) == 1
    assert error(capsys) == f"{tmp_path}: Is a directory"
    torch.save({"a": torch.zeros(2)}, tmp_path / "state.pt")
    assert run(tmp_path / "state.pt") == 1
    assert "is not an exported program but a file of torch.save" in error(capsys)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a/b", "c")
    assert run(tmp_path / "other.zip") == 1
    assert "is not an exported program" in error(capsys)
    with zipfile.ZipFile(model) as whole, zipfile.ZipFile(tmp_path / "damaged.pt2", "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, b"{}" if name.endswith("model.json") else whole.read(name))
    assert run(tmp_path / "damaged.pt2") == 1
    assert f"damaged.pt2 is not an exported program that torch {torch.__version__} reads" in error(capsys)
    # Python still takes a file for an archive whose list of members is damaged.
    for at, byte in ((0, 0), (46, 0xE6)):
        data = bytearray(model.read_bytes())
        directory = data.rindex(b"PK\x05\x06")
        begin = int.from_bytes(data[directory + 16 : directory + 20], "little")
        begin = begin if begin < len(data) else data.index(b"PK\x01\x02")
        data[begin + 8 : begin + 10] = (0x800).to_bytes(2, "little")  # names are UTF-8
        data[begin + at] = byte
        (tmp_path / "directory.pt2").write_bytes(data)
        assert run(tmp_path / "directory.pt2") == 1
        assert "the archive is damaged" in error(capsys)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-o", "-"], "only IR (--compile-to) can be written to the standard output"),
        (["--compile-to", "shape", "--header", "x.h"], "--compile-to writes only IR"),
        (["--compile-to", "shape", "--target", "x86-64-v3,x86-64-v4"], "--compile-to takes one --target"),
        (["--compile-to", "shape", "--target", "pentium9000"], "pentium9000"),
        (
            ["--prefix", "/tmp/p", "--emit", "asm"],
            "--prefix installs libraries: expected --emit shared or static, got asm",
        ),
        (["--dims", "y=n"], "--dims y=n: the inputs are x"),
        (["--dims", "x=1n"], "--dims x=1n: '1n' is not a name; use letters, digits and _"),
        (["--weights", ""], "a file's name is empty"),
        (["--compile-to", "shape", "--target", "i386"], "i386"),
        (["--target", ","], "--target names no kind of CPU"),
        (["--cpu", ","], "--cpu names no kind of CPU"),
        (
            ["--compile-to", "shape", "--target", "aarch64-linux-gnu", "--cpu", "x86-64-v3"],
            "no CPU is called 'x86-64-v3'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_command_lines(model, capsys, flags, message):
    assert run(model, *flags) == 2
    assert message in error(capsys)


def test_names_of_dims(tmp_path, capsys):
    class Nested(torch.nn.Module):
        def forward(self, pair, *, extra):
            return pair["a"] + pair["b"][0] + extra

    x = torch.zeros(4, 6)
    dims = ({"a": {0: Dim("m")}, "b": ({0: Dim("m")},)}, {0: Dim("m")})
    shapes = {"pair": dims[0], "extra": dims[1]}
    program = torch.export.export(Nested(), ({"a": x, "b": (x,)},), {"extra": x}, dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "m.pt2")
    assert run(tmp_path / "m.pt2", "--compile-to", "shape", "--dims", "extra=batch,") == 0
    assert "disc_shape.dim <batch>" in capsys.readouterr().out


def test_folders_that_do_not_exist(model, tmp_path, capsys):
    assert run(model, "--header", tmp_path / "no/x.h") == 1
    assert error(capsys) == f"{tmp_path}/no/x.h: there is no folder {tmp_path}/no"
    assert run(model, "--weights", tmp_path) == 1
    assert error(capsys) == f"{tmp_path} is a folder"


def test_errors_of_the_compiler(model, calls, monkeypatch, capsys):
    def failing(error):
        def aot_compile(*args, **kwargs):
            raise error

        monkeypatch.setattr(disc, "aot_compile", aot_compile)

    failing(disc.CompileError("fusion", "it does not fuse"))
    assert run(model) == 1
    assert error(capsys) == "DISC0001 [fusion] it does not fuse"
    failing(ValueError("no CPU is called 'pentium9000'"))
    assert run(model) == 2
    assert error(capsys) == "no CPU is called 'pentium9000'"
    failing(PermissionError(13, "Permission denied", "/usr/lib/x.so"))
    assert run(model) == 1
    assert error(capsys) == "/usr/lib/x.so: Permission denied"
    failing(KeyboardInterrupt())
    assert run(model) == 130


def test_help_needs_no_torch():
    script = "import sys; sys.modules['torch'] = None\nfrom disc.cli.compile import main\nmain(['--help'])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--compile-to STAGE" in result.stdout


def test_text():
    assert [text.size(n) for n in (0, 999, 1000, 90_123_456, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "90.1 MB",
        "5000.0 GB",
    ]
    assert [text.seconds(t) for t in (12.345, 0.0123, 4.2e-6)] == ["12.35 s", "12.30 ms", "4.20 us"]
    assert text.columns([["a", "1"], ["long", "23"]], right=[1]) == "  a      1\n  long  23"
