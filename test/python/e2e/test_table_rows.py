"""Rows of tables as requests of a model: columns of numbers, lists and lists of lists, and errors that name the row."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import disc
from disc.errors import ArgumentValueError, RowError, ShapeError
from disc.serve import Padded, Ragged, Stacked
from disc.serve.parquet_folders import ParquetFolders
from disc.serve.served_model import ServedModel
from disc.serve.table_rows import TableModel
from served_models import compiled, write_embedder

pytestmark = pytest.mark.share(2)

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -r requirements-ray.txt")

PADDED = Padded(mask="attention_mask")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return write_embedder(tmp_path_factory.mktemp("embedder") / "libembedder.so")


def tokens(*lengths):
    generator = np.random.default_rng(len(lengths))
    return [generator.integers(0, 100, n).tolist() for n in lengths]


def check(table, embedder, column="input_ids"):
    for row in table.to_pylist():
        ids = np.array([row[column]])
        expected = embedder(ids, np.ones_like(ids))
        np.testing.assert_allclose(row["embedding"], expected["embedding"][0], atol=1e-6)
        np.testing.assert_allclose(np.array(row["tokens"]), expected["tokens"][0], atol=1e-6)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_(pa.uint8())], ids=lambda kind: str(kind)
)
def test_lists_of_unequal_length(kind, embedder):
    column = pa.chunked_array([pa.array(part, kind) for part in (tokens(5, 2, 9), tokens(4))])
    table = pa.table({"n": [1, 2, 3, 4], "input_ids": column})
    found = TableModel(ServedModel(embedder), PADDED)(table)
    assert found.column_names == ["n", "input_ids", "embedding", "tokens"]
    assert found.schema.field("embedding").type == pa.list_(pa.float32())
    assert found.schema.field("tokens").type == pa.list_(pa.list_(pa.float32()))
    check(found, embedder)


def test_names_of_columns_and_a_model_of_this_process(embedder):
    table = pa.table({"text": tokens(3, 7), "mask": [[1, 1, 1], [1] * 7], "id": ["a", "b"]})
    columns = {"input_ids": "text", "attention_mask": "mask"}
    for model in (embedder, compiled()):
        served = TableModel(ServedModel(model), PADDED, columns, {"embedding": "vector"}, keep=["id"])
        assert served.columns(table.column_names) == ["text", "mask", "id"]
        found = served(table)
        assert found.column_names == ["id", "vector"]
        ids = np.array([table["text"][1].as_py()])
        np.testing.assert_allclose(found["vector"][1].as_py(), embedder(ids, np.ones_like(ids))[0][0], atol=1e-6)


def test_a_table_without_rows_has_the_columns(embedder):
    model = TableModel(ServedModel(embedder), PADDED)
    some = model(pa.table({"input_ids": tokens(3)}))
    assert model(pa.table({"input_ids": tokens(3)}).slice(1)).schema == some.schema


BAD = {
    "null": ([[1, 2], None], "row 11, column 'input_ids', for the input 'input_ids': .* missing .null."),
    "element": ([[1, 2], [1, None]], "row 11, column 'input_ids'.* expected int64; an element is missing"),
    "texts": ([["1", "2"]], "row 10, column 'input_ids'.* expected int64; got <U1"),
    "dtype": ([[1.0, 2.0], [1.5, 2.5]], "row 10, column 'input_ids'.* expected int64; got float64"),
    "short": ([[1, 2], [1]], "row 11: input 'input_ids', dim 1 .length. is out of range.*DISC0101"),
    "index": ([[1, 2], [1, 100]], "row 11: aten.embedding at .*index 100 is out of range"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named(name, embedder):
    rows, message = BAD[name]
    with pytest.raises(RowError, match=message) as caught:
        TableModel(ServedModel(embedder), PADDED)(pa.table({"input_ids": rows}), first=10)
    assert caught.value.code == "DISC0402"
    assert caught.value.row == (10 if name in ("dtype", "texts") else 11)
    assert isinstance(caught.value.error, ShapeError) == (name == "short")


def test_columns_that_do_not_fit(embedder):
    table = pa.table({"text": tokens(3), "embedding": [1]})
    with pytest.raises(ArgumentValueError, match=r"no column 'input_ids' for the input 'input_ids'; there are: 'text'"):
        TableModel(ServedModel(embedder), PADDED)(table)
    with pytest.raises(ArgumentValueError, match=r"the table has a column 'embedding'; name another one"):
        TableModel(ServedModel(embedder), PADDED, {"input_ids": "text"})(table)
    for columns, results, message in (
        ({"ids": "text"}, None, r"columns: the model has no 'ids'; its names are: 'input_ids', 'attention_mask'"),
        (None, {"vector": "v"}, r"results: the model has no 'vector'; its names are: 'embedding', 'tokens'"),
    ):
        with pytest.raises(ArgumentValueError, match=message):
            TableModel(ServedModel(embedder), PADDED, columns, results)


class Pixels(nn.Module):
    """Of images of one shape and a number for each: a number, a flag, and the image."""

    def forward(self, image, gain):
        bright = image.mean((1, 2)) * gain
        return bright, bright > 0.5, image.flip(2)


def test_numbers_and_lists_of_lists(tmp_path):
    batch = Dim("batch", min=0, max=64)
    shapes = {"image": {0: batch}, "gain": {0: batch}}
    args = (torch.ones(2, 3, 4), torch.ones(2))
    disc.aot_compile(Pixels(), args, dynamic_shapes=shapes, output=tmp_path / "libpixels.so")
    model = TableModel(ServedModel(disc.load(tmp_path / "libpixels.so")), Stacked())
    images = np.random.default_rng(0).random((5, 3, 4), np.float32)
    gains = np.arange(5) / 4
    lists = pa.array(images.tolist(), pa.list_(pa.list_(pa.float32())))
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(images)
    fixed = lists.cast(pa.list_(pa.list_(pa.float32(), 4), 3))
    for column in (lists, fixed, tensors):
        found = model(pa.table({"image": column, "gain": gains}))
        np.testing.assert_allclose(found["output_0"].to_numpy(), images.mean((1, 2)) * gains, rtol=1e-6)
        assert found["output_1"].to_pylist() == (images.mean((1, 2)) * gains > 0.5).tolist()
        np.testing.assert_array_equal(np.array(found["output_2"].to_pylist(), np.float32), images[:, :, ::-1])


class Sums(nn.Module):
    """Of sequences of vectors, one after the other: a vector for each sequence, and a number for each element."""

    def forward(self, values, offsets, scale):
        ends = torch.cat([values.new_zeros(1, 2), values.cumsum(0)])
        return (ends[offsets[1:]] - ends[offsets[:-1]]) * scale.unsqueeze(1), values.sum(1)


def test_ragged_rows(tmp_path):
    items, sequences = Dim("items", min=0, max=4096), Dim("sequences", min=0, max=512)
    shapes = {"values": {0: items}, "offsets": {0: sequences + 1}, "scale": {0: sequences}}
    args = (torch.ones(5, 2), torch.tensor([0, 2, 5]), torch.ones(2))
    disc.aot_compile(Sums(), args, dynamic_shapes=shapes, output=tmp_path / "libsums.so")
    model = TableModel(ServedModel(disc.load(tmp_path / "libsums.so")), Ragged(along="items", offsets=("offsets",)))
    rows = [np.random.default_rng(n).random((n, 2)).astype(np.float32) for n in (3, 1, 6)]
    table = pa.table({"values": [row.tolist() for row in rows], "scale": pa.array([1, 2, 3], pa.float32())})
    found = model(table)
    for row, scale, total, each in zip(rows, (1, 2, 3), found["output_0"], found["output_1"], strict=True):
        np.testing.assert_allclose(total.as_py(), row.sum(0) * scale, rtol=1e-5)
        np.testing.assert_allclose(each.as_py(), row.sum(1), rtol=1e-6)


def test_output_files_appear_when_they_are_complete(tmp_path):
    (tmp_path / "in/b").mkdir(parents=True)
    for name in ("1.parquet", "b/2.parquet", "_3.parquet", "b/.4.parquet", "5.txt"):
        (tmp_path / "in" / name).touch()
    folders = ParquetFolders(f"file://{tmp_path}/in", str(tmp_path / "out/"))
    assert folders.files() == ["1.parquet", "b/2.parquet"]
    assert folders.existing() == set()
    with folders.writing("b/2.parquet") as stream:
        stream.write(b"some")
        assert folders.existing() == set() and not folders.exists("b/2.parquet")
    assert folders.existing() == {"b/2.parquet"} and folders.exists("b/2.parquet")
    with pytest.raises(KeyError), folders.writing("b/2.parquet") as stream:
        stream.write(b"others")
        raise KeyError
    assert [path.name for path in (tmp_path / "out/b").iterdir()] == ["2.parquet"]
    assert (tmp_path / "out/b/2.parquet").read_bytes() == b"some"
    (tmp_path / "out/b/_2.parquet.0.unfinished").touch()
    folders.remove_unfinished()
    assert [path.name for path in (tmp_path / "out/b").iterdir()] == ["2.parquet"]
    with pytest.raises(FileNotFoundError):
        ParquetFolders(str(tmp_path / "none"), str(tmp_path / "out")).files()
    with pytest.raises(ArgumentValueError, match="output: expected a directory outside of inputs"):
        ParquetFolders(str(tmp_path / "in"), str(tmp_path / "in/out"))
