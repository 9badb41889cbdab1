"""Results as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report import label, markdown_table, number

from .results import At, Budget, Peer, Plan, Result, differs

Table = tuple[list[str], list[list[str]]]


def mib(size: float | None) -> str:
    """Bytes in MiB."""
    return "–" if size is None else f"{size / 2**20:.2f}"


def percent(value: float | None) -> str:
    """An overhead."""
    return "–" if value is None else f"{value:+.1%}"


def yes(value: bool) -> str:
    """Whether results are bitwise equal."""
    return "yes" if value else "**NO**"


def row_of(at: At, plan: int | None) -> Plan | None:
    """The plan of that number."""
    return next((p for p in at.plans if p.plan == plan), None)


def at_share(at: At, share: float) -> tuple[Budget | None, Plan | None]:
    """The budget of that share, and its plan."""
    budget = next((b for b in at.budgets if b.share == share), None)
    return budget, row_of(at, budget.plan) if budget else None


def overview(results: Sequence[Result]) -> Table:
    """One row per model, at its large shape."""
    header = ["model", "shape", "peak MiB", "smallest budget", "time at 0.8", "0.6", "0.5", "0.4", "eager's peak MiB"]
    header += ["DISC's time/eager's", "at half of eager's peak", "compile s"]
    rows = []
    for result in results:
        if not result.shapes:
            rows.append([result.title, f"failed: {result.failed}", *[""] * (len(header) - 2)])
            continue
        at = result.shapes[-1]
        row = [result.title, label(tuple(at.shape)), mib(at.peak), number(at.least())]
        for share in (0.8, 0.6, 0.5, 0.4):
            _, plan = at_share(at, share)
            row.append(f"{1 + plan.measured:.2f}" if plan else "no plan")
        eager = at.peer("eager")
        half = at.within(eager.peak // 2) if eager and eager.peak else None
        row += [
            mib(eager.peak if eager else None),
            number(times(at.usual, eager)),
            number(times(half.seconds if half else None, eager)),
        ]
        row += [number(result.compile_seconds, "{:.0f}")]
        rows.append(row)
    return header, rows


def times(seconds: float | None, peer: Peer | None) -> float | None:
    """A time over a peer's."""
    return seconds / peer.seconds if seconds and peer and peer.seconds else None


def off(plan: Plan) -> bool:
    """Whether the measured overhead is not the predicted one. Plan 0's is noise."""
    return plan.plan > 0 and differs(plan.overhead, plan.measured)


def plan_table(at: At) -> Table:
    """The plans."""
    header = [
        "plan",
        "predicted MiB",
        "of the peak",
        "measured MiB",
        "predicted time",
        "measured time",
        "bitwise equal",
    ]
    rows = []
    for plan in at.plans:
        row = [str(plan.plan), mib(plan.total), number(plan.total / at.peak), mib(plan.peak)]
        row += [percent(plan.overhead), percent(plan.measured) + " ≠" * off(plan)]
        rows.append([*row, plan.error or yes(plan.same)])
    return header, rows


def budget_table(at: At) -> Table:
    """The budgets."""
    header = ["budget", "MiB", "plan", "predicted MiB", "measured MiB", "predicted time", "measured time"]
    header += ["bitwise equal"]
    rows = []
    for budget in at.budgets:
        plan = row_of(at, budget.plan)
        row = [f"{budget.share:.1f}", mib(budget.bytes)]
        if plan is None:
            rows.append([*row, "no plan", *["–"] * 5])
            continue
        row += [str(plan.plan), mib(plan.total), mib(budget.peak)]
        row += [percent(plan.overhead), percent(plan.measured), budget.error or yes(budget.same)]
        rows.append(row)
    return header, rows


def peer_table(at: At) -> Table:
    """The peers, and DISC within the memory of each."""
    header = ["peer", "peak MiB", "beside gradients", "ms", "time/eager's", "compile s", "loss error"]
    header += ["DISC in that memory: ms", "peer's time/DISC's"]
    rows = []
    for peer in at.peers:
        if peer.failed:
            rows.append([peer.title, f"failed: {peer.failed.replace('|', '/')}", *["–"] * 7])
            continue
        plan = at.within(peer.peak or 0)
        row = [peer.title, mib(peer.peak), mib(peer.beside_gradients), number((peer.seconds or 0) * 1e3, "{:.1f}")]
        row += [number(times(peer.seconds, at.peer("eager"))), number(peer.compile_seconds, "{:.0f}")]
        row += [number(peer.loss_error, "{:.0e}")]
        if plan and plan.seconds and peer.seconds:
            row += [f"{plan.seconds * 1e3:.1f}", f"{peer.seconds / plan.seconds:.2f}"]
        else:
            row += ["no plan fits", "–"]
        rows.append(row)
    return header, rows


