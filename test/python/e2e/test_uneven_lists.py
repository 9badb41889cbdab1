"""Lists of tensors that differ in one size, and tensors split into as many pieces as are known at run time only."""

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.nn.utils.rnn import pad_sequence

import disc

N, M = Dim("n", min=1), Dim("m", min=1)
SIZES = (5, 1, 2, 8, 17, 4, 3, 1)
PAIRS = ((6, 4), (1, 1), (7, 2), (2, 11), (1, 3))


def compare(function, given, shapes, sizes=SIZES, example=5):
    """Compiles once, and compares with eager at several sizes. ``given`` makes the arguments for a size."""

    def arguments(size):
        torch.manual_seed(0)
        values = given(*(size if isinstance(size, tuple) else (size,)))
        return values if isinstance(values, tuple) else (values,)

    model = disc.compile(function, arguments(example), dynamic_shapes=shapes)
    for size in sizes:
        got, expected = model(*arguments(size)), function(*arguments(size))
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{size}: {text}")


def rows(n):
    return torch.randn(n, 3)


def test_slices_of_which_the_last_is_shorter():
    def joined(x: Tensor) -> Tensor:
        return torch.cat([x[i : i + 4].cumsum(0) for i in range(0, x.shape[0], 4)]) + x

    compare(joined, rows, ({0: N},))


def test_ranges_of_lengths():
    def positions(lengths: Tensor) -> tuple[Tensor, Tensor]:
        owners = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths)
        return torch.cat([torch.arange(int(n)) for n in lengths]), owners

    compare(positions, lambda n: torch.randint(0, 4, (n,)), ({0: N},))


def test_elements_of_the_list():
    def appended(x: Tensor) -> tuple[Tensor, int, Tensor, Tensor, Tensor]:
        out = []
        for i in range(0, x.shape[1], 3):
            out.append(x[:, i : i + 3].flip(1))
        means = torch.stack([part.mean() + len(part) for part in out])
        return torch.cat(out, 1), len(out), out[-1], out[0], means

    compare(appended, lambda n: torch.randn(2, n), ({1: N},))


def test_a_step_reads_what_the_one_before_appended():
    def carried(x: Tensor) -> Tensor:
        out: list[Tensor] = []
        for i in range(0, x.shape[0], 3):
            part = x[i : i + 3]
            if out:
                part = part + out[-1][-1]
            out.append(part)
        return torch.cat(out)

    compare(carried, rows, ({0: N},))


@pytest.mark.parametrize("batch_first", [True, False])
def test_sequences_are_padded(batch_first):
    def padded(x: Tensor, lengths: Tensor) -> Tensor:
        return pad_sequence([x[:n] for n in lengths], batch_first=batch_first, padding_value=-1.0)

    given = lambda n, m: (torch.randn(m, 2), torch.randint(0, m + 1, (n,)))  # noqa: E731
    compare(padded, given, ({0: M}, {0: N}), PAIRS, (6, 4))


