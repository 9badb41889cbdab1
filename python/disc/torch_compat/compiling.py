"""Dynamo and AOTAutograd: what the ``torch.compile`` backend and errors of tracing use."""

from __future__ import annotations

# Registers the backend, and returns whether that has been done.
from torch._dynamo.backends.common import aot_autograd as aot_autograd
from torch._dynamo.backends.registry import list_backends as list_backends
from torch._dynamo.backends.registry import register_backend as register_backend

# Dynamo restarts its analysis by this error, which must pass through the backend.
from torch._dynamo.exc import RestartAnalysis as RestartAnalysis

# Dynamo's errors are those of the model.
from torch._dynamo.exc import TorchDynamoException as TorchDynamoException

# Where a symbol comes from: a number given as an argument, or a size of an input.
from torch._dynamo.source import ConstantSource as ConstantSource
from torch._dynamo.source import TensorPropertySource as TensorPropertySource

# Whether a result is an input, a view of one, or a new tensor.
from torch._functorch._aot_autograd.schemas import OutputType as OutputType

# A function that takes its arguments as a list, which it may empty.
from torch._functorch.aot_autograd import make_boxed_func as make_boxed_func

# What AOTAutograd knows of the graph that is being compiled.
from torch._guards import TracingContext as TracingContext

# fallback_random: a draw is an effect even if its value is not used. Its patch() is for one thread.
from torch._inductor import config as inductor_config

# Draws whose state is saved for the backward pass.
from torch._prims.rng_prims import run_and_save_rng_state as run_and_save_rng_state
from torch._prims.rng_prims import run_with_rng_state as run_with_rng_state

__all__ = [
    "ConstantSource",
    "OutputType",
    "RestartAnalysis",
    "TensorPropertySource",
    "TorchDynamoException",
    "TracingContext",
    "aot_autograd",
    "inductor_config",
    "list_backends",
    "make_boxed_func",
    "register_backend",
    "run_and_save_rng_state",
    "run_with_rng_state",
]
