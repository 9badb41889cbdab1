"""disc.Library: which arrays it takes, what it gives, and what it says of wrong ones."""

import ctypes
import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import disc


@pytest.fixture
def mlp(libraries):
    return libraries("mlp").loaded


@pytest.fixture
def two(libraries):
    """Two inputs, x[rows, 5] and y[5], and two results."""
    return libraries("two_results").loaded


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((6, 24), dtype=np.float32)


class Lends:
    """An array of a kind that is neither NumPy's nor torch's."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class LendsWithoutVersions(Lends):
    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


def test_kinds_of_results(mlp, x):
    result = mlp(x)
    assert type(result) is np.ndarray and result.dtype == np.float32 and result.shape == (6, 10)
    assert result.flags.writeable and result.ctypes.data % 64 == 0
    tensor = torch.from_numpy(x)
    assert isinstance(mlp(tensor), torch.Tensor)
    for same in (mlp(tensor).numpy(), mlp(Lends(x)), mlp(LendsWithoutVersions(x)), mlp(memoryview(x)), mlp(x=x)):
        assert np.array_equal(same, result)
    assert isinstance(mlp(torch.nn.Parameter(tensor)), torch.Tensor)


def test_one_tensor_of_torch_decides(two):
    x, y = np.ones((2, 5), np.float32), torch.ones(5)
    for results in (two(x, y), two(torch.from_numpy(x), y.numpy())):
        assert all(isinstance(result, torch.Tensor) for result in results)
    assert all(isinstance(result, np.ndarray) for result in two(x, y.numpy()))


def test_layouts(mlp, x):
    expected = mlp(x)
    wide = np.zeros((12, 50), np.float32)
    wide[::2, 1:49:2] = x
    readonly = x.copy()
    readonly.flags.writeable = False
    for same in (np.asfortranarray(x), wide[::2, 1:49:2], readonly, x[::-1][::-1]):
        assert np.array_equal(mlp(same), expected)
    assert np.array_equal(mlp(x[::-1]), expected[::-1])
    assert np.array_equal(mlp(np.broadcast_to(x[0], (4, 24))), np.repeat(expected[:1], 4, axis=0))
    assert np.array_equal(mlp(torch.from_numpy(x).t().contiguous().t()).numpy(), expected)


def test_results_live_on_their_own(libraries, x):
    # Not the one that other tests use: this one goes away.
    library = disc.load(libraries("mlp").path, threads=1)
    first, kept = library(x), library(x).copy()
    view = first[1:3]
    gone = weakref.ref(first)
    del first
    for _ in range(20):
        library(np.zeros_like(x))
    del library
    gc.collect()
    assert gone() is not None or np.array_equal(view, kept[1:3])
    assert np.array_equal(view, kept[1:3])


def test_names(two):
    x, y = np.ones((2, 5), np.float32), np.ones(5, np.float32)
    expected = two(x, y)
    for results in (two(x, y=y), two(y=y, x=x)):
        assert all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True))
    for args, kwargs, message in (
        ((x, y, y), {}, r"two_results has 2 inputs \(x, y\), got 3"),
        ((x,), {}, "missing 1 input: y"),
        ((), {}, "missing 2 inputs: x, y"),
        ((x,), {"z": y}, "input 'z' does not exist; the inputs are: x, y"),
        ((x, y), {"y": y}, "input 'y' is passed twice"),
    ):
        with pytest.raises(TypeError, match=message):
            two(*args, **kwargs)
        with pytest.raises(TypeError, match=message):
            two.output_shapes(*args, **kwargs)


def test_output_shapes(two, mlp):
    x, y = np.ones((7, 5), np.float32), np.ones(5, np.float32)
    assert two.output_shapes(x, y=y) == ((7,), (7, 5))
    assert mlp.output_shapes(torch.empty(300, 24)) == ((300, 10),)
    with pytest.raises(disc.ShapeError, match="rows"):
        mlp.output_shapes(np.ones((301, 24), np.float32))
    with pytest.raises(TypeError, match="float32"):
        mlp.output_shapes(np.ones((3, 24)))


def test_results_in_place(mlp, two, x):
    expected = mlp(x)
    for out in (
        np.empty((6, 10), np.float32),
        np.empty((10, 6), np.float32).T,
        np.empty((12, 20), np.float32)[::2, ::2],
    ):
        assert mlp(x, out=out) is out
        assert np.array_equal(out, expected)
    tensor = torch.empty(6, 10)
    assert mlp(x, out=[tensor]) is tensor
    assert np.array_equal(tensor.numpy(), expected)
    lent = np.empty((6, 10), np.float32)
    mlp(x, out=Lends(lent))
    assert np.array_equal(lent, expected)

    y = np.ones(5, np.float32)
    second = np.empty((6, 5), np.float32)
    results = two(x[:, :5], y, out=(None, second))
    assert results[1] is second and results[0].shape == (6,)


def test_wrong_results_in_place(mlp, two, x):
    readonly = np.empty((6, 10), np.float32)
    readonly.flags.writeable = False
    with pytest.raises(ValueError, match="is read-only"):
        mlp(x, out=readonly)
    with pytest.raises(ValueError, match="is read-only"):
        mlp(x, out=Lends(readonly))
    with pytest.raises(TypeError, match="expected an array, got str"):
        mlp(x, out="here")
    with pytest.raises(TypeError, match=r"out: expected 2 arrays \(output_0, output_1\), got 1"):
        two(x[:, :5], x[0, :5], out=x)
    with pytest.raises(disc.ShapeError):
        mlp(x, out=np.empty((5, 10), np.float32))
    with pytest.raises(disc.ShapeError):
        mlp(x, out=np.empty((6, 10, 1), np.float32))
    with pytest.raises(TypeError):
        mlp(x, out=np.empty((6, 10), np.float64))


def test_wrong_shapes(mlp, x):
    with pytest.raises(disc.ShapeError) as info:
        mlp(np.ones((301, 24), np.float32))
    error = info.value
    assert (error.input, error.dim, error.symbol) == ("x", 0, "rows")
    assert "301" in error.got and "300" in error.expected
    with pytest.raises(disc.ShapeError) as info:
        mlp(np.ones((3, 25), np.float32))
    assert (info.value.input, info.value.dim, info.value.symbol) == ("x", 1, None)
    with pytest.raises(disc.ShapeError, match="x"):
        mlp(np.ones(24, np.float32))
    with pytest.raises(disc.ShapeError):
        mlp(np.ones((0, 24), np.float32))
    # And it goes on.
    assert mlp(x).shape == (6, 10)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones((6, 24)), "float32"),
        (np.ones((6, 24), ">f4"), "arrays of >f4 are not supported"),
        (np.ones((6, 24), complex), "arrays of complex128 are not supported"),
        (np.full((6, 24), None), "arrays of object are not supported"),
        (np.full((6, 24), "a"), "are not supported"),
        ([[1.0] * 24], "input 'x': expected an array, got list"),
        (None, "input 'x': expected an array, got NoneType"),
        (torch.ones(6, 24, dtype=torch.float64), "float32"),
        (torch.ones(6, 24, device="meta"), "input 'x': expected a dense tensor on cpu"),
        (torch.ones(6, 24).to_sparse(), "input 'x': expected a dense tensor on cpu"),
        (np.zeros((6, 24), [("a", "i1"), ("b", "f4")])["b"], "is not a multiple of the element's size; copy the array"),
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_wrong_types(mlp, value, message):
    with pytest.raises(TypeError, match=message) as info:
        mlp(value)
    assert "\n" not in str(info.value)


class Manages(ctypes.Structure):
    """A DLManagedTensorVersioned that does not fit together."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]

    def __dlpack__(self, **kwargs):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self), b"dltensor_versioned", None)


