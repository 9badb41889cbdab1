"""Extents as expressions over symbols.

The import builds them and writes each into an attribute of ``disc_shape``. Others read them from the texts that the
compiler returns for the dims of inputs and results. The grammar is that of dialects/Shape/SymExprText.cpp::

    sum     ::= product (('+' | '-') product)*
    product ::= factor (('*' | 'floordiv' | 'ceildiv' | 'mod') factor)*
    factor  ::= integer | name | '-' factor | '(' sum ')' | ('min' | 'max') '(' sum (',' sum)+ ')'
    name    ::= identifier | '"' text '"' | '?' integer
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r'\s*(?:(\d+)|([A-Za-z_]\w*)|"((?:[^"\\]|\\.)*)"|(\?\d+)|([-+*(),]))', re.ASCII)
_PLAIN = re.compile(r"[A-Za-z_]\w*|\?\d+", re.ASCII)
"""A symbol's name that is written without quotes."""
_DIVISIONS = ("floordiv", "ceildiv", "mod")
_WORDS = (*_DIVISIONS, "min", "max")
_RESERVED = (*_WORDS, "undefined")


@dataclass(frozen=True)
class Expression:
    """A number, a symbol, or an operation on expressions."""

    kind: str
    """``"number"``, ``"symbol"``, or an operation: ``+``, ``-`` (of one or two), ``*``, ``floordiv``, ``ceildiv``,
    ``mod``, ``min``, ``max``."""
    value: int = 0
    name: str = ""
    """Of a symbol; ``"?0"`` and such are extents that are known only after a run."""
    operands: tuple[Expression, ...] = ()

    def symbols(self) -> list[str]:
        """The symbols in it, each once, in the order of their appearance."""
        if self.kind == "symbol":
            return [self.name]
        return list(dict.fromkeys(name for operand in self.operands for name in operand.symbols()))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value where symbols have these; KeyError for one without, ZeroDivisionError as in Python."""
        if self.kind == "number":
            return self.value
        if self.kind == "symbol":
            return values[self.name]
        return _OPERATIONS[self.kind](*(operand.evaluate(values) for operand in self.operands))

    def renamed(self, names: Mapping[str, str]) -> Expression:
        """The expression with other names for those of its symbols that are keys of ``names``."""
        if self.kind == "symbol":
            return symbol(names[self.name]) if self.name in names else self
        if not self.operands:
            return self
        return Expression(self.kind, operands=tuple(operand.renamed(names) for operand in self.operands))

    def __str__(self) -> str:
        """The text, which :func:`parse` reads."""
        if self.kind == "number":
            return str(self.value)
        if self.kind == "symbol":
            plain = self.name not in _RESERVED and _PLAIN.fullmatch(self.name)
            return self.name if plain else f'"{_escape(self.name)}"'
        if self.kind in ("min", "max"):
            return f"{self.kind}({', '.join(map(str, self.operands))})"
        first, *rest = self.operands
        if not rest:
            return f"-{first._operand()}"
        # Operators of one kind associate to the left.
        left = str(first) if first.kind == self.kind and first.is_infix else first._operand()
        return f"{left} {self.kind} {rest[0]._operand()}"

    @property
    def is_infix(self) -> bool:
        """Whether its text is two operands around an operator."""
        return len(self.operands) == 2 and self.kind not in ("min", "max")

    def _operand(self) -> str:
        """The text as an operand of an operator."""
        return f"({self})" if self.is_infix else str(self)


_OPERATIONS: Mapping[str, Callable[..., int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b=None: -a if b is None else a - b,
    "*": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def number(value: int) -> Expression:
    """A number as an expression."""
    return Expression("number", value=value)


def symbol(name: str) -> Expression:
    """A symbol as an expression."""
    return Expression("symbol", name=name)


def operation(kind: str, *operands: Expression) -> Expression:
    """An operation on expressions, or its value if no operand has a symbol.

    ``kind`` is that of :class:`Expression`. ValueError where numbers are divided by 0.
    """
    result = Expression(kind, operands=operands)
    if all(operand.kind == "number" for operand in operands):
        try:
            return number(result.evaluate({}))
        except ZeroDivisionError:
            raise ValueError(f"an extent is divided by 0: {kind}") from None
    return result


def parse(text: str) -> Expression:
    """Reads an expression; ValueError if the text is not an expression."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if not match:
                raise ValueError(f"{text!r} is not an expression: {text[at:].strip()[0]!r} is unexpected")
            number, word, quoted, opaque, sign = match.groups()
            if number is not None:
                self._tokens.append(("number", number))
            elif sign is not None or word in _WORDS:
                self._tokens.append(("sign", sign or word))
            else:
                name = word or opaque or _unescape(quoted)
                self._tokens.append(("name", name))
            at = match.end()

    def whole(self) -> Expression:
        result = self._sum()
        if self._tokens:
            self._fail()
        return result

    def _sum(self) -> Expression:
        result = self._product()
        while (sign := self._take("+", "-")) is not None:
            result = operation(sign, result, self._product())
        return result

    def _product(self) -> Expression:
        result = self._factor()
        while (sign := self._take("*", *_DIVISIONS)) is not None:
            result = operation(sign, result, self._factor())
        return result

    def _factor(self) -> Expression:
        if self._take("-"):
            return operation("-", self._factor())
        if self._take("("):
            result = self._sum()
            self._expect(")")
            return result
        if (word := self._take("min", "max")) is not None:
            self._expect("(")
            args = [self._sum()]
            while self._take(","):
                args.append(self._sum())
            self._expect(")")
            return operation(word, *args)
        if not self._tokens or self._tokens[0][0] == "sign":
            self._fail()
        kind, text = self._tokens.pop(0)
        return number(int(text)) if kind == "number" else symbol(text)

    def _take(self, *signs: str) -> str | None:
        if self._tokens and self._tokens[0][0] == "sign" and self._tokens[0][1] in signs:
            return self._tokens.pop(0)[1]
        return None

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            self._fail()

    def _fail(self) -> None:
        what = f"{self._tokens[0][1]!r} is unexpected" if self._tokens else "it ends too early"
        raise ValueError(f"{self._text!r} is not an expression: {what}")


def _unescape(text: str) -> str:
    r"""The text of a quoted name: ``\XX`` is a byte in hexadecimal, ``\\`` a backslash."""
    raw = re.sub(
        rb"\\([0-9A-Fa-f]{2}|\\)",
        lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 16)]),
        text.encode(),
    )
    return raw.decode(errors="replace")


def _escape(text: str) -> str:
    """The text of a name inside quotes: what is not printable ASCII is written as bytes in hexadecimal."""
    plain = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:02X}" for byte in text.encode())
    return "".join(plain)
