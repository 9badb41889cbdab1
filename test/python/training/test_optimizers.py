"""Optimizers of PyTorch and of users as compiled programs, beside their own steps."""

import copy

import pytest
import torch
from optimizer_steps import SHAPES, CompiledStep, assert_close, assert_same_states, compare, named, parameters
from torch import optim
from user_optimizers import Clipped, Counting, Decayed, Lion, OldAdam, Positional

from disc import errors
from disc.frontend.optimizers import trace_optimizer

CASES = {
    "sgd": (optim.SGD, {"lr": 0.1}),
    "sgd-nesterov": (
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True},
    ),
    "sgd-dampening": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "adam": (optim.Adam, {"weight_decay": 0.1}),
    "adamw": (optim.AdamW, {"amsgrad": True, "maximize": True}),
    "adagrad": (optim.Adagrad, {"lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    "rmsprop": (optim.RMSprop, {"centered": True, "momentum": 0.9}),
    "adadelta": (optim.Adadelta, {"weight_decay": 0.1}),
    "adamax": (optim.Adamax, {}),
    "nadam": (optim.NAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "radam": (optim.RAdam, {"betas": (0.9, 0.9)}),
    "asgd": (optim.ASGD, {"t0": 5.0}),
    "rprop": (optim.Rprop, {}),
    "adafactor": (optim.Adafactor, {"weight_decay": 0.1}),
    "lion": (Lion, {"weight_decay": 0.1}),
    "old-adam": (OldAdam, {"weight_decay": 0.1}),
    "clipped": (Clipped, {}),
    "positional": (Positional, {}),
    "counting": (Counting, {}),
    "decayed": (Decayed, {}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
def test_twenty_steps_are_those_of_pytorch(name, dtype):
    kind, options = CASES[name]
    compare(lambda tensors: kind(tensors, **options), dtype=dtype)


def test_muon():
    compare(lambda tensors: optim.Muon(tensors, lr=0.1), shapes=((4, 3), (3, 4)), steps=1)
