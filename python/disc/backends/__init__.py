"""Back ends of others: libraries and compilers that take parts of a model.

>>> disc.backends.available()
['onednn']
>>> model = disc.compile(module, args, dynamic_shapes=shapes, backends=["onednn"])
>>> print(model.backends)

How to write one: docs/adding-a-backend.md.
"""

from .backend import API_VERSION, Backend
from .code import Code, ObjectFile, PythonFunction, SharedLibrary, SourceCode
from .graph import Condition, Dim, Operation, Value
from .negotiation import Decision, Refusal
from .patterns import Match, Pattern, anything, op, parameter, tensor
from .region import Region
from .registry import available, find, resolve

__all__ = [
    "API_VERSION",
    "Backend",
    "Code",
    "Condition",
    "Decision",
    "Dim",
    "Match",
    "ObjectFile",
    "Operation",
    "Pattern",
    "PythonFunction",
    "Refusal",
    "Region",
    "SharedLibrary",
    "SourceCode",
    "Value",
    "anything",
    "available",
    "find",
    "op",
    "parameter",
    "resolve",
    "tensor",
]
