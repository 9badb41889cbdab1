"""The generated header: names, expressions and constants, and that compilers accept it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disc.expressions import parse
from disc.header import c_identifier, header
from disc.interface import DTYPES, Interface, SymbolSpec, TensorSpec

ROOT = Path(__file__).resolve().parents[3]
COMPILERS = [c for c in ("gcc", "clang-22") if shutil.which(c)]
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]

MINILM = Interface(
    [TensorSpec("input_ids", "int64", ("batch", "length")), TensorSpec("attention_mask", "int64", ("batch", "length"))],
    [TensorSpec("embedding", "float32", ("batch", 384))],
    [SymbolSpec("batch", 1, 64), SymbolSpec("length", 8, None, 8)],
)
MODELS = {
    "minilm": MINILM,
    # Nothing dynamic, a scalar, every dtype.
    "every_dtype": Interface(
        [TensorSpec(f"in_{dtype}", dtype, (2, 3)) for dtype in DTYPES],
        [TensorSpec(f"out_{dtype}", dtype, ()) for dtype in DTYPES],
        [],
    ),
    "no_inputs": Interface([], [TensorSpec("y", "float32", (4,))], []),
    "nothing": Interface([], [], []),
    # Names that C or C++ keep for themselves, names twice, and names that are none.
    "odd_names": Interface(
        [
            TensorSpec("class", "float32", ("int", "B")),
            TensorSpec("x", "float32", ("b", 4)),
            TensorSpec("x", "bool", ("b",)),
            TensorSpec("0", "float32", ()),
            TensorSpec("größe/*x*/", "int8", ("B", "b")),
            TensorSpec("disc_run", "float32", (1,)),
            TensorSpec("kDLCPU", "float32", (1,)),
            TensorSpec("model", "float32", (1,)),
            TensorSpec("linux", "float32", (1,)),
            TensorSpec("__x", "float32", (1,)),
            TensorSpec("x_shape", "float32", (1, 1)),
            TensorSpec("ODD_NAMES_B_MIN", "float32", (1,)),
            TensorSpec("inputs", "float32", ("template",)),
        ],
        [TensorSpec("x", "float32", ("B", "b")), TensorSpec("", "float32", ("int",)), TensorSpec("X", "bfloat16", ())],
        [SymbolSpec(name, 0, None) for name in ("int", "B", "b", "template", "not", "num_inputs")],
    ),
    "derived": Interface(
        [
            TensorSpec("a", "float32", ("2 * B + 1", "S")),
            TensorSpec("b", "float32", ("(S + 15) floordiv 16", "-S + 2 * (B - 3) * S")),
        ],
        [
            TensorSpec("c", "float64", ("min(B, S, 7)", "max(B, 2) mod 5", "S ceildiv B")),
            TensorSpec("d", "int32", ("B * S * 4096 * 4096", 0)),
            TensorSpec("e", "int32", (70000, 70000, 'B - "odd name" - (2 - S)')),
        ],
        [SymbolSpec("B", 0, 2**40), SymbolSpec("S", 1, 1 << 62), SymbolSpec("odd name", 1, 3, 3)],
    ),
    # Outputs whose extents are known only after the run.
    "found": Interface(
        [TensorSpec("x", "float32", ("n",))],
        [TensorSpec("places", "int64", ("?0", 2)), TensorSpec("sum", "float32", ())],
        [SymbolSpec("n", 0, None)],
    ),
    "only_found": Interface(
        [TensorSpec("x", "float32", ("n",))], [TensorSpec("p", "int64", ("?0",))], [SymbolSpec("n", 0, 9)]
    ),
}


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("headers")
    for name, interface in MODELS.items():
        (folder / f"{name}.h").write_text(header(name, interface, version="1.2.3"))
        on_device = header(f"gpu_{name}", interface, version="1.2.3", device="kDLCUDA")
        (folder / f"gpu_{name}.h").write_text(on_device)
    return folder


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flags", [("c", "c99"), ("c", "c11"), ("c", "gnu17"), ("c++", "c++17")], ids=lambda f: f[1])
def test_compilers_accept_it(headers, compiler, flags):
    language, standard = flags
    # All in one file, each twice: they must not disturb each other.
    # A parameter of odd_names has the name of a macro that it would have under another name.
    names = [*MODELS, *(f"gpu_{name}" for name in MODELS if name != "odd_names")]
    includes = "".join(f'#include "{name}.h"\n' for name in [*names, *names])
    command = [compiler, "-x", language, f"-std={standard}", *STRICT, "-fsyntax-only", "-I", headers]
    result = subprocess.run(
        [*command, "-I", ROOT / "lib/Runtime", "-"],
        input=includes + "int main(void) { return 0; }\n",
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def test_constants():
    text = header("minilm", MINILM, version="1.2.3")
    for line in (
        "#define MINILM_BATCH_MIN INT64_C(1)",
        "#define MINILM_BATCH_MAX INT64_C(64)",
        "#define MINILM_LENGTH_MAX INT64_MAX",
        "#define MINILM_LENGTH_DIVISOR INT64_C(8)",
        "#define MINILM_EMBEDDING_EXTENT_1 INT64_C(384)",
        "  MINILM_INPUT_ATTENTION_MASK = 1,",
        "  MINILM_NUM_OUTPUTS = 1",
        "extern DISC_API const disc_library disc_library_minilm;",
        " *   embedding: float32[batch, 384]",
        " *   length: 8 and more, multiples of 8",
    ):
        assert line in text.splitlines()
    assert max(map(len, text.splitlines())) <= 120


def test_signature_of_the_run_function():
    text = " ".join(header("minilm", MINILM, version="1.2.3").split())
    assert (
        "disc_status minilm_run(disc_model *model, int64_t batch, int64_t length, const int64_t *input_ids, "
        "const int64_t *attention_mask, float *embedding) {" in text
    )
    text = " ".join(header("found", MODELS["found"], version="1.2.3").split())
    assert (
        "disc_status found_run(disc_model *model, int64_t n, const float *x, DLManagedTensorVersioned **places, "
        "float *sum) {" in text
    )
    assert "found_places_elements" not in text
    text = " ".join(header("found", MODELS["found"], version="1.2.3", device="kDLROCM").split())
    assert "found_run(disc_model *model, void *stream, int64_t n, const float *x," in text
    assert "device.device_type = kDLROCM;" in text and "disc_run_on(model, stream, inputs," in text


def test_names_are_never_given_twice():
    text = header("odd_names", MODELS["odd_names"], version="1.2.3")
    defined = re.findall(r"#define (ODD_\w+)|^  (ODD_\w+) =|static inline \w+ (\w+)\(", text, re.M)
    names = [name for groups in defined for name in groups if name]
    assert len(names) == len(set(names))
    parameters = text[text.index("odd_names_run(") :].split("{")[0].split("(")[1].split(")")[0]
    parameters = [p.split()[-1].lstrip("*") for p in parameters.split(",")]
    assert len(parameters) == len(set(parameters)) == 1 + 6 + 13 + 3


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("minilm", "minilm"),
        ("all-MiniLM-L6-v2", "all_MiniLM_L6_v2"),
        ("7b", "model_7b"),
        ("disc", "model_disc"),
        ("disc_model", "model_disc_model"),
        ("größe", "gr_e"),
        ("--", "model"),
        ("_private", "private"),
        ("a__b", "a_b"),
    ],
)
def test_identifiers(name, identifier):
    assert c_identifier(name) == identifier == c_identifier(identifier)


def test_wrong_names_and_dims():
    with pytest.raises(ValueError, match="'all-MiniLM' cannot name a library in C; 'all_MiniLM' can"):
        header("all-MiniLM", MINILM, version="1")
    with pytest.raises(ValueError, match="input 'x' does not follow from the symbols"):
        header("m", Interface([TensorSpec("x", "int8", ("n",))], [], []), version="1")
    with pytest.raises(ValueError, match="unknown dtype 'complex64'"):
        TensorSpec("x", "complex64", ())


@pytest.mark.parametrize("text", ["", "2 *", "a b", "(a", "min(a", "a $ b", "a floordiv", ")", "max()", "4 mod 0"])
def test_what_is_no_expression(text):
    with pytest.raises(ValueError):
        parse(text)


def test_expressions():
    values = {"B": 7, "S": -3, "odd \\name": 5, "?0": 2}
    for text, value in {
        "2 * B + 1": 15,
        "B - S - 1": 9,
        "B - (S - 1)": 11,
        "-S * 2": 6,
        "S floordiv 2": -2,
        "S ceildiv 2": -1,
        "S mod 5": 2,
        "(B + 15) floordiv 16 * 16": 16,
        "max(1, B, S)": 7,
        "min(B, S)": -3,
        '"odd \\\\name" + "odd \\5Cname"': 10,
        "?0 * 3": 6,
    }.items():
        assert parse(text).evaluate(values) == value, text


# -- the C code against Python

NAMES = ("B", "S", "N")


def expressions():
    leaves = st.sampled_from(NAMES) | st.integers(0, 9).map(str)

    def grow(inner):
        return st.one_of(
            st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
            st.tuples(inner, st.sampled_from(["floordiv", "ceildiv", "mod"]), st.sampled_from(["2", "7", "B"])).map(
                lambda t: f"({t[0]}) {t[1]} {t[2]}"
            ),
            st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
            inner.map(lambda t: f"-({t})"),
        )

    return st.recursive(leaves, grow, max_leaves=12)


@pytest.mark.skipif(not COMPILERS, reason="no C compiler")
def test_c_evaluates_expressions_as_python_does(tmp_path):
    texts: list[str] = []

    @given(st.lists(expressions(), min_size=100, max_size=100))
    def collect(batch):
        if len(texts) < 300:
            texts.extend(batch)

    collect()
    # A sum of a symbol, so that no dim is static.
    outputs = [TensorSpec(f"y{i}", "int8", (f"{t} + N",)) for i, t in enumerate(texts)]
    interface = Interface([], outputs, [SymbolSpec(n, 1, 50) for n in NAMES])
    points = [(1, 1, 1), (2, 3, 5), (13, 50, 7), (50, 1, 49)]
    (tmp_path / "m.h").write_text(header("m", interface, version="1"))
    calls = "".join(
        f'  printf("%lld\\n", (long long)m_y{i}_elements({b}, {s}, {n}));\n'
        for i in range(len(texts))
        for b, s, n in points
    )
    source = '#include <stdio.h>\n#include "m.h"\n' + (
        "disc_status disc_open(const disc_library *l, const disc_options *o, disc_model **m) {\n"
        "  (void)l; (void)o; (void)m; return DISC_OK;\n}\n"
        "disc_status disc_run(disc_model *m, const DLTensor *const *i, int64_t n, disc_output *o, int64_t k) {\n"
        "  (void)m; (void)i; (void)n; (void)o; (void)k; return DISC_OK;\n}\n"
        f"int main(void) {{\n{calls}  return 0;\n}}\n"
    )
    (tmp_path / "m.c").write_text(source)
    command = [COMPILERS[0], "-std=c99", *STRICT, "-I", tmp_path, "-I", ROOT / "lib/Runtime", tmp_path / "m.c"]
    # What is inlined and never used need not be linked.
    subprocess.run([*command, "-O1", "-o", tmp_path / "m"], check=True)
    printed = subprocess.run([tmp_path / "m"], check=True, capture_output=True, text=True).stdout.split()
    expected = [parse(f"{t} + N").evaluate({"B": b, "S": s, "N": n}) for t in texts for b, s, n in points]
    assert [int(p) for p in printed] == expected
