"""Optimizers as users write them."""

import math

import torch
from torch.optim import Optimizer


class Lion(Optimizer):
    """Plain tensor code, with the decorator of most."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                beta1, beta2 = group["betas"]
                update = state["exp_avg"] * beta1 + p.grad * (1 - beta1)
                p.add_(update.sign_(), alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)


class OldAdam(Optimizer):
    """Counts in a Python int, computes with ``math``, changes gradients, replaces a tensor of its state."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = p.grad.data
                if grad.is_sparse:
                    raise RuntimeError("sparse")
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p.data)
                    state["exp_avg_sq"] = torch.zeros_like(p.data)
                beta1, beta2 = group["betas"]
                state["step"] += 1
                if group["weight_decay"] != 0:
                    grad.add_(p.data, alpha=group["weight_decay"])
                state["exp_avg"] = beta1 * state["exp_avg"] + (1 - beta1) * grad
                state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                denom = state["exp_avg_sq"].sqrt().add_(group["eps"])
                correction1 = 1 - beta1 ** state["step"]
                correction2 = 1 - beta2 ** state["step"]
                size = group["lr"] * math.sqrt(correction2) / correction1
                p.data.addcdiv_(state["exp_avg"], denom, value=-size)
        return loss


class Clipped(Optimizer):
    """Combines the parameters of a group: the norm of all gradients."""

    def __init__(self, params, lr=0.1, most=1.0):
        super().__init__(params, {"lr": lr, "most": most})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            gradients = [p.grad for p in group["params"] if p.grad is not None]
            norm = torch.stack([g.norm() for g in gradients]).norm()
            scale = torch.clamp(group["most"] / (norm + 1e-6), max=1.0)
            for p in group["params"]:
                p.sub_(group["lr"] * scale * p.grad)


class Positional(Optimizer):
    """Each parameter has a rate of its own, by its place."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for place, p in enumerate(group["params"]):
                p.add_(p.grad, alpha=-group["lr"] * 0.5**place)


class Counting(Optimizer):
    """Counts in a group and in an attribute, and decides by the count."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "k": 0})
        self.total = 0.5

    @torch.no_grad()
    def step(self, closure=None):
        self.total *= 1.25
        for group in self.param_groups:
            group["k"] += 1
            for p in group["params"]:
                if group["k"] % 3 == 0:
                    p.mul_(0.5)
                p.add_(p.grad, alpha=-group["lr"] / group["k"] * self.total)


class Assigning(Optimizer):
    """Assigns to the data of parameters, as old code does, and keeps lists in its state."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None or not p.requires_grad:
                    continue
                state = self.state[p]
                if "last" not in state:
                    state["last"] = [torch.zeros_like(p.data), torch.zeros_like(p.data)]
                first, second = state["last"]
                p.data = p.data - group["lr"] * (p.grad.data + 0.5 * first + 0.25 * second)
                state["last"] = [p.grad.data.clone(), first]


class Decayed(torch.optim.AdamW):
    """Calls the step of a class of PyTorch's."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(0.999)
        return super().step(closure)
