"""Random functions of Python with every kind of statement that the rewriting knows."""

from __future__ import annotations

from random import Random

_NAMES = ("a", "b", "c", "d", "e", "i", "j")


class _Writer:
    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.count = 0
        self.in_comprehension = 0

    def name(self) -> str:
        return self.chance.choice(_NAMES)

    # -- expressions ---------------------------------------------------------------------------------------

    def expression(self, depth: int = 2) -> str:
        pick = self.chance.randrange
        if depth <= 0 or not pick(4):
            return self.chance.choice([self.name(), str(pick(4)), "a", "b", "o.x", "g"])
        x, y = self.expression(depth - 1), self.expression(depth - 1)
        kind = pick(14)
        if kind < 3:
            return f"t({x})"
        if kind < 5:
            return f"({x} {self.chance.choice(['+', '-', '* 2 +', '//', '%'])} {y})"
        if kind < 8:
            return self.condition(depth - 1)
        if kind == 8:
            return f"({x} if {self.condition(depth - 1)} else {y})"
        if kind == 9 and not self.in_comprehension:
            return f"({self.name()} := {x})"
        if kind == 10:
            return f"(lambda {self.chance.choice('ab')}, k={x}: {y})({self.expression(0)})"
        if kind == 11:
            return f"xs[{x} % 3]"
        return self.comprehension(depth - 1)

    def comprehension(self, depth: int) -> str:
        target, over = self.chance.choice("ijk"), self.chance.choice(["range(3)", "xs", "xs", "[1, b]"])
        kind = self.chance.randrange(5)
        self.in_comprehension += 1
        element, test = self.expression(depth), self.condition(depth)
        condition = self.chance.choice(["", f" if {test}"])
        walrus = self.chance.choice(["", "", " if [w := 2]"]) + self.chance.choice(["", " for m in (1, 2)"])
        self.in_comprehension -= 1
        inside = f"{element} for {target} in {over}{condition}{walrus}"
        if kind == 0:
            return f"len([{inside}])"
        if kind == 1:
            return f"len({{{element}: {inside}}})"
        if kind == 2:
            return f"{self.chance.choice(['any', 'all', 'sum'])}({inside})"
        if kind == 3:
            return f"next(({inside}), 7)"
        return f"sum([{inside}])"

    def condition(self, depth: int = 1) -> str:
        x, y = self.expression(depth - 1), self.expression(depth - 1)
        kind = self.chance.randrange(7)
        if kind == 0 and depth > 0:
            return f"({self.condition(depth - 1)} {self.chance.choice(['and', 'or'])} {self.condition(depth - 1)})"
        if kind == 1 and depth > 0:
            return f"(not {self.condition(depth - 1)})"
        if kind == 2:
            return f"({x} < {y} <= {self.expression(depth - 1)})"
        if kind == 3:
            return f"({self.name()} is {self.chance.choice(['None', 'not None'])})"
        return f"({x} {self.chance.choice(['<', '>', '==', '!='])} {y})"

    # -- statements -----------------------------------------------------------------------------------------

    def block(self, depth: int, loop: bool, final: bool = False) -> list[str]:
        lines: list[str] = []
        for _ in range(self.chance.randrange(1, 4)):
            lines += self.statement(depth, loop, final)
        return lines

    def inside(self, head: str, depth: int, loop: bool, final: bool = False) -> list[str]:
        return [head, *("    " + line for line in self.block(depth - 1, loop, final))]

    def statement(self, depth: int, loop: bool, final: bool) -> list[str]:
        kind = self.chance.randrange(100)
        if depth <= 0 or kind < 40:
            return [self.simple(loop, final)]
        if kind < 60:
            lines = self.inside(f"if {self.condition(2)}:", depth, loop, final)
            if self.chance.randrange(3) == 0:
                lines += self.inside(f"elif {self.condition(1)}:", depth, loop, final)
            if self.chance.randrange(2):
                lines += self.inside("else:", depth, loop, final)
            return lines
        if kind < 76:
            if self.chance.randrange(2):
                over = self.chance.choice(["range(3)", "xs", f"range({self.expression(1)} % 4)", "[b, t(2)]"])
                target = self.chance.choice(["i", "j", "a", "i, j"])
                lines = self.inside(
                    f"for {target} in {f'zip(xs, {over})' if ',' in target else over}:", depth, True, final
                )
            else:
                test = self.chance.choice(["True", self.condition(1), self.condition(2)])
                lines = self.inside(f"while {test}:", depth, True, final)
            lines.insert(1, f"    t({self.chance.randrange(10)})")
            if self.chance.randrange(4) == 0:
                lines += self.inside("else:", depth, loop, final)
            return lines
        if kind < 83:
            return self.inside(f"with swallow(){self.chance.choice(['', ' as d'])}:", depth, loop, final)
        if kind < 90:
            lines = self.inside("try:", depth, loop, final)
            handlers = self.chance.randrange(3)
            if handlers:
                error = self.chance.choice(["ValueError", "(NameError, TypeError) as e", "Exception as e"])
                lines += self.inside(f"except {error}:", depth, loop, final)
                if self.chance.randrange(2):
                    lines += self.inside("else:", depth, loop, final)
            if handlers != 1:
                lines += self.inside("finally:", depth, False, True)
            return lines
        if kind < 95:
            lines = [f"match {self.expression(1)}:"]
            for _ in range(self.chance.randrange(1, 3)):
                pattern = self.chance.choice(["0", "1 | 2", "None", "int()", "[c]", "True | 3", "int() as c"])
                guard = self.chance.choice(["", "", f" if {self.condition(1)}"])
                lines += ["    " + line for line in self.inside(f"case {pattern}{guard}:", depth, loop, final)]
            if self.chance.randrange(2):
                lines += [
                    "    " + line
                    for line in self.inside(self.chance.choice(["case _:", "case d:"]), depth, loop, final)
                ]
            return lines
        self.count += 1
        f = f"f{self.count}"
        outer = self.chance.choice(["nonlocal c", "pass", "global g"])
        body = self.inside(f"def {f}(a, b={self.expression(1)}):", 2, False)
        if outer.startswith("global"):
            body.append("    g = a")
        if outer.startswith("nonlocal") and not any("as c" in line or "case [c]" in line for line in body):
            body.append("    c = a")
        else:
            outer = outer.replace("nonlocal c", "pass")
        if outer != "pass" and any(outer[-1] in line for line in body[:-1]):
            # A declaration has to stand before any use.
            body = [body[0], *body[-1:]]
        return [body[0], f"    {outer}", *body[1:], f"t({f}({self.expression(1)}))"]

    def simple(self, loop: bool, final: bool) -> str:
        kind = self.chance.randrange(22 if loop else 19)
        if kind >= 19:
            return self.chance.choice(["break", "continue"])
        if kind < 7:
            return f"{self.name()} = {self.expression()}"
        if kind < 9:
            return f"{self.chance.choice('abc')} += {self.expression()}"
        if kind < 11:
            return f"t({self.expression()})"
        if kind == 11 and not final:
            return f"return {self.chance.choice(['1', 'a', self.expression(), ''])}".strip()
        if kind == 12:
            return self.chance.choice(
                ["xs.append(1)", f"xs[{self.expression(1)} % 2] = {self.expression(1)}", "xs[0] += 1"]
            )
        if kind == 13:
            return f"o.x = {self.expression(1)}"
        if kind == 14:
            return f"a, {self.chance.choice('bcd')} = {self.expression(1)}, {self.expression(1)}"
        if kind == 15:
            return self.chance.choice(
                [f"del {self.name()}", "raise ValueError(1)", f"assert {self.condition(1)}, t(0)"]
            )
        if kind == 16:
            return f"c: int = {self.expression(1)}"
        if kind == 17:
            return f"d = lambda a=a: {self.expression(1)}"
        return f"t(f'{{{self.name()}}}')"


def program(chance: Random) -> str:
    """The source of a function ``f(a, b, xs, o)``. It ends if ``t``, which it calls, does so after some calls."""
    writer = _Writer(chance)
    lines = [line for _ in range(3) for line in writer.statement(3, False, False)]
    lines[:0] = [f"{name} = {value}" for value, name in enumerate("cdeij") if chance.randrange(6)]
    # What is not reached makes names local, too.
    lines += [f"return {writer.expression(1)}", "c = 0"]
    return "\n".join(["def f(a, b, xs, o):", *("    " + line for line in lines), ""])
