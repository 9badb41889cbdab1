"""disc.report: what its page has, also in a browser, and the data it is made of."""

import html.parser
import re

import pytest
import torch
from torch import nn

import disc
from disc.cli import main
from disc.reporting import calls as report_calls
from disc.reporting import limits, measurement, page
from disc.reporting.accuracy import compare
from disc.reporting.charts import frames, memory_chart, roofline


@pytest.fixture(autouse=True)
def known_limits(monkeypatch):
    """Limits that need no measurement."""
    found = limits.Limits(2, 100e9, 50e9, 10e9, 1 << 20)
    monkeypatch.setattr(limits, "measure", lambda threads: found)
    return found


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x, y):
        h = torch.nn.functional.gelu(self.up(x))
        z = self.down(h) + y[: x.shape[0]]
        return torch.softmax(z, dim=-1), z.argmax(-1)


@pytest.fixture(scope="module")
def model():
    module = Net().eval()
    n, m = torch.export.Dim("n", min=1, max=4096), torch.export.Dim("m", min=1, max=4096)
    compiled = disc.compile(module, (torch.randn(4, 32), torch.randn(6, 32)), dynamic_shapes=({0: n}, {0: m}))
    compiled.kept = module
    return compiled


class Page(html.parser.HTMLParser):
    """The ids and links of a page, its tables and its text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.ids, self.links, self.tags, self.words, self.loads, self.open = [], [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag == "a":
            self.links.append(attrs["href"])
        self.loads += [attrs[name] for name in ("src", "srcset", "data", "poster") if name in attrs]
        if tag == "link":
            self.loads.append(attrs["href"])
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def test_the_page_has_lines_kernels_memory_sizes_and_accuracy(model, tmp_path):
    path = tmp_path / "report.html"
    inputs = (torch.randn(300, 32), torch.randn(400, 32))
    found = disc.report(model, path, inputs=inputs, shapes=[{"n": 1, "m": 1}], title="<Net> & co", calls=2)
    assert found.path == path and "written to" in str(found)
    text = path.read_text(encoding="utf-8")
    shown = Page(text)
    assert shown.open == []
    # Links lead somewhere in the page, ids are unique, nothing is loaded, and there is no script.
    assert len(set(shown.ids)) == len(shown.ids)
    assert all(link.startswith("#") and link[1:] in shown.ids for link in shown.links)
    assert shown.loads == ["data:,"] and "script" not in shown.tags
    assert "url(" not in text and "@import" not in text
    assert "<Net> & co – DISC report" in shown.text
    measured = found.measurements[0]
    assert measured.extents == {"n": 300, "m": 400}
    for part in (
        "n=300, m=400",
        "n=1, m=1",
        model.guards()[0].condition,
        "eager PyTorch in float64",
        "Every operation is compiled.",
    ):
        assert part in shown.text
    # Of the source there are the lines with kernels, and links in both directions.
    assert "self.up(x)" in re.sub("<[^>]*>", "", text)
    for number, kernel in enumerate(measured.kernels, 1):
        assert kernel.name in shown.text
        assert f"kernel-{number}" in shown.ids and f"#kernel-{number}" in shown.links
    lines = measured.lines()
    assert all(f"line-{i}" in shown.ids and f"#line-{i}" in shown.links for i in range(1, len(lines) + 1))
    assert {line.file for line in lines} == {__file__}
    assert sum(line.share for line in lines) == pytest.approx(1)
    # One rectangle for each temporary, in both variants of the chart.
    drawn = [t for t in found.memory[0].temporaries if t[1]]
    assert text.count('class="block"') == 2 * len(drawn)
    largest = [output.largest for output in found.accuracy.outputs]
    assert len(largest) == 4 and largest[0] < 1e-6 and largest[1] is None
    assert found.accuracy.mismatches == 0


def test_work_and_limits_of_kernels(model, known_limits):
    call = report_calls.random_call(model, {"n": 300, "m": 300})
    measured = measurement.measure(model, call, 2, known_limits)
    product = next(kernel for kernel in measured.kernels if kernel.kind == "contraction")
    assert product.operations >= 2 * 300 * 32 * 64
    assert product.bytes >= 4 * (300 * 32 + 32 * 64 + 300 * 64)
    assert product.least_seconds == known_limits.seconds(product.operations, product.bytes)
    assert product.of_limit == product.least_seconds / product.seconds
    assert product.bound in ("arithmetic", "cache")
    assert product.intensity == product.operations / product.bytes
    assert known_limits.bandwidth(1 << 20) == 50e9 and known_limits.bandwidth((1 << 20) + 1) == 10e9
    assert known_limits.bound(10, 1 << 30) == "memory"


def test_the_kernels_that_measure_limits():
    x = torch.linspace(-1, 1, limits._ELEMENTS)
    (total,) = limits._executable(limits._fma_text(), 1).run((x,))
    expected = torch.zeros_like(x, dtype=torch.float64)
    for chain in range(limits._CHAINS):
        value = x.double() + chain
        for _ in range(limits._STEPS):
            value = value * 0.999 + 0.001
        expected += value
    torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=1e-5)
    (copied,) = limits._executable(limits._COPY, 2).run((x[:1000],))
    assert torch.equal(copied, -x[:1000])


def test_charts(known_limits):
    def kernel(name, operations, size, seconds):
        return measurement.KernelRun(name, "loop", (), "", 1, seconds, operations, size, known_limits)

    kernels = [kernel("a", 10**9, 10**6, 0.05), kernel("b", 10**6, 10**6, 0.001), kernel("copy", 0, 10**6, 0.001)]
    for frame in frames(400):
        chart = roofline(kernels, known_limits, frame)
        assert [point.number for point in chart.points] == [2, 1]  # the largest first kernel is drawn last
        assert all(frame.left <= p.x <= frame.right and frame.top <= p.y <= frame.bottom for p in chart.points)
        assert {roof.name for roof in chart.roofs} == {"arithmetic", "cache", "memory"}
        blocks = memory_chart([(0, 64, 3, 5), (64, 64, 5, 9), (0, 0, 3, 4)], 128, frame)
        assert [(b.offset, b.size) for b in blocks.blocks] == [(0, 64), (64, 64)]
        assert blocks.blocks[0].y > blocks.blocks[1].y
    assert roofline([kernels[2]], known_limits, frame) is None
    assert memory_chart([], 0, frame) is None


@torch.library.custom_op("disc_report_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class UsesCustom(nn.Module):
    def forward(self, x):
        return twice(x) + 1


class Everything(nn.Module):
    """A loop on data, a computed size, state, and results of several kinds."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        while x.sum() < 100:
            x = x * 2 + 1
        self.count += 1
        return {"places": torch.nonzero(x > 3), "values": x, "any": (x > 3).any()}


