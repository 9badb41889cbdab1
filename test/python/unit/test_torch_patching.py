"""disc.torch_compat.patching: replacements in one thread, nested, in several threads, and after errors."""

import functools
import inspect
import logging
import pickle
import sys
import threading
import types
import warnings

import pytest

from disc.torch_compat.patching import CodePatch, ItemPatch, Patch, caller, instead, is_between, replaced
from disc.torch_compat.quiet import QuietLog, QuietWarning


@pytest.fixture
def place():
    """A module of functions that can be replaced."""
    module = types.ModuleType("disc_test_place")

    def double(n, plus=0):
        """Twice a number."""
        return 2 * n + plus

    class Base:
        def name(self):
            return "base"

        @staticmethod
        def static(n):
            return n

        @property
        def attribute(self):
            return 1

    class Derived(Base):
        pass

    module.double, module.Base, module.Derived = double, Base, Derived
    module.table = {"double": double}
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


DOUBLE = Patch("disc_test_place:double", "", "(n, plus)")


def elsewhere(function):
    """The result of a function in another thread."""
    result = []

    def run():
        try:
            result.append((function(), None))
        except BaseException as error:
            result.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    return value


def plus_one(original, n, **more):
    return original(n, **more) + 1


def test_other_threads_call_the_original(place):
    original = place.double
    with replaced({DOUBLE: plus_one}):
        assert place.double(3) == 7
        assert place.double(3, plus=1) == 8
        assert elsewhere(lambda: place.double(3)) == 6
        assert DOUBLE.original() is original
        assert inspect.signature(place.double) == inspect.signature(original)
        assert place.double.__doc__ == "Twice a number."
    assert place.double is original


def test_nested_replacements_call_each_other(place):
    original = place.double
    with replaced({DOUBLE: plus_one}):
        with replaced({DOUBLE: lambda original, n: 10 * original(n)}):
            assert place.double(3) == 70
        assert place.double(3) == 7
    assert place.double is original


def test_the_last_thread_that_leaves_restores(place):
    original = place.double
    entered, leave = threading.Event(), threading.Event()
    seen = []

    def other():
        with replaced({DOUBLE: instead(lambda n: "other")}):
            entered.set()
            leave.wait(20)
            seen.append(place.double(1))

    thread = threading.Thread(target=other)
    with replaced({DOUBLE: plus_one}):
        thread.start()
        assert entered.wait(20)
        assert place.double(1) == 3
    assert place.double(1) == 2
    assert place.double is not original
    leave.set()
    thread.join()
    assert seen == ["other"]
    assert place.double is original


