"""Programs of torch.export and disc.export: every symbol stays dynamic, what was saved compiles as the module does."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim, ShapesCollection, _patches

import disc
from disc.frontend.symbols import SymbolTable

pytestmark = pytest.mark.share(2)

aten = torch.ops.aten


def saved(program):
    """The program as it comes back from a file."""
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def agree(model, eager, *inputs):
    for args in inputs:
        want, got = eager(*args), model(*args)
        for w, g in zip(*(x if isinstance(x, tuple) else (x,) for x in (want, got)), strict=True):
            torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)


class _Whole(nn.Module):
    """Calls one of PyTorch's operators of whole recurrent layers."""

    def __init__(self, kind, packed, **config):
        super().__init__()
        self.layer = getattr(nn, "RNN" if kind.startswith("rnn") else kind.upper())(5, 8, **config).double()
        overloads = getattr(aten, kind)
        self.operator = overloads.data if packed else overloads.input
        self.packed = packed

    def forward(self, x, *rest):
        layer = self.layer
        sizes, hx = rest[:-1], rest[-1]
        config = (layer.bias, layer.num_layers, 0.0, False, layer.bidirectional)
        config = config if self.packed else (*config, layer.batch_first)
        return self.operator(x, *sizes, hx, layer._flat_weights, *config)


def _state(layer, batch):
    def zeros(size):
        return torch.randn(layer.num_layers * (2 if layer.bidirectional else 1), batch, size).double()

    hidden = layer.proj_size or layer.hidden_size
    return [zeros(hidden), zeros(layer.hidden_size)] if isinstance(layer, nn.LSTM) else zeros(hidden)


def _shapes_of(x, *rest):
    """What the operators return, for tracing: without PyTorch's own code, which has a loop over the steps."""
    hx = next(value for value in rest if isinstance(value, list) or value.is_floating_point())
    bidirectional = rest[-1] if x.dim() == 2 else rest[-2]
    states = hx if isinstance(hx, list) else [hx]
    y = x.new_zeros((*x.shape[:-1], states[0].shape[-1] * (2 if bidirectional else 1)))
    return (y, *(torch.empty_like(state) for state in states))


def _kept(module, args, shapes):
    """torch.export's program in which the operator of the layer stands whole."""
    with _patches._register_rnn_while_loop_decomposition(module.operator, _shapes_of), torch.no_grad():
        program = torch.export.export(module, args, dynamic_shapes=shapes)
    assert module.operator in {node.target for node in program.graph.nodes}
    return program