def test_loops_computed_sizes_state_and_empty_tensors(tmp_path):
    module = Everything()
    rows = torch.export.Dim("rows", min=1, max=100)
    model = disc.compile(module, (torch.ones(5, 3),), dynamic_shapes=({0: rows},))
    found = disc.report(model, tmp_path / "page.html", calls=1)
    assert module.count.item() == 0
    assert [len(found.accuracy.outputs), found.accuracy.mismatches] == [3, 0]
    assert any(symbol.data_dependent for symbol in found.sizes.symbols)
    Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    empty = disc.compile(nn.Linear(4, 4), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim("n", min=0)},))
    found = disc.report(empty, tmp_path / "page.html", shapes=[{"n": 0}], calls=1)
    assert found.measurements[0].extents == {"n": 0} and found.accuracy.largest is None


def test_onnx_models_and_fallbacks(tmp_path):
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    rows = [h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 3]) for name in ("x", "y")]
    nodes = [h.make_node("Softmax", ["x"], ["s"], name="soft"), h.make_node("Exp", ["s"], ["y"], name="grow")]
    graph = h.make_graph(nodes, "g", rows[:1], rows[1:])
    path = tmp_path / "small.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=10), path)
    found = disc.report(disc.compile(str(path)), tmp_path / "page.html", shapes=[{"batch": 64}], calls=1)
    shown = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "small.onnx#soft:1" in shown.text and "Not compared" in shown.text
    assert found.sizes.places(found.sizes.symbols[0]) == "x dim 0"

    module = UsesCustom()
    model = disc.compile(module, (torch.randn(3, 8),), fallback=True)
    found = disc.report(model, tmp_path / "page.html", calls=1)
    shown = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "disc_report_test::twice" in shown.text and found.fallbacks[0].reason
    assert found.accuracy.largest < 1e-6
    call = next(kernel for kernel in found.measurements[0].kernels if kernel.kind == "call")
    assert call.of_limit is None


