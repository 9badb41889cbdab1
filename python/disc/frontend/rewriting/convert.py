"""Models with rewritten functions: what ``_disc_`` is in them, and which functions they are."""

from __future__ import annotations

import functools
import inspect
import re
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ... import errors
from ...caches import is_cache
from ...torch_compat import pytree
from ..locations import is_layer_file, is_user_file
from ..model_errors import message_of, model_error
from ..scripted import unwrapped
from . import choice, dynamic, operators, texts, values
from .builtin import variant
from .conditions import stands_for_bool
from .expressions import OPERATORS
from .optional import OptionalValue, settled, with_values
from .parts import Part
from .raised import reasons
from .recursion import Recursion, endless
from .region import forget_shared
from .sites import Site, is_users_file
from .state import check_chosen, described, forget_chosen
from .transform import NotRewritable, is_rewritten, rewrite

_DISC = str(Path(__file__).parents[2])


def _frames(error: BaseException) -> list[types.FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _is_hidden(frame: types.FrameType) -> bool:
    """Whether a frame is the user's, and runs code that has no source."""
    of = str(frame.f_globals.get("__name__", ""))
    code = frame.f_code  # PyTorch makes lambdas of text.
    return code.co_filename in _WITHOUT_SOURCE and code.co_name != "<lambda>" and not of.startswith(("torch", "disc."))


def _line(error: BaseException, frame: types.FrameType) -> int:
    return [line for f, line in traceback.walk_tb(error.__traceback__) if f is frame][-1]


# File names of code that was never in a file: `exec`, `python -c` and Python read from a pipe.
_WITHOUT_SOURCE = ("<string>", "<stdin>")


def is_user_function(function: Any) -> bool:
    """Whether a function is neither PyTorch's, Python's nor ours."""
    return isinstance(function, types.FunctionType) and is_users_file(function.__code__.co_filename)


_CHECKS = str(Path(torch.distributions.__file__).parent)


class Converter:
    """The object that rewritten code calls by the name ``_disc_``."""

    if_ = staticmethod(operators.if_)
    while_ = staticmethod(operators.while_)
    for_ = staticmethod(operators.for_)
    if_exp = staticmethod(operators.if_exp)
    and_ = staticmethod(operators.and_)
    or_ = staticmethod(operators.or_)
    not_ = staticmethod(operators.not_)
    is_ = staticmethod(operators.is_)
    is_not = staticmethod(operators.is_not)
    eq_ = staticmethod(values.eq_)
    ne_ = staticmethod(values.ne_)
    in_ = staticmethod(values.in_)
    plain = staticmethod(dynamic.plain)
    elements = staticmethod(dynamic.elements)
    times = staticmethod(dynamic.times)
    name = staticmethod(texts.name)
    starred = staticmethod(dynamic.starred)
    unpacked = staticmethod(dynamic.unpacked)
    assert_ = staticmethod(operators.assert_)
    Undefined = operators.Undefined

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._functions: dict[int, tuple[Any, Any]] = {}
        self._library: set[types.CodeType] = set()
        self._places: set[tuple[str, int, str]] = set()
        self._checks = False
        """Whether all of PyTorch's distributions are rewritten: one checks its arguments in many functions."""
        self._patched: list[tuple[torch.nn.Module, Any]] = []
        self._called: list[tuple[type[torch.nn.Module], Any]] = []
        self.refused: dict[types.CodeType, NotRewritable] = {}
        self.sites: list[Site] = []
        self.recursion = Recursion()
        self._keeps = False
        """Whether there are variables that one side of a branch sets and code behind it reads."""

    def site(self, file: str, line: int, text: str) -> Site:
        """The place of a construct."""
        self.sites.append(Site(file, line, text))
        return self.sites[-1]

    def sequence(self, value: Any, site: Site) -> Any:
        """The sequence to use for ``value`` where an element of it is read."""
        return choice.sequence(value, site, self.call)

    def call(self, f: Any, site: Site) -> Any:
        """The function to call instead of ``f``."""
        found = variant(f, site)
        if found is not None:
            return found
        if self._keeps and isinstance(f, types.BuiltinFunctionType):
            # Functions in C take sizes and other numbers as Python has them.
            return functools.partial(with_values, f)
        return self.converted(f)

    def converted(self, f: Any) -> Any:
        """A function or another callable with the user's functions in it rewritten."""
        f = unwrapped(f)
        if isinstance(f, torch.nn.Module):
            self.patch(f)
            return f
        if isinstance(f, types.MethodType):
            function = self.converted(f.__func__)
            return f if function is f.__func__ else types.MethodType(function, f.__self__)
        if isinstance(f, types.FunctionType):
            return self._function(f)
        if isinstance(f, functools.partial):
            function = self.converted(f.func)
            return f if function is f.func else functools.partial(function, *f.args, **f.keywords)
        if isinstance(f, type):
            return self._class(f)
        inner = getattr(type(f), "__call__", None)  # noqa: B004
        if isinstance(inner, types.FunctionType) and self._is_of_model(inner):
            return types.MethodType(self._function(inner), f)
        return f

    def _is_of_model(self, function: Any) -> bool:
        if is_user_function(function):
            return True
        code = getattr(function, "__code__", None)
        return code in self._library or (code is not None and self._checks and code.co_filename.startswith(_CHECKS))

    def _function(self, function: types.FunctionType) -> Any:
        known = self._functions.get(id(function))
        if known is None:
            # A wrapper may be among the variables that it closes over.
            self._functions[id(function)] = function, function
            known = function, self._rewritten(function)
            self._functions[id(function)] = known
            if known[1] is not function:
                self._functions[id(known[1])] = known[1], known[1]
        return known[1]

    def _rewritten(self, function: types.FunctionType) -> Any:
        if is_rewritten(function):
            return function
        if self._is_of_model(function):
            if OPERATORS in function.__code__.co_freevars:
                # Rewritten with the function around it.
                return self._watched(function)
            try:
                return self._watched(rewrite(function, self))
            except NotRewritable as error:
                self.refused[function.__code__] = error
                return function
        # A decorator of a library around a function of the user's.
        cells = function.__closure__ or ()
        if hasattr(function, "__wrapped__") and cells:
            inside = [types.CellType(self._within(cell.cell_contents)) for cell in cells]
            if any(new.cell_contents is not old.cell_contents for new, old in zip(inside, cells, strict=True)):
                wrapper = types.FunctionType(
                    function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(inside)
                )
                wrapper.__kwdefaults__ = function.__kwdefaults__
                return functools.update_wrapper(wrapper, function)
        return function

    def _watched(self, function: Any) -> Any:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return self.recursion.run(function, args, kwargs)

        watched.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        del watched.__dict__["__wrapped__"]
        return watched

    def _within(self, value: Any) -> Any:
        return self.converted(value) if isinstance(value, (types.FunctionType, types.MethodType)) else value

    def _class(self, kind: type) -> Any:
        if type(kind) is type and kind.__new__ is object.__new__ and self._is_of_model(kind.__init__):  # type: ignore[misc]

            def make(*args: Any, **kwargs: Any) -> Any:
                made: Any = object.__new__(kind)
                self._function(kind.__init__)(made, *args, **kwargs)  # type: ignore[misc]
                return made

            return make
        return kind

    def explained(self, error: BaseException) -> errors.CompileError:
        """The error to raise for an exception in a model whose control flow is rewritten."""
        if isinstance(error, errors.CompileError):
            return error
        if (known := endless(error)) is not None:
            return known
        frames = [
            f
            for f in _frames(error)
            if is_user_file(f.f_code.co_filename) and not f.f_code.co_filename.startswith(_DISC)
        ]
        source = f"{frames[-1].f_code.co_filename}:{_line(error, frames[-1])}" if frames else None
        why = [self.refused[f.f_code] for f in frames if f.f_code in self.refused]
        name, partial = self._partial(error)
        if partial:
            return errors.ControlFlowError(
                "import",
                f"{name} is used, but has a value on one side only of the branch on data at {partial[-1].source}:"
                " give it one before",
                source,
            )
        text = message_of(error)
        hidden = [f for f in _frames(error) if _is_hidden(f)]
        if why:
            text = f"{why[-1].reason}; {why[-1].suggestion}\n  ({text})"
            source = f"{why[-1].file}:{why[-1].line}"
        elif hidden:
            code = hidden[-1].f_code
            text = f"there is no source of {code.co_name}; define the function in a file\n  ({text})"
            source = f"{code.co_filename}:{code.co_firstlineno}"
        kind = errors.ControlFlowError if why or hidden else errors.ExportError
        found = None if why or hidden else model_error(error)
        return found or kind("import", f"torch.export failed: {text}", source)

    def _partial(self, error: BaseException) -> tuple[str | None, list[Site]]:
        """The variable that has no value in an error, and the branches of which one side sets it."""
        if not isinstance(error, NameError):
            return None, []
        local = re.search(r"local variable '(\w+)'", str(error))
        name = local[1] if local else error.name
        return name, [site for site in self.sites if name in site.partial]

    def keep(self, error: BaseException) -> bool:
        """Has branches keep a variable that one side sets and that is read later; whether that is new."""
        name, partial = self._partial(error)
        fresh = [site for site in partial if name not in site.kept]
        for site in fresh:
            site.kept.add(str(name))
        self._keeps |= bool(fresh)
        return bool(fresh)

    def include(self, error: BaseException) -> bool:
        """Has PyTorch's layers and distributions in which tracing failed rewritten, too; whether that adds any."""
        found = {
            frame.f_code
            for reason in reasons(error)
            for frame in _frames(reason)
            if is_layer_file(frame.f_code.co_filename)
        }
        # Inner functions are created again in each call.
        places = {(code.co_filename, code.co_firstlineno, code.co_name) for code in found}
        if places <= self._places:
            return False
        self._library |= found
        self._checks |= any(code.co_filename.startswith(_CHECKS) for code in found)
        self._places |= places
        self._functions = {key: known for key, known in self._functions.items() if known[0] is not known[1]}
        self.restore()
        self.begin()
        return True

    def begin(self) -> None:
        """Has the model's modules run rewritten functions."""
        for module in self._model.modules():
            self.patch(module)
        _finish(self._model, self)

    def patch(self, module: torch.nn.Module) -> None:
        """Has a module run its rewritten ``forward``, and the ``__call__`` of its class if that is the user's."""
        kind = next(kind for kind in type(module).__mro__ if "__call__" in vars(kind))
        called = vars(kind)["__call__"]
        if isinstance(called, types.FunctionType) and (rewritten := self._function(called)) is not called:
            self._called.append((kind, called))
            kind.__call__ = rewritten  # type: ignore[method-assign]
        forward = module.forward
        function = self.converted(forward)
        if function is not forward and not is_rewritten(getattr(forward, "__func__", forward)):
            self._patched.append((module, module.__dict__.get("forward")))
            module.__dict__["forward"] = function

    def restore(self) -> None:
        """Restores the original ``forward`` and ``__call__`` of all modules."""
        for module, forward in reversed(self._patched):
            if forward is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = forward
        self._patched.clear()
        for kind, called in reversed(self._called):
            kind.__call__ = called  # type: ignore[method-assign]
        self._called.clear()


@contextmanager
def rewritten(model: torch.nn.Module) -> Iterator[Converter]:
    """While it is active, a model's modules run rewritten functions."""
    converter = Converter(model)
    try:
        converter.begin()
        yield converter
    finally:
        converter.restore()
        forget_shared()
        forget_chosen()


def _finish(model: torch.nn.Module, converter: Converter) -> None:
    """Makes the model return Python bools instead of tensors that stand for them."""
    forward: Callable[..., Any] = model.forward

    def leaf(x: Any) -> Any:
        x = settled(x)
        if isinstance(x, (Part, dynamic.Dynamic, OptionalValue)):
            code = getattr(inspect.unwrap(forward), "__code__", None)
            source = None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
            why = "the model returns a list whose length depends on data: stack what is in it"
            if isinstance(x, OptionalValue):
                why = f"the model returns {described(x)}, as data decides: return a tensor, and whether it counts"
            raise errors.ControlFlowError("import", why, source)
        return x.item() if isinstance(x, torch.Tensor) and stands_for_bool(x) else x

    @functools.wraps(forward)
    def whole(*args: Any, **kwargs: Any) -> Any:
        forget_chosen()  # Of a trace that has failed.
        result = pytree.tree_map(leaf, forward(*args, **kwargs), is_leaf=is_cache)
        check_chosen()
        return result

    whole.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    converter._patched.append((model, model.__dict__.get("forward")))
    model.__dict__["forward"] = whole
