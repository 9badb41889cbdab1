"""Statements with Python's control flow, and such whose results have sizes that data decides.

In `FLOW` `{r}` is the result and `{p}` a condition, one of `CONDITIONS`.
"""

from __future__ import annotations

FLOW = [
    "{r} = torch.cond({p}, lambda t: t * 2, lambda t: t - 1, ({a},))",
    "{r} = torch.cond({p}, lambda t: t.cumsum({d}).to(t.dtype), lambda t: t.flip({d}), ({a},))",
    "if {p}:\n    {r} = {a} * 2\nelse:\n    {r} = {a} + {a}.flip({d})",
    "{r} = {a}\nif {p}:\n    {r} = torch.softmax({a}.float(), {d}).to({a}.dtype)",
    "if {p}:\n    {r} = {a} + 1\nelif {a}.numel() > 40:\n    {r} = {a} - 1\nelse:\n    {r} = {a}.clone()",
    "{r}, k = {a}.clone(), 0\nwhile {r}.sum() < 50 and k < 4:\n    {r} = {r} + 3\n    k += 1",
    "{r} = {a}[0] * 0\nfor i in range({a}.size(0)):\n    {r} = {r} * 2 + {a}[i]",
    "{r} = {a}.clone()\nfor i in range({a}.size(0)):\n    {r}[i] = {r}[i] + i",
    "{r} = {a}.sum()\nfor row in {a}:\n    if row.sum() > 2:\n        break\n    {r} = {r} + row.sum()",
    "{r} = torch.stack([row.sum() for row in {a}])",
    "{r} = {a}.clone()\nif {p}:\n    {r}.mul_(2)\n    {r}[0] = 1",
    "{r} = {a} if {p} else {a} * 3",
    "{r} = {a}\nfor i in range({a}.size(0)):\n    if i % 2 == 0:\n        continue\n    {r} = {r} + i",
    "{r} = {a}\nfor i in range(3):\n    {r} = {r} * 2 if {p} else {r} + i",
    "{r} = {a}.clone()\ni = 0\nwhile i < {a}.size(0):\n    {r}[i] = {r}[i] + {r}[0]\n    i += 2",
    "rows = [{a}[:1] * 2]\nfor i in range({a}.size(0)):\n    if {a}[i].sum() > 0:\n"
    "        rows.append({a}[i : i + 1] * 2)\n{r} = torch.cat(rows)",
    "rows = [{a}.sum()]\nfor row in {a}:\n    rows.append(rows[-1] + row.sum())\n{r} = torch.stack(rows)",
    "total = 0\nfor i, row in enumerate({a}):\n    total = total + int(row.sum() > 0) * i\n{r} = {a} + total",
    "{r} = {a}\nwhile {r}.size(0) > 4:\n    {r} = {r}[: {r}.size(0) // 2]",
    "{r} = {a}\nfor i in range({a}.size(0) // 2):\n    {r} = torch.cat([{r}, {a}[i : i + 1]])",
    "k = int({a}.isnan().sum()) + 1\n{r} = {a} * k",
    "k = int(({a} > 0).sum()) % 3\n{r} = {a}\nfor i in range(k):\n    {r} = {r} + i",
    "k = {a}.float().mean().item()\n{r} = {a} * 2 if k > 0 else {a} + 1",
    "{r} = {a}.clone()\nfor i in range({a}.size(0) - 2, -1, -1):\n    {r}[i] = {a}[i] + {r}[i + 1]",
    "{r} = {a}.new_zeros({a}.size(0))\nfor i in range({a}.size(0)):\n    for j in range(i):\n"
    "        {r}[i] += {a}[j].sum()",
    "{r} = None\nif {p}:\n    {r} = {a} * 2\nif {r} is None:\n    {r} = {a} - 1",
    "state = {{'x': {a}, 'n': 0}}\nwhile state['n'] < 3 and state['x'].sum() < 9:\n"
    "    state = {{'x': state['x'] + 1, 'n': state['n'] + 1}}\n{r} = state['x']",
    "{r}, u = {a}, {a}\nfor i in range({n}):\n    {r}, u = u * 0.5 + {r} * 0.25, {r}",
    "{r} = {a}[0]\nfor i in range({a}.size(0)):\n    if {a}[i].sum() > 3:\n        {r} = {a}[i] * 2\n        break\n"
    "else:\n    {r} = {a}.sum(0).to({a}.dtype)",
    "{r} = {a}\nfor i in range({a}.size(0)):\n    if {p}:\n        {r} = {r} + {a}[i]\n    else:\n"
    "        {r} = {r} - {a}[i].flip(0)",
    "{r}, k = {a}, 0\nwhile k < {a}.size(0):\n    if {a}[k].sum() > 1:\n        {r} = {r} + 1\n        k += 2\n"
    "    else:\n        k += 1",
    "{r} = {a}.clone()\nif {p}:\n    {r}[1:] += {r}[:-1].clone()\nelse:\n    {r}[..., 0] = 1",
    "{r} = torch.stack([row * 2 for row in {a} if row.sum() > 0] + [{a}.sum(0)])",
    "{r} = {a}\nfor row, other in zip({a}, {a}.flip(0)):\n    {r} = {r} + row * other",
    "{r} = {a}.clone()\nk = int({a}.argmax()) % {a}.size(0)\n{r}[k] = {r}[k] * 2",
    "k = max(1, int({a}.sum()) % 5)\n{r} = {a}.repeat(k, *[1] * ({a}.dim() - 1))",
    "def step(t):\n    if t.sum() > 4:\n        return t - 1\n    return t + 1\n{r} = step(step({a}))",
    "def halve(t):\n    return t if t.size(0) <= 2 else halve(t[: t.size(0) // 2] * 2)\n{r} = halve({a})",
]
CONDITIONS = [
    "{b}.sum() > 0", "{b}.any()", "{b}.amax() > 1", "{b}.numel() > 20", "{b}.size(0) > 8",
    "{b}.max() > {b}.min() + 2", "{b}.sum() > 0 and {b}.size(0) > 3", "not {b}.any()", "0 < {b}.sum() < 5",
    "{b}.sum() > 0 or {b}.numel() == 0", "{b}.size(0) == 1", "{b}.reshape(-1)[0] > 0",
    "bool(({b} > 0).all())", "{b}.mean() > 0", "({b} == 1).sum() > 1", "{b}.isnan().any()",
]  # fmt: skip
COMPACTING = [
    "{a}[{a} > 0]", "{a}.nonzero()", "torch.masked_select({a}, {a} > 0)", "{a}[{a}.reshape({a}.size(0), -1).any(1)]",
    "torch.unique({a})", "{a}.nonzero().sum(0)", "torch.where({a} > 0)[0]", "torch.unique({a}, return_counts=True)[1]",
    "torch.unique({a}, return_inverse=True)[1]", "torch.unique({a}, dim=0)", "torch.unique_consecutive({a})",
    "{a}.repeat_interleave({a}.reshape({a}.size(0), -1)[:, 0].long() & 3, 0)", "torch.arange(int(({a} > 0).sum()))",
    "{a}.reshape(-1)[: int(({a} > 0).sum())]", "torch.zeros(int({a}.count_nonzero()), 2)",
    "{a}.nonzero(as_tuple=True)[-1]", "torch.bincount({a}.reshape(-1).long() & 15)", "{a}.argwhere()",
    "{a}.index_select(0, ({a}.reshape({a}.size(0), -1)[:, 0] > 0).nonzero()[:, 0])",
    "{a}[:, ({a}.reshape({a}.size(0), {a}.size(1), -1) > 0).any(2).any(0)]", "{a}[{a} > 0] * {a}[{a} > 0].sum()",
    "torch.full((int({a}.argmax()) + 1,), 2.0)", "{a}.narrow(0, 0, int({a}.argmax()) % {a}.size(0))",
]  # fmt: skip