def test_many_threads(place):
    original = place.double
    wrong = []

    def work(number):
        for _ in range(200):
            with replaced({DOUBLE: lambda original, n: original(n) + number}):
                if place.double(1) != 2 + number:
                    wrong.append(number)
            if place.double(1) != 2:
                wrong.append(-number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong
    assert place.double is original


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_errors_restore(place, error):
    original = place.double
    with pytest.raises(error), replaced({DOUBLE: plus_one}):
        raise error
    assert place.double is original


def test_an_interrupt_at_any_line_restores(place):
    """Ctrl-C in each line of the entry and of the exit."""
    original, table = place.double, dict(place.table)
    patches = {DOUBLE: plus_one, ItemPatch("disc_test_place:table", "", None).at("double"): plus_one}
    file = is_between.__code__.co_filename

    def run(number):
        """Whether the line of a number, counted from the entry on, was reached."""
        count = 0

        def trace(frame, event, _):
            nonlocal count
            if frame.f_code.co_filename != file:
                return None
            if event == "line":
                count += 1
                if count == number:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with replaced(patches):
                pass
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    number = 1
    while run(number):
        assert place.double is original, number
        assert place.table == table, number
        number += 1
    assert number > 30


def test_a_missing_place_replaces_nothing(place):
    original = place.double
    missing = Patch("disc_test_place:triple", "", "(n)")
    with pytest.raises(AttributeError, match="triple"), replaced({DOUBLE: plus_one, missing: plus_one}):
        pass
    assert place.double is original


def test_what_other_code_installed_meanwhile_stays(place):
    with replaced({DOUBLE: plus_one}):
        inner = place.double
        place.double = functools.partial(inner, plus=100)
        assert place.double(1) == 103
    assert place.double(1) == 102
    with replaced({DOUBLE: lambda original, n: -original(n)}):
        assert place.double(1) == -102
    assert place.double(1) == 102


def test_inherited_attributes_are_deleted_again(place):
    with replaced(
        {Patch("disc_test_place:Derived.name", "", "(self)"): lambda original, self: f"not {original(self)}"}
    ):
        assert place.Derived().name() == "not base"
        assert place.Base().name() == "base"
        assert elsewhere(place.Derived().name) == "base"
    assert "name" not in vars(place.Derived)


def test_static_methods(place):
    static = vars(place.Base)["static"]
    with replaced({Patch("disc_test_place:Base.static", "", "(n)"): plus_one}):
        assert place.Base().static(1) == place.Base.static(1) == 2
        assert elsewhere(lambda: place.Base().static(1)) == 1
    assert vars(place.Base)["static"] is static


def test_properties_are_refused(place):
    with (
        pytest.raises(TypeError, match="not a function"),
        replaced({Patch("disc_test_place:Base.attribute", "", None): plus_one}),
    ):
        pass


def test_a_name_that_shadows_a_builtin(place):
    patch = Patch("disc_test_place:len", "", None, default="builtins:len")
    with replaced({patch: instead(lambda x: -1)}):
        assert place.len([1, 2]) == -1
        assert elsewhere(lambda: place.len([1, 2])) == 2
    assert not hasattr(place, "len")


def test_items(place):
    patch = ItemPatch("disc_test_place:table", "", None)
    with replaced({patch.at(key): plus_one for key in patch.items()}):
        assert place.table["double"](1) == 3
        assert elsewhere(lambda: place.table["double"](1)) == 2
    assert place.table == {"double": place.double}


def test_an_item_that_was_removed_meanwhile_stays_so(place):
    with replaced({ItemPatch("disc_test_place:table", "", None).at("double"): plus_one}):
        del place.table["double"]
    assert place.table == {}


def test_code(place):
    """A function that another module imported under a name of its own."""
    imported, code = place.double, place.double.__code__
    signature = inspect.signature(imported)
    patch = CodePatch("disc_test_place:double", "", "(n, plus)")
    with replaced({patch: lambda original, n, plus: ("replaced", original(n, plus))}):
        assert imported(3) == ("replaced", 6)
        assert imported(3, plus=4) == ("replaced", 10)
        assert elsewhere(lambda: imported(3, plus=4)) == 10
        assert inspect.signature(imported) == signature
        with replaced({patch: lambda original, *args: ("inner", original(*args))}):
            assert imported(1) == ("inner", ("replaced", 2))
        assert imported(1) == ("replaced", 2)
        assert patch.original()(5) == 10
    assert imported.__code__ is code
    assert imported(3) == 6


def test_caller(place):
    def where(_, n):
        return caller().f_code

    with replaced({DOUBLE: where}):
        assert place.double(1) is sys._getframe().f_code
    with replaced({DOUBLE: where}), replaced({DOUBLE: lambda original, n: original(n)}):
        assert "lambda" in place.double(1).co_name


def test_a_function_can_be_pickled_meanwhile(place):
    place.double.__qualname__, place.double.__module__ = "double", place.__name__
    with replaced({DOUBLE: plus_one}):
        assert pickle.loads(pickle.dumps(place.double)) is place.double


def test_warnings_of_other_threads_appear():
    quiet = QuietWarning("too loud", UserWarning)

    def warn():
        warnings.warn("this is too loud", stacklevel=1)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        filters = list(warnings.filters)
        with quiet.silenced(), quiet.silenced():
            warn()
            assert not seen
            warnings.warn("something else", stacklevel=1)
            assert len(seen) == 1
            elsewhere(warn)
            assert len(seen) == 2
        assert warnings.filters == filters
        warn()
        assert len(seen) == 3


def test_logs_of_other_threads_appear(caplog):
    quiet = QuietLog("disc_test_logger")
    logger = logging.getLogger("disc_test_logger")
    with quiet.silenced():
        logger.error("here")
        elsewhere(lambda: logger.error("elsewhere"))
    logger.error("afterwards")
    assert [record.message for record in caplog.records] == ["elsewhere", "afterwards"]
    assert not logger.filters
