"""DISC under a budget: plans, peaks, bits and the largest size that fits."""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch import Tensor

import disc

from .models import MemoryModel
from .results import SHARES, At, Budget, Fit, Plan, same_bits

ENOUGH = 1 << 42
"""A budget that everything fits into: the runtime counts memory only while there is one."""


class Ours:
    """A training step compiled once, with plans."""

    def __init__(self, model: MemoryModel, plans: int = 8):
        training = model.training
        self.model = model
        self.module = training.build()
        self.optimizer = training.make_optimizer(self.module)
        start = time.perf_counter()
        self.step = disc.compile_training(
            self.module,
            self.optimizer,
            training.example(),
            loss=training.loss,
            dynamic_shapes=training.dynamic_shapes(),
            options=disc.Options(threads=1, memory_plans=plans, code_cache=False),
        )
        self.compile_seconds = time.perf_counter() - start
        # Momentum exists after this one. The state of the start has its shape, and other values.
        self.step(*training.example())
        self.state = copy.deepcopy((self.module.state_dict(), self.optimizer.state_dict()))

    def sizes(self, shape: tuple[int, ...]) -> dict[str, int]:
        """A shape by the names of its sizes."""
        return dict(zip(self.model.training.dims, shape, strict=True))

    def reset(self) -> None:
        """The state after the first step, in the tensors that the compiled code knows."""
        weights, optimizer = self.state
        with torch.no_grad():
            for name, value in self.module.state_dict().items():
                value.copy_(weights[name])
            for index, state in enumerate(self.optimizer.state_dict()["state"].values()):
                for key, value in state.items():
                    if isinstance(value, Tensor):
                        value.copy_(optimizer["state"][index][key])

    def once(self, batch: tuple[Any, ...], budget: int) -> tuple[list[Tensor], int, int]:
        """A step from the state of the start: loss and all that it changes, the measured peak, the plan."""
        self.reset()
        self.step.set_memory_budget(budget)
        self.step.model.reset_memory_peak()
        loss = self.step(*batch)
        held = self.step.model.memory_held()
        values = [loss, *self.module.state_dict().values()]
        for state in self.optimizer.state_dict()["state"].values():
            values += [value for value in state.values() if isinstance(value, Tensor)]
        return [value.detach().clone() for value in values], held.peak, held.last_plan

    def at(self, shape: tuple[int, ...], batch: tuple[Any, ...]) -> At:
        """All but times."""
        sizes = self.sizes(shape)
        curve = self.step.memory_curve(**sizes)
        result = At(list(shape), curve[0].total)
        expected, _, _ = self.once(batch, ENOUGH)
        for point in curve:
            plan = Plan(point.plan, point.total, point.overhead)
            try:
                values, plan.peak, used = self.once(batch, point.total)
                plan.same = same_bits(values, expected)
                if used != point.plan:
                    plan.error = f"the call took plan {used}"
            except Exception as error:
                plan.error = f"{type(error).__name__}: {error}"
            result.plans.append(plan)
        for share in SHARES:
            budget = Budget(share, int(share * result.peak))
            fits = result.within(budget.bytes)
            try:
                values, budget.peak, used = self.once(batch, budget.bytes)
                budget.plan, budget.same = used, same_bits(values, expected)
                if fits is None or fits.plan != used:
                    budget.error = f"memory_curve has another plan: {fits.plan if fits else None}"
            except MemoryError as error:
                budget.error = str(error) if fits is None else f"MemoryError although a plan fits: {error}"
            except Exception as error:
                budget.error = f"{type(error).__name__}: {error}"
            result.budgets.append(budget)
        self.step.set_memory_budget(None)
        return result

    def largest(self, budget: int, shape: tuple[int, ...]) -> Fit:
        """The largest size within a budget with plan 0 and with all plans, and a step at it."""
        name = self.model.grows
        sizes = self.sizes(shape)
        high = self.model.training.dims[name][1]

        def fits(size: int, plans: bool) -> bool:
            curve = self.step.memory_curve(**{**sizes, name: size})
            return (curve.least if plans else curve[0].total) <= budget

        without, best = (bisect(lambda size, plans=plans: fits(size, plans), high) for plans in (False, True))  # type: ignore[misc]
        fit = Fit(budget, name, sizes[name], without, best)
        if best == 0:
            fit.error = "nothing fits"
            return fit
        largest = tuple(best if n == name else size for n, size in sizes.items())
        try:
            fit.overhead = self.step.memory(budget=budget, **self.sizes(largest)).overhead
            _, fit.peak, _ = self.once(self.model.training.data(largest), budget)
        except Exception as error:
            fit.error = f"{type(error).__name__}: {error}"
        self.step.set_memory_budget(None)
        return fit


def bisect(fits: Any, high: int) -> int:
    """The largest number from 1 to `high` that fits, 0 if none does; smaller ones must fit if a larger one does."""
    low, above = 0, high + 1
    while above - low > 1:
        middle = (low + above) // 2
        if fits(middle):
            low = middle
        else:
            above = middle
    return low
