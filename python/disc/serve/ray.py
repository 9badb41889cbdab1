"""Compiled models on Ray: deployments of Ray Serve, and batch inference with Ray Data.

>>> app = disc.serve.ray.deployment("libminilm.so", batching=disc.serve.Padded(mask="attention_mask")).bind()
>>> handle = ray.serve.run(app)
>>> handle.remote(input_ids=ids, attention_mask=mask).result()

Scaling, routing, retries and dashboards are Ray's: all options of ``ray.serve.deployment`` pass through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentTypeError, ArgumentValueError, DeadlineError
from .joined_calls import Answer, Call, JoinedCalls
from .policies import Policy
from .ray_data import FileResult, FilesReport, map_batches, map_files
from .served_model import PortableSource, ServedModel, is_compiled, portable

if TYPE_CHECKING:
    from ray.serve import Deployment

    from .served_model import Source

__all__ = ["FileResult", "FilesReport", "deployment", "map_batches", "map_files"]


def deployment(
    source: Source,
    *,
    batching: Policy | None = None,
    deadline_s: float | None = None,
    concurrent_calls: int = 1,
    probe: Mapping[str, Any] | None = None,
    trust_files: bool = False,
    **options: Any,
) -> Deployment:
    """A deployment of Ray Serve whose replicas call a compiled model.

    >>> app = deployment("libminilm.so").options(num_replicas=4, ray_actor_options={"num_cpus": 2}).bind()

    A request is a call of the model: ``handle.remote(*args, **kwargs)`` returns and raises what ``model(*args,
    **kwargs)`` does. ``handle.within.remote(seconds, *args, **kwargs)`` is a request with a deadline of its own.
    Requests over HTTP are those of the Open Inference Protocol (KServe v2), as JSON.

    ``user_config={"weights": "new.safetensors"}`` swaps the weights of a library in the running replicas.

    Args:
        source: the path of a library or of a saved model, such a model itself, or a function of the number of threads
            that returns one, which each replica calls. Replicas on one node that load the same library share the memory
            of its weights. A file must exist on each node.
        batching: how requests that arrive together become one call of the model: :class:`disc.serve.Stacked`,
            :class:`disc.serve.Padded` or :class:`disc.serve.Ragged`; None: each request is a call.
        deadline_s: seconds that a request may take in the replica, waiting included; None: no limit.
        concurrent_calls: calls of the model at one time; each uses ``num_cpus / concurrent_calls`` threads.
        probe: keyword arguments of a call that each health check makes; the replica is unhealthy if it fails.
        trust_files: as for :func:`disc.load`.
        **options: those of ``ray.serve.deployment``, such as ``num_replicas`` and ``autoscaling_config``.

    Raises:
        ArgumentTypeError, ArgumentValueError: an argument is wrong. Of Ray's own options Ray reports errors itself.
        ProgramError: a model that cannot be saved, and so cannot be sent to replicas.
        ImportError: Ray Serve is not installed.
    """
    serve = _ray_serve()
    if batching is not None and not isinstance(batching, Policy):
        raise ArgumentTypeError(
            f"batching: expected None, disc.serve.Stacked, Padded or Ragged, got {type(batching).__name__}"
        )
    _check_seconds("deadline_s", deadline_s)
    if isinstance(concurrent_calls, bool) or not isinstance(concurrent_calls, int) or concurrent_calls < 1:
        raise ArgumentValueError(f"concurrent_calls: expected a number from 1 on, got {concurrent_calls!r}")
    held = portable(source, trust_files=trust_files)
    if batching is not None and is_compiled(source):
        # A policy that does not fit is an error here, and not only in the replicas.
        JoinedCalls(ServedModel(source), batching)
    options.setdefault("name", held.name)
    if batching is not None:
        # Ray's default of 5 would keep batches small.
        options.setdefault("max_ongoing_requests", 2 * batching.requests * concurrent_calls)

    class Replica(_Replica):
        def __init__(self) -> None:
            super().__init__(held, batching, deadline_s, concurrent_calls, probe)

    return serve.deployment(**options)(Replica)  # type: ignore[no-any-return]


class _Replica:
    """A model in a process of Ray Serve."""

    def __init__(
        self,
        source: PortableSource,
        batching: Policy | None,
        deadline_s: float | None,
        concurrent_calls: int,
        probe: Mapping[str, Any] | None,
    ) -> None:
        threads = max(1, _assigned_cpus() // concurrent_calls)
        self._model = source.open(threads)
        self._deadline_s = deadline_s
        self._probe = probe
        # Calls leave the event loop free, for health checks and for the requests of the next batch.
        self._pool = ThreadPoolExecutor(concurrent_calls, "disc-call")
        self._gathered: Callable[[Call], Any] | None = None
        if batching is not None:
            self._gathered = self._gathering(batching, concurrent_calls)

    async def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Answers a request: arguments of the model, or a request over HTTP."""
        if len(args) == 1 and not kwargs and type(args[0]).__module__ == "starlette.requests":
            from .open_inference import answer

            return await answer(args[0], self._model.interface, self._model.array, self._flat_answer)
        return await self._answer(Call(args, kwargs), self._deadline_s)

    async def within(self, seconds: float, /, *args: Any, **kwargs: Any) -> Any:
        """Answers a request within this time, or raises DeadlineError."""
        _check_seconds("seconds", seconds)
        return await self._answer(Call(args, kwargs), seconds)

    def reconfigure(self, config: Any) -> None:
        """Takes the deployment's ``user_config``; Ray calls it at the start and when the configuration changes."""
        if config is None:
            return
        if not isinstance(config, Mapping) or set(config) - {"weights"}:
            raise ArgumentValueError(f"user_config: expected {{'weights': PATH}}, got {config!r}")
        if config.get("weights") is not None:
            self._model.swap_weights(config["weights"])

    async def check_health(self) -> None:
        """Calls the model with the probe; Ray replaces the replica if this fails."""
        if self._probe is not None:
            await self._in_pool(self._model.call, (), self._probe)

    async def _answer(self, call: Call, seconds: float | None) -> Any:
        try:
            return await asyncio.wait_for(self._called(call), seconds)
        except asyncio.TimeoutError:
            raise DeadlineError(
                f"the request was not answered within {seconds} s in the replica; add replicas, limit "
                "max_ongoing_requests, or allow more time",
                seconds=seconds,
            ) from None

    async def _called(self, call: Call) -> Any:
        if self._gathered is None:
            return await self._in_pool(self._model.call, call.args, call.kwargs)
        answer: Answer = await self._gathered(call)
        return answer.get()

    def _gathering(self, batching: Policy, concurrent_calls: int) -> Callable[[Call], Any]:
        """A function that waits for other requests and answers them together; the queue is Ray's."""
        from ray import serve

        joined = JoinedCalls(self._model, batching)

        @serve.batch(
            max_batch_size=batching.requests,
            batch_wait_timeout_s=batching.wait_s,
            max_concurrent_batches=concurrent_calls,
        )
        async def answer_together(calls: list[Call]) -> list[Answer]:
            return await self._in_pool(joined, calls)  # type: ignore[no-any-return]

        return answer_together  # type: ignore[no-any-return]

    async def _in_pool(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    async def _flat_answer(self, call: Call) -> Sequence[Any]:
        return self._model.leaves(await self._answer(call, self._deadline_s))


def _assigned_cpus() -> int:
    import ray

    return int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))


def _check_seconds(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
        raise ArgumentValueError(f"{name}: expected seconds, more than 0, got {value!r}")


def _ray_serve() -> Any:
    try:
        from ray import serve
    except ImportError as error:
        raise ImportError(
            f'disc.serve.ray needs Ray Serve ({error}); run: pip install "disc-compiler[ray]"', name=error.name
        ) from error
    return serve
