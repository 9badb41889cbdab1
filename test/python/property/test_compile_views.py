"""Random functions of views and updates under torch.compile: which result shares memory with which input, and where."""

import os
import random

import pytest
import torch

from compile_programs import agrees, check, random_input, random_program

# DISC_FUZZ_PROGRAMS=2000 tries that many.
COUNT = int(os.environ.get("DISC_FUZZ_PROGRAMS", "24"))


@pytest.mark.parametrize("first", range(0, COUNT, 6))
def test_random_views_and_updates(first):
    for seed in range(first, first + 6):
        numbers = random.Random(seed)
        torch.manual_seed(seed)
        dynamic = numbers.choice([True, None])
        while True:
            text = random_program(numbers)
            scope = {"torch": torch}
            exec(text, scope)
            inputs = random_input(numbers), random_input(numbers)
            # Some programs are errors, and some AOTAutograd gets wrong by itself.
            if agrees(scope["f"], inputs, "aot_eager", dynamic):
                break
        try:
            check(scope["f"], inputs, dynamic=dynamic)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}:\n{text}") from error