def reverse_table(at: At) -> Table:
    """DISC's plans, and the fastest peer within the memory of each."""
    rows = []
    for plan in at.plans:
        peer = at.fastest_within(plan.total)
        row = [str(plan.plan), mib(plan.total), f"{plan.seconds * 1e3:.1f}"]
        if peer and peer.seconds and plan.seconds:
            row += [peer.title, f"{peer.seconds * 1e3:.1f}", f"{peer.seconds / plan.seconds:.2f}"]
        else:
            row += ["no peer fits", "–", "–"]
        rows.append(row)
    return ["plan", "MiB", "ms", "fastest peer in that memory", "ms", "peer's time/DISC's"], rows


def fit_table(results: Sequence[Result]) -> Table:
    """The largest sizes."""
    header = ["model", "budget MiB", "size", "eager", "DISC, plan 0", "DISC, plans", "plans/plan 0", "plans/eager"]
    header += ["predicted time", "measured peak MiB"]
    rows = []
    for result in results:
        if fit := result.fit:
            row = [result.title, mib(fit.budget), fit.name, str(fit.usual), str(fit.without), str(fit.plans)]
            row += [number(fit.plans / fit.without if fit.without else None), number(fit.plans / fit.usual)]
            rows.append([*row, percent(fit.overhead), fit.error or mib(fit.peak)])
    return header, rows


def findings(results: Sequence[Result]) -> list[str]:
    """Every case that is not as it should be."""
    lines: list[str] = []
    for result in results:
        lines += [f"{result.title}: {text}" for text in (result.failed, *result.notes) if text]
        for at in result.shapes:
            place = f"{result.title} at {label(tuple(at.shape))}"
            for plan in at.plans:
                name = f"{place}, plan {plan.plan}"
                if plan.error:
                    lines.append(f"{name}: {plan.error}")
                    continue
                if not plan.same:
                    lines.append(f"{name}: results are not bitwise equal")
                if plan.peak != plan.total:
                    over = "above the budget" if plan.peak > plan.total else "below the prediction"
                    lines.append(f"{name}: the measured peak of {plan.peak} bytes is {over} of {plan.total}")
                if off(plan):
                    lines.append(f"{name}: overhead {percent(plan.measured)}, predicted {percent(plan.overhead)}")
            for budget in at.budgets:
                if budget.plan is not None and (not budget.same or budget.peak > budget.bytes or budget.error):
                    why = budget.error or ("not bitwise equal" if not budget.same else "peak above the budget")
                    lines.append(f"{place}, budget {budget.share:g}: {why}")
    return lines


def markdown(results: Sequence[Result]) -> list[str]:
    """The report."""
    first = results[0]
    lines = ["# Training under a memory budget", "", "`python -m bench.memory`", ""]
    lines += [f"{first.machine}; {first.settings}. {first.date}, {first.revision}.", ""]
    lines += [
        "The peak is what a call holds without a budget, as `memory_curve` predicts it. Times at a budget are",
        "divided by DISC's time without one. Plan 0 with a budget does the same as without one: its overhead shows the",
        "noise. DTR's paper reports 1.06 to 1.18 at half of the peak for these kinds of networks, on a GPU. The peak",
        "of a peer is the most that PyTorch's CPU allocator hands out in a step, gradients included, from the",
        "profiler's memory events. It does not contain scratch memory of oneDNN. Peers use fused optimizers.",
        "`torch.compile` has static shapes, and is measured in turns with eager in a process without DISC. A ≠ marks",
        "overheads that differ from the prediction by more than a third (and by over 3 % of the time).",
        "",
        *markdown_table(*overview(results)),
        "",
        "![Peak and time](memory.png)",
        "",
        "## Largest sizes within what eager needs",
        "",
        *markdown_table(*fit_table(results)),
    ]
    for result in results:
        for at in result.shapes:
            lines += ["", f"## {result.title} at {label(tuple(at.shape))}", "", f"{at.rounds} rounds.", ""]
            lines += [*markdown_table(*plan_table(at)), "", *markdown_table(*budget_table(at))]
            if at.peers:
                lines += ["", *markdown_table(*peer_table(at)), "", *markdown_table(*reverse_table(at))]
    found = findings(results)
    return [*lines, "", "## Deviations", "", *([f"- {text}" for text in found] or ["None."])]
