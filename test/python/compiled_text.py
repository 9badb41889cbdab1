"""Programs given as input IR, compiled."""

from dataclasses import dataclass

from disc import _native
from disc.compilation import Compilation
from disc.compiler import _emit
from disc.options import Options


@dataclass
class _Text:
    text: str
    symbols: tuple[()] = ()
    inputs: tuple[()] = ()
    predicates: frozenset[str] = frozenset()


def compile_text(text: str) -> _native.Executable:
    """A program without parameters, from the text of its input IR."""
    compilation = Compilation(Options())
    module = compilation.lower(_Text(text))  # type: ignore[arg-type]
    executable = _emit(compilation, module, device=0)
    executable.init([])
    return executable
