"""Libraries that several test files use, each compiled once."""

import pytest
import torch

import disc
from aot_cases import CASES


class Library:
    """A compiled case: the module, the files, and the library in this process."""

    def __init__(self, name, folder, **options):
        self.case = CASES[name]
        self.module = self.case.make().eval()
        self.folder = folder
        inputs = self.case.inputs(*(self.case.points[0] if not self.case.points[0] else self._example()))
        self.artifact = disc.aot_compile(
            self.module,
            inputs,
            dynamic_shapes=self.case.dynamic_shapes,
            output=folder / f"lib{name}.so",
            header=folder / f"{name}.h",
            **options,
        )
        self.path = folder / f"lib{name}.so"
        self.loaded = disc.load(self.path, threads=2)

    def _example(self):
        # torch.export takes extents of 0 and 1, and equal ones, for static.
        return [n + 3 + 2 * i for i, n in enumerate(self.case.points[0])]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """compile(name, **options) gives the library of a case; equal requests give the same one."""
    made = {}

    def compile(name, **options):
        key = (name, *sorted((k, str(v)) for k, v in options.items()))
        if key not in made:
            torch.manual_seed(0)
            folder = tmp_path_factory.mktemp(name)
            options = {k: folder / v if k == "weights" and v != "embed" else v for k, v in options.items()}
            made[key] = Library(name, folder, **options)
        return made[key]

    return compile


@pytest.fixture(autouse=True)
def compiled_parts(request):
    """Whatever a test of torch.compile asserts of results and Dynamo's graphs: DISC must have compiled all of them.

    Tests of what PyTorch runs are marked ``falls_back``; of them only their own assertions are asked.
    """
    if not request.module.__name__.rpartition(".")[2].startswith("test_torch_compile"):
        yield
        return
    import disc.dynamo

    with disc.dynamo._listening() as reports:
        yield
    if request.node.get_closest_marker("falls_back"):
        return
    assert any(report.parts or report.views for report in reports), "nothing was compiled"
    left = [f"{report.kind}: {report.warning()}" for report in reports if report.fallbacks]
    assert not left, "\n".join(left)