def test_random_models_and_missing_modules_are_not_compared():
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    module = Noise()
    model = disc.compile(module, (torch.zeros(3),))
    call = report_calls.random_call(model, {})
    assert "random" in compare(model, module, [call]).note
    assert "not available" in compare(model, None, [call]).note


def test_a_reference_that_needs_float32():
    class Picky(nn.Module):
        def forward(self, x):
            assert x.dtype == torch.float32
            return x + 1

    module = Picky()
    model = disc.compile(module, (torch.zeros(3),))
    found = compare(model, module, [report_calls.random_call(model, {})])
    assert found.reference == "eager PyTorch" and "does not run in float64" in found.note
    assert found.outputs[0].eager_largest is None


def test_sizes_of_calls(model):
    assert report_calls.usual_extents(model) == {"n": 16, "m": 16}
    call = report_calls.given_call(model, {"x": torch.zeros(3, 32), "y": torch.zeros(7, 32)})
    assert call.extents == {"n": 3, "m": 7}
    assert report_calls.complete_extents(model, {"n": 2}, call) == {"n": 2, "m": 7}
    with pytest.raises(disc.errors.ArgumentValueError, match="expected 1 to 4096, got 0"):
        report_calls.complete_extents(model, {"n": 0})
    with pytest.raises(disc.errors.ArgumentValueError, match="no dynamic dim 'k'; its dynamic dims: n, m"):
        report_calls.complete_extents(model, {"k": 1})


def test_sizes_of_derived_dims_and_numbers():
    def pairs(x, count: int):
        return x.reshape(-1, 2).sum(-1)[:count]

    half = torch.export.Dim("half", min=1, max=64)
    model = disc.compile(pairs, (torch.randn(8), 2), dynamic_shapes=({0: 2 * half}, None))
    assert report_calls.extents_of(model, (torch.randn(12), 2), {})["half"] == 6


def test_guards(model):
    (guard,) = model.guards()
    # Which side comes first is PyTorch's.
    assert guard.condition in ("min(m, n) == n", "n == min(m, n)") and guard.source.startswith(__file__)
    assert guard.holds({"n": 3, "m": 3}) and not guard.holds({"n": 4, "m": 3})
    assert str(guard).startswith(guard.condition) and guard.source in str(guard)


def test_arguments(model, tmp_path):
    with pytest.raises(disc.errors.ArgumentTypeError, match=r"expected a disc\.Model, got Linear"):
        disc.report(nn.Linear(2, 2), tmp_path / "page.html")
    found = model.report(tmp_path / "page.html", calls=1, accuracy=False)
    assert not found.accuracy.outputs and "switched off" in (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(disc.errors.ArgumentValueError, match="calls: expected 1 or more, got 0"):
        model.report(tmp_path / "page.html", calls=0)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'disc-compiler\[report\]'"):
        page.check_packages()


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    program = torch.export.export(
        Net().eval(),
        (torch.randn(4, 32), torch.randn(6, 32)),
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC(max=64)}, {0: torch.export.Dim.DYNAMIC(max=64)}),
    )
    torch.export.save(program, "net.pt2")
    dims = ["--dims", "x=n,", "--dims", "y=m,"]
    assert main.main(["report", "net.pt2", "n=2", *dims, "--calls", "1"]) == 0
    assert "written to net.html" in capsys.readouterr().out
    assert "n=2, m=6" in Page((tmp_path / "net.html").read_text(encoding="utf-8")).text
    model = disc.compile(program)
    model.save("net.disc")
    assert main.main(["report", "net.disc", "--eager", "net.pt2", "--calls", "1", "-o", "saved.html"]) == 0
    assert "eager PyTorch in float64" in (tmp_path / "saved.html").read_text(encoding="utf-8")
    (tmp_path / "libnet.so").write_bytes(b"\x7fELF" + bytes(100))
    capsys.readouterr()
    for arguments, status, message in (
        (["libnet.so"], 1, "libnet.so is a library, which has no kernels to show"),
        (["none.pt2"], 1, "none.pt2: No such file or directory"),
        (["net.pt2", "n"], 2, "'n': expected SYMBOL=NUMBER"),
        (["net.pt2", "k=2", *dims], 1, "no dynamic dim 'k'"),
        (["net.pt2", "--eager", "net.pt2"], 2, "net.pt2 has its module"),
    ):
        assert main.main(["report", *arguments]) == status
        captured = capsys.readouterr()
        assert captured.err.startswith("disc report: error: ") and message in captured.err
        assert captured.err.count("\n") == 1