KINDS = {
    "lstm": {"num_layers": 2, "bidirectional": True, "proj_size": 3},
    "gru": {"batch_first": True, "num_layers": 2},
    "rnn_tanh": {"bias": False, "bidirectional": True},
    "rnn_relu": {"nonlinearity": "relu", "batch_first": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_whole_layers_in_a_program(kind):
    torch.manual_seed(0)
    module = _Whole(kind, False, **KINDS[kind]).eval()
    first = module.layer.batch_first

    def inputs(time, batch):
        return torch.randn(*((batch, time) if first else (time, batch)), 5).double(), _state(module.layer, batch)

    time, batch = Dim("time", min=1), Dim("batch", min=1)
    states = {1: batch}
    shapes = (((batch, time, None) if first else (time, batch, None)), [[states, states] if kind == "lstm" else states])
    shapes = {"x": shapes[0], "rest": tuple(shapes[1])}
    program = _kept(module, inputs(7, 3), shapes)
    for one in (program, saved(program)):
        agree(disc.compile(one), module, *(inputs(*size) for size in ((7, 3), (1, 1), (13, 2), (2, 5))))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_layers_in_a_program(kind):
    torch.manual_seed(0)
    config = {key: value for key, value in KINDS[kind].items() if key != "batch_first"}
    module = _Whole(kind, True, **config).eval()

    def inputs(*lengths):
        xs = [torch.randn(n, 5).double() for n in lengths]
        packed = nn.utils.rnn.pack_sequence(xs)
        return packed.data, packed.batch_sizes, _state(module.layer, len(lengths))

    rows, time, batch = Dim("rows", min=1), Dim("time", min=1), Dim("batch", min=1)
    states = {1: batch}
    shapes = {"x": {0: rows}, "rest": ({0: time}, [states, states] if kind == "lstm" else states)}
    model = disc.compile(_kept(module, inputs(7, 4, 4, 1), shapes))
    agree(model, module, *(inputs(*lengths) for lengths in ((7, 4, 4, 1), (1,), (9,), (3, 3, 3), (5, 2, 1, 1, 1))))


def test_a_layer_exported_with_pytorchs_decomposition():
    torch.manual_seed(0)
    layer = nn.LSTM(5, 8, batch_first=True).eval()
    with _patches.register_lstm_while_loop_decomposition(), torch.no_grad():
        program = torch.export.export(layer, (torch.randn(3, 7, 5),), dynamic_shapes=({1: Dim("time")},))
    model = disc.compile(program)
    for length in (1, 2, 7, 31):
        x = torch.randn(3, length, 5)
        torch.testing.assert_close(model(x)[0], layer(x)[0], rtol=1e-5, atol=1e-5)


@torch.library.custom_op("disc_test::unrolled", mutates_args=())
def unrolled(x: torch.Tensor) -> torch.Tensor:
    """Cumulative sums."""
    return x.cumsum(0)


unrolled.register_fake(torch.empty_like)


def test_a_decomposition_that_fixes_a_size_is_an_error(monkeypatch):
    from disc.frontend import decompositions

    class Model(nn.Module):
        def forward(self, x):
            return torch.ops.disc_test.unrolled(x)

    def loop(x):
        rows = [x[0]]
        for n in range(1, int(x.shape[0])):
            rows.append(rows[-1] + x[n])
        return torch.stack(rows)

    program = torch.export.export(Model(), (torch.randn(7, 3),), dynamic_shapes=({0: Dim("length", min=1)},))
    monkeypatch.setitem(decompositions.OWN, torch.ops.disc_test.unrolled.default, loop)
    with pytest.raises(disc.CompileError, match=r"(?s)size\(\)\[0\] is a dynamic size.*fixes it to 7") as error:
        disc.compile(program)
    assert "test_exported_programs.py" in str(error.value)


class _Reader(nn.Module):
    """A recurrent layer, a branch and a loop on data, a branch on a size."""

    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(5, 8, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)
        y = y * 2 if y.sum() > 0 else y - 3
        while y.abs().max() > 1:
            y = y / 2
        return y + 1 if x.shape[0] == 1 else y


def _read(batch, length):
    lengths = torch.randint(1, length + 1, (batch,))
    lengths[-1] = length
    return torch.randn(batch, length, 5), lengths


def test_export_saves_what_compile_sees():
    torch.manual_seed(0)
    module = _Reader().eval()
    batch, length = Dim("batch", min=1), Dim("length", min=1)
    shapes = ({0: batch, 1: length}, {0: batch})
    program = saved(disc.export(module, _read(3, 7), dynamic_shapes=shapes))
    agree(disc.compile(program), module, *(_read(*size) for size in ((3, 7), (1, 1), (1, 9), (5, 2), (2, 17))))


_EXPORT = """
import disc, sys, torch
from torch.export import Dim
torch.manual_seed(0)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(5, 8, batch_first=True)
    def forward(self, x):
        y = self.layer(x)[0]
        return y * 2 if y.sum() > 0 else y - 3
module = Model().eval()
program = disc.export(module, (torch.randn(3, 7, 5),), dynamic_shapes=({0: Dim("b", min=2), 1: Dim.AUTO},))
torch.export.save(program, sys.argv[1])
xs = [torch.randn(n, m, 5) for n, m in ((2, 1), (3, 7), (2, 30))]
torch.save([(x, module(x).detach()) for x in xs], sys.argv[2])
"""


def test_command_line(tmp_path):
    file, library, cases = tmp_path / "m.pt2", tmp_path / "libm.so", tmp_path / "cases.pt"
    (tmp_path / "model.py").write_text(_EXPORT)
    subprocess.run([sys.executable, tmp_path / "model.py", file, cases], check=True)
    command = [sys.executable, "-m", "disc.cli.compile", file, "-o", library, "--opt-level", "1"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # The user's own lower bound of 2, and none where the user gave none.
    assert "x_0: 2 and more" in text and "x_1: 0 and more" in text
    model = disc.load(library)
    for x, want in torch.load(cases):
        torch.testing.assert_close(torch.as_tensor(model(x)), want, rtol=1e-5, atol=1e-5)


def test_export_refuses_what_no_file_holds():
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module or another callable, got int"):
        disc.export(3, (torch.ones(2),))


def test_the_page_of_export(tmp_path):
    page = (Path(__file__).parents[3] / "docs/howto/export.md").read_text(encoding="utf-8")
    (tmp_path / "page.py").write_text(page.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    command = [sys.executable, "page.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "torch.Size([1, 30, 8])\n"


def test_export_takes_a_collection_of_shapes():
    x = torch.ones(3, 4)
    shapes = ShapesCollection()
    shapes[x] = {0: Dim("n", max=64)}
    model = disc.compile(saved(disc.export(torch.nn.ReLU(), (x,), dynamic_shapes=shapes)))
    assert model(torch.ones(9, 4)).shape == (9, 4)


@pytest.mark.parametrize("kind", ["module", "program", "file"])
@pytest.mark.parametrize("mistake", ["static", "narrow"])
def test_a_dim_that_compiling_fixes_is_an_error(kind, mistake, monkeypatch):
    original = SymbolTable.__init__

    def narrowed(self, *args, **kwargs):
        original(self, *args, **kwargs)
        for symbol, known in self.items():
            self._table[symbol] = replace(known, max=32)

    if mistake == "narrow":
        monkeypatch.setattr(SymbolTable, "__init__", narrowed)
    else:
        monkeypatch.setattr("disc.frontend.program._dim", lambda _, size: size if isinstance(size, int) else 3)
    model, args, shapes = torch.nn.ReLU(), (torch.ones(3, 4),), ({0: Dim("n", max=64)},)
    found = "is 3" if mistake == "static" else "is 0 to 32"
    with pytest.raises(disc.CompileError, match=rf"input 'input', dim 0 .* dynamic .* 0 to 64, but .* {found}"):
        if kind == "module":
            disc.compile(model, args, dynamic_shapes=shapes)
        else:
            program = torch.export.export(model, args, dynamic_shapes=shapes)
            disc.compile(program if kind == "program" else saved(program))
