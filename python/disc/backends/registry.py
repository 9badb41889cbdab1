"""Back ends that are installed, found by the entry point group ``disc.backends``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points

from ..errors import ArgumentTypeError, ArgumentValueError, BackendError
from .backend import API_VERSION, Backend

GROUP = "disc.backends"

Choice = str | Backend | type[Backend]


def available() -> list[str]:
    """The names of the back ends that are installed, sorted."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find(name: str) -> Backend:
    """The back end that an installed package calls ``name``."""
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        known = ", ".join(available()) or "none are installed"
        raise ArgumentValueError(
            f"backends: no back end is called {name!r} (there are: {known}); it comes with a package that has the entry"
            f" point {name!r} in the group {GROUP!r}"
        )
    try:
        kind = points[0].load()
        made = kind()
    except Exception as error:
        raise BackendError(
            f"back end {name!r} ({points[0].value}) cannot be loaded: {type(error).__name__}: {error}", backend=name
        ) from error
    return _checked(made, name)


def resolve(choices: Sequence[Choice] | Choice | None) -> list[Backend]:
    """The back ends that the argument ``backends`` means, in order of precedence."""
    if choices is None:
        return []
    listed = [choices] if isinstance(choices, (str, Backend, type)) else list(choices)
    found = []
    for choice in listed:
        if isinstance(choice, str):
            found.append(find(choice))
        elif isinstance(choice, type) and issubclass(choice, Backend):
            found.append(_checked(choice(), getattr(choice, "name", "")))
        elif isinstance(choice, Backend):
            found.append(_checked(choice, getattr(choice, "name", "")))
        else:
            raise ArgumentTypeError(
                f"backends: expected names of back ends or disc.backends.Backend, got {type(choice).__name__}"
            )
    names = [backend.name for backend in found]
    if len(set(names)) != len(names):
        raise ArgumentValueError(f"backends: each may be given once, got {names}")
    return found


def _checked(backend: object, name: str) -> Backend:
    if not isinstance(backend, Backend):
        raise BackendError(
            f"back end {name!r}: expected a subclass of disc.backends.Backend, got {type(backend).__name__}",
            backend=name,
        )
    if not isinstance(getattr(backend, "name", None), str) or not backend.name.isidentifier():
        raise BackendError(f"back end {name!r}: its attribute 'name' must be an identifier", backend=name)
    if backend.api_version != API_VERSION:
        raise BackendError(
            f"back end {backend.name!r} is written for version {backend.api_version} of disc.backends, this is version"
            f" {API_VERSION}: install a version of the back end that fits",
            backend=backend.name,
        )
    return backend
