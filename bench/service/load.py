"""Clients that ask one thing after the other, each over a connection of its own."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from .pool import Pool

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    sentence: int
    """Its number in the pool."""
    began: float
    """When it was sent, by time.perf_counter."""
    seconds: float
    status: int
    """0: the connection ended without an answer."""
    body: bytes
    retry_after: bool = False


@dataclass
class Load:
    """Clients in threads; what they got is looked at when they are done, so that this costs the server nothing."""

    port: int
    pool: Pool
    clients: int
    seed: int = 0
    path: str = "/embed"
    answers: list[Answer] = field(default_factory=list)
    refused: int = 0
    """Connections that were refused, before anything was sent."""

    def run(self, seconds: float) -> float:
        """Lets the clients ask for so long; returns how long it took till the last of them had its answer."""
        self.start()
        time.sleep(seconds)
        return self.finish()

    def start(self) -> None:
        """Starts the clients."""
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._client, args=(n,), daemon=True) for n in range(self.clients)]
        self._began = time.perf_counter()
        for thread in self._threads:
            thread.start()

    def finish(self) -> float:
        """Lets them end what they are at."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return time.perf_counter() - self._began

    def _client(self, number: int) -> None:
        generator, connection = random.Random(f"{self.seed}.{number}"), None
        while not self._stop.is_set():
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                try:
                    connection.connect()
                except OSError:
                    self.refused += 1
                    connection = None
                    time.sleep(0.01)
                    continue
            answer, goes_on = self._ask(connection, generator.randrange(len(self.pool.bodies)))
            self.answers.append(answer)
            if answer.status == 503:
                time.sleep(0.02)  # Somewhat less patient than it is asked to be.
            if not goes_on:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _ask(self, connection: http.client.HTTPConnection, sentence: int) -> tuple[Answer, bool]:
        began = time.perf_counter()
        try:
            headers = {"Content-Type": "application/json"}
            if self.pool.headers is not None:
                headers = {"Content-Type": "application/octet-stream", **self.pool.headers[sentence]}
            connection.request("POST", self.path, self.pool.bodies[sentence], headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            return Answer(sentence, began, time.perf_counter() - began, 0, b""), False
        seconds = time.perf_counter() - began
        retry = response.getheader("Retry-After") is not None
        goes_on = response.getheader("Connection", "").lower() != "close"
        return Answer(sentence, began, seconds, response.status, body, retry), goes_on

    # -- what came of it

    def statuses(self) -> dict[int, int]:
        """How many answers of each status."""
        counts: dict[int, int] = {}
        for answer in self.answers:
            counts[answer.status] = counts.get(answer.status, 0) + 1
        return counts

    def worst(self) -> float:
        """The largest difference from PyTorch of any answer with an embedding; infinite if one cannot be read."""
        worst = 0.0
        for answer in self.answers:
            if answer.status != 200:
                continue
            try:
                wanted = self.pool.embeddings[answer.sentence]
                if self.pool.headers is not None:  # The embedding is at the end.
                    got = np.frombuffer(answer.body[-wanted.nbytes :], dtype=np.float32)
                else:
                    (row,) = json.loads(answer.body)["embeddings"]
                    got = np.array(row, dtype=np.float32)
                difference = float(np.abs(got - wanted).max())
            except (ValueError, KeyError, TypeError):
                return float("inf")
            worst = max(worst, difference) if difference == difference else float("inf")
        return worst

    def latencies(self) -> list[float]:
        """Seconds of the answers with embeddings, ascending."""
        return sorted(answer.seconds for answer in self.answers if answer.status == 200)


def percentile(ascending: list[float], percent: float) -> float:
    """The value that so many percent are not above."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * percent / 100))] if ascending else float("nan")