def test_rows_of_each_kind():
    def grouped(x: Tensor, kind: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        groups = [x[kind == k] * k for k in kinds]
        return torch.cat(groups), torch.stack([group.sum(0) for group in groups])

    given = lambda n, m: (rows(n), torch.randint(0, m, (n,)), torch.arange(m))  # noqa: E731
    compare(grouped, given, ({0: N}, {0: N}, {0: M}), PAIRS, (6, 4))


def test_joined_along_another_dim_is_an_error():
    def joined(x: Tensor) -> Tensor:
        return torch.cat([x[i : i + 4] for i in range(0, x.shape[0], 4)], 1)

    with pytest.raises(disc.CompileError, match=r"differ in dim 0, and torch\.cat joins them along dim 1"):
        disc.compile(joined, (rows(8),), dynamic_shapes=({0: N},))


def test_pieces_of_one_size():
    def split(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        pairs = torch.stack([a.sum() * b.max() for a, b in zip(x.split(4), y.split(4), strict=True)])
        numbered = torch.stack([part.sum() * i for i, part in enumerate(torch.split(x, 4))])
        parts = x.split(split_size=4)
        joined = torch.cat([part.softmax(0) for part in reversed(parts)])
        return pairs, numbered, joined, parts[0], parts[-1], torch.tensor(len(parts))

    compare(split, lambda n: (rows(n), torch.randn(n)), ({0: N}, {0: N}))


def test_no_rows_are_one_piece():
    def split(x: Tensor) -> tuple[Tensor, Tensor, int]:
        parts = x.split(4)
        return torch.cat([part.softmax(0) for part in parts]), torch.stack([part.sum(0) for part in parts]), len(parts)

    compare(split, rows, ({0: Dim("n")},), (5, 0, 3, 9))


def test_pieces_of_a_dynamic_size():
    def split(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([part.sum(0) for part in x.split(y.shape[0])])

    compare(split, lambda n, m: (rows(n), torch.randn(m)), ({0: N}, {0: M}), PAIRS, (6, 4))


def test_pieces_of_sizes_in_a_tensor():
    def split(x: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        parts = x.split(sizes.tolist())
        return torch.stack([part.sum(0) for part in parts]), torch.cat([part.flip(0) for part in parts])

    def given(n):
        sizes = torch.randint(0, 4, (n,))
        return rows(int(sizes.sum())), sizes

    model = disc.compile(split, given(5), dynamic_shapes=({0: Dim("t")}, {0: N}))
    for n in SIZES:
        x, sizes = given(n)
        torch.testing.assert_close(model(x, sizes), split(x, sizes))
    with pytest.raises(disc.ShapeError, match="sum is the size of dim 0"):
        model(rows(5), torch.tensor([2, 2]))


def test_experts_in_turn():
    def experts(x: Tensor, expert: Tensor, weight: Tensor) -> Tensor:
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=3).tolist()
        parts = [part @ weight[e] for e, part in enumerate(torch.split(x[order], counts))]
        y = torch.cat(parts)
        return torch.empty_like(y).index_copy_(0, order, y)

    given = lambda n: (rows(n), torch.randint(0, 3, (n,)), torch.randn(3, 3, 3))  # noqa: E731
    compare(experts, given, ({0: N}, {0: N}, None))


def test_halves():
    """The number of chunks is 2 for all sizes, which a quotient of two sizes says."""

    def halves(x: Tensor, y: Tensor) -> Tensor:
        without, conditional = x.sin().chunk(2)
        return without + 2 * (conditional - without) * y

    compare(halves, lambda n: (rows(2 * n), rows(n)), ({0: 2 * N}, {0: N}))
    compare(lambda x: [part.sum(0) for part in x.chunk(3)], rows, ({0: Dim("n", min=5)},), (5, 6, 7, 16))
    compare(lambda x: torch.stack([c.sum(0) for c in x.chunk(3)]), rows, ({0: N},))


def test_a_dynamic_number_of_chunks():
    def first(x: Tensor, y: Tensor) -> Tensor:
        parts = x.chunk(y.shape[0], 1)
        return parts[0].sum() + parts[-1].sum() * len(parts)

    given = lambda n, m: (torch.randn(2, n), torch.randn(m))  # noqa: E731
    compare(first, given, ({1: N}, {0: M}), ((12, 5), (6, 4), (1, 1), (7, 2), (60, 1)), (12, 5))


def test_two_chunks_of_one_row_do_not_exist():
    def halves(x: Tensor) -> Tensor:
        a, b = x.chunk(2)
        return a.sum(0) - b.sum(0)

    model = disc.compile(halves, (rows(5),), dynamic_shapes=({0: N},))
    for n in (5, 2, 3, 8):
        x = rows(n)
        torch.testing.assert_close(model(x), halves(x))
    with pytest.raises(ValueError, match="unpack"):
        halves(rows(1))
    with pytest.raises(disc.ShapeError, match="unpack"):
        model(rows(1))


def test_a_list_is_extended_by_numbers_of_a_tensor():
    """Where windows begin, as a step of a loop finds them: as many as the step's number."""

    def begins(x: Tensor) -> Tensor:
        out = [0]
        for i in range(x.shape[0]):
            out.extend((torch.arange(i + 1).cumsum(0) + out[-1]).tolist())
        return torch.tensor(out)

    compare(begins, rows, ({0: N},))


# -- tensors that differ in several sizes -------------------------------------------------------------------------


def images(n):
    return torch.randn(n, 3, 9, 7), torch.stack([torch.randint(1, 10, (n,)), torch.randint(1, 8, (n,))], 1)


def test_images_of_several_sizes():
    """The parts of padded images, each of its height and width, are one sequence of pixels."""

    def joined(x: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        parts = [image[..., : size[0], : size[1]] for image, size in zip(x, sizes)]
        pixels = torch.cat([part.flatten(1).T for part in parts])
        places = []
        for part in parts:
            rows, columns = torch.meshgrid(torch.arange(part.shape[-2]), torch.arange(part.shape[-1]), indexing="ij")
            places.append(torch.stack([rows.flatten(), columns.flatten()], -1))
        counts = [part.shape[-2] * part.shape[-1] for part in parts]
        ends = torch.tensor(counts).cumsum(0)
        return pixels, torch.cat(places), ends, len(parts)

    compare(joined, images, ({0: N}, {0: N}))


def test_elements_of_several_sizes():
    def chosen(x: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        parts = []
        for image, size in zip(x, sizes):
            if_tall = image[:, : int(size[0]), : int(size[1])].cumsum(1)
            parts.append(if_tall * 2)
        turned = torch.cat([part.flatten() for part in reversed(parts)])
        later = torch.cat([part.sum(0).flatten() for part in [*parts[1:], x[0]]])
        return parts[0], parts[-1], turned, later

    def later_only(x: Tensor, sizes: Tensor) -> Tensor:
        parts = [image[:, : size[0], : size[1]] for image, size in zip(x, sizes)]
        return torch.stack([part.amax((1, 2)) for part in parts[1:]] + [parts[0].mean((1, 2))])

    compare(chosen, images, ({0: N}, {0: N}))
    compare(later_only, images, ({0: N}, {0: N}), sizes=(5, 2, 7, 3, 1))


def test_a_step_reads_tensors_of_several_sizes_that_earlier_ones_appended():
    def grown(x: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        parts = []
        for image, size in zip(x, sizes):
            part = image[0, : size[0], : size[1]]
            if len(parts) > 0:
                part = part + parts[-1].mean()
            parts.append(part)
        return torch.cat([part.flatten() for part in parts]), parts[-1]

    compare(grown, images, ({0: N}, {0: N}))


def test_tensors_of_several_sizes_cannot_be_stacked():
    def stacked(x: Tensor, sizes: Tensor) -> Tensor:
        return torch.stack([image[:, : size[0], : size[1]] for image, size in zip(x, sizes)])

    with pytest.raises(disc.CompileError, match=r"torch\.stack") as raised:
        disc.compile(stacked, images(5), dynamic_shapes=({0: N}, {0: N}))
    assert "several sizes" in str(raised.value.__cause__)
