"""gcd and lcm: loops over the lanes of a vector, which end when the last lane does."""

import pytest
import torch

import disc


class Divisors(torch.nn.Module):
    def forward(self, x, y):
        return torch.gcd(x, y), torch.lcm(x, y)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_sizes_of_numbers(dtype):
    info = torch.iinfo(dtype)
    example = torch.ones(64, dtype=dtype)
    model = disc.compile(
        Divisors(), (example, example.clone()), dynamic_shapes=({0: torch.export.Dim("n", min=1)},) * 2
    )
    generator = torch.Generator().manual_seed(0)
    for limit in (10, 1000, info.max):
        high = min(limit, info.max)
        shape, low = (1003,), -high if info.min < 0 else 0
        x, y = (torch.randint(low, high, shape, dtype=dtype, generator=generator) for _ in range(2))
        x[::7], y[::5] = 0, 0  # and both are, in places
        gcd, lcm = model(x, y)
        assert torch.equal(gcd, torch.gcd(x, y))
        defined = gcd != 0  # eager divides by it
        assert torch.equal(lcm[defined], torch.lcm(x[defined], y[defined]))


def test_few_elements_and_broadcasting():
    x, y = torch.tensor([[12], [-18], [7]]), torch.tensor([8, 0, -6, 21, 5])
    model = disc.compile(Divisors(), (x, y))
    for got, want in zip(model(x, y), (torch.gcd(x, y), torch.lcm(x, y)), strict=True):
        assert torch.equal(got, want)
