"""An installed disc_compiler without torch: all stages after the import, LLVM, the linker and the runtime.

wheel.sh runs it with each interpreter that a wheel was built for, also where no small build of torch exists.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import disc
from disc import _native, pipeline


def main() -> None:
    assert Path(_native.__file__).parent == Path(disc.__file__).parent, (_native.__file__, disc.__file__)
    module = _native.Module.parse((Path(__file__).parent / "softmax.mlir").read_text())
    module.set_host_target()
    for stage in pipeline.cpu():
        module.run(stage.text)
    builder = _native.ArtifactBuilder("Softmax")
    builder.add_variant(module, _native.host_target()["cpu"])
    archives = [Path(disc.__file__).parent / "lib" / name for name in ("libdisc_runtime.a", "libdisc_crt.a")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "libsoftmax.so"
        builder.write(str(file), kind="shared", runtime=[str(archive) for archive in archives])
        library = disc.load(file)
        for n in (1, 7, 64):
            x = np.random.default_rng(n).standard_normal((n, 5), dtype=np.float32)
            e = np.exp(2 * x - (2 * x).max(-1, keepdims=True))
            np.testing.assert_allclose(library(x), (e / e.sum(-1, keepdims=True)).sum(0), rtol=1e-4)
    assert "torch" not in sys.modules
    print(f"[test-wheel] disc_compiler {disc.__version__} on Python {sys.version.split()[0]}, without torch: ok")


if __name__ == "__main__":
    main()