@pytest.mark.parametrize("ndim", [-1, 2, 1 << 30])
@pytest.mark.parametrize("version", [1, 2])
def test_tensors_that_do_not_fit_together(mlp, x, ndim, version):
    float32 = (ctypes.c_uint8 * 4)(2, 32, 1, 0)
    tensor = Manages((version, 0), None, None, 0, x.ctypes.data, (1, 0), ndim, float32)
    with pytest.raises((TypeError, ValueError)):
        mlp(tensor)
    with pytest.raises((TypeError, ValueError)):
        mlp(x, out=tensor)


def test_wrong_indices(libraries):
    library = libraries("decoder").loaded
    ids = np.zeros((2, 5), np.int64)
    ids[1, 3] = 101
    with pytest.raises(IndexError, match="101"):
        library(ids)


def test_bfloat16(libraries):
    library = libraries("bfloat")
    x = torch.randn(3, 24).bfloat16()
    expected = library.loaded(x)
    assert expected.dtype == torch.bfloat16
    try:
        import ml_dtypes
    except ImportError:
        with pytest.raises(TypeError, match="'output_0' is bfloat16, which NumPy supports only with a package"):
            library.loaded(np.zeros((3, 24), np.uint16))
        return
    array = x.float().numpy().astype(ml_dtypes.bfloat16)
    result = library.loaded(array)
    assert result.dtype == ml_dtypes.bfloat16
    assert np.array_equal(result.astype(np.float32), expected.float().numpy())
    out = np.empty((3, 10), ml_dtypes.bfloat16)
    assert library.loaded(array, out=out) is out
    assert np.array_equal(out, result)


def test_half(libraries):
    library = libraries("half")
    x = np.ones((2, 24), np.float16)
    assert library.loaded(x).dtype == np.float16


def test_wrong_arguments(libraries, tmp_path):
    path = libraries("mlp").path
    for threads in (0, -1, 5000, "2"):
        with pytest.raises(ValueError, match="threads: expected None or a number from 1 to 4096"):
            disc.load(path, threads=threads)
    with pytest.raises(FileNotFoundError):
        disc.load(tmp_path / "none.so")
    with pytest.raises(FileNotFoundError):
        disc.load(path, weights=tmp_path / "none.safetensors")
    with pytest.raises(IsADirectoryError):
        disc.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        libraries("mlp").loaded.swap_weights(tmp_path / "none.safetensors")


def test_the_stub_has_every_name():
    from disc import _runtime

    stub = (Path(disc.__file__).parent / "_runtime.pyi").read_text()
    for name in (n for n in dir(_runtime) if not n.startswith("_")):
        assert f"class {name}" in stub or f"def {name}(" in stub or f"{name}: " in stub, name
    for name in (n for n in dir(_runtime.Model) if not n.startswith("_")):
        assert f"def {name}(" in stub, name


def test_nothing_is_left_behind(mlp, x):
    """Results, arguments and errors of many calls: memory does not grow with their number."""

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    wide = np.tile(x, (50, 1))
    tensor, out = torch.from_numpy(wide), np.empty((300, 10), np.float32)

    def calls(number):
        for _ in range(number):
            mlp(wide)
            mlp(tensor)
            mlp(Lends(wide), out=out)
            for wrong in (x[:, 1:], x.astype(np.float64), "text"):
                with pytest.raises((TypeError, ValueError)):
                    mlp(wrong)

    calls(50)
    before = resident()
    calls(1000)
    # A result has 12 kB: a hundredth of them lost would show.
    assert resident() - before < 400_000
