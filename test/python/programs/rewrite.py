"""Programs that compute the same in another way: what the compiler makes of both has to agree.

No rewrite changes a rounding: values are moved and back, copied, computed twice, split and joined, or operands swapped.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

from .program import Program, Step

# Of `{v}`, a value of any rank and dtype.
_SAME = (
    "{v}.clone()",
    "{v}.contiguous()",
    "{v}.unsqueeze(0).squeeze(0)",
    "{v}.unsqueeze(-1).transpose(0, -1).transpose(0, -1).squeeze(-1)",
    "torch.where(torch.ones_like({v}, dtype=torch.bool), {v}, {v})",
    "{v}.reshape(-1).reshape({v}.shape)",
    "torch.stack([{v}, {v}])[1]",
    "{v}.flatten().clone().view_as({v})",
    "torch.cat([{v}.unsqueeze(0), {v}.unsqueeze(0)])[0]",
    "{v}.flip(-1).flip(-1) if {v}.dim() else {v}",
    "torch.cat([{v}[: {v}.size(0) // 2], {v}[{v}.size(0) // 2 :]]) if {v}.dim() else {v}",
    "{v}.unsqueeze(0).expand(2, *{v}.shape)[1]",
    "{v}.movedim(0, -1).contiguous().movedim(-1, 0) if {v}.dim() else {v}",
    "{v}.masked_fill(torch.zeros_like({v}, dtype=torch.bool), 0)",
    "{v}.roll(1, 0).roll(-1, 0) if {v}.dim() else {v}",
)
_COMMUTATIVE = re.compile(r"^(v\d+) = ([xv]\d+) ([+*&|^]) ([xv]\d+)$")


def rewritten_name(name: str) -> str:
    """The name of a program's rewritten form."""
    return name + "R"


def original_name(name: str) -> str:
    """The name of the program that a rewritten form is of; of another program its own."""
    return name.removesuffix("R")


def rewritten(program: Program, seed: int) -> Program:
    """The program with some values replaced by equal ones; named with an R."""
    rng = random.Random(f"{seed} {program.name} rewritten")
    mutates = any(not s.defines for s in program.steps)
    steps: list[Step] = []
    for step in program.steps:
        text = step.text
        if (match := _COMMUTATIVE.match(text)) and rng.random() < 0.5:
            text = f"{match[1]} = {match[4]} {match[3]} {match[2]}"
        # A copy of what is changed later, or shares memory with it, is not the same.
        if (
            not mutates
            and step.defines
            and step.op not in ("flow", "compaction")
            and "\n" not in text
            and rng.random() < 0.5
        ):
            name = step.result
            inner = f"w{name[1:]}"
            steps.append(replace(step, text=text.replace(f"{name} = ", f"{inner} = ", 1), result=inner))
            text = f"{name} = " + rng.choice(_SAME).format(v=inner)
            steps.append(Step(name, text, "rewrite"))
            continue
        steps.append(replace(step, text=text))
    if not mutates and program.steps:
        # The inputs as well.
        chosen = rng.choice(program.inputs).name
        steps.insert(0, Step(chosen, f"{chosen} = " + rng.choice(_SAME).format(v=chosen), "rewrite"))
    return replace(program, name=rewritten_name(program.name), steps=tuple(steps))
