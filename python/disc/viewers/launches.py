"""Which call made a launch, and at which place of the host flow."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from ..profile import Call, Launch, Profile


def owners(profile: Profile) -> list[Call | None]:
    """The call that made each launch; None where calls overlap, so that it is unknown."""
    found: list[Call | None] = [None] * len(profile.launches)
    waiting = sorted(profile.calls, key=lambda call: -call.begin_ns)
    running: list[Call] = []
    for n, launch in sorted(enumerate(profile.launches), key=lambda entry: entry[1].begin_ns):
        while waiting and waiting[-1].begin_ns <= launch.begin_ns:
            running.append(waiting.pop())
        running = [call for call in running if launch.begin_ns <= call.end_ns]
        if len(running) == 1:
            found[n] = running[0]
    return found


def by_call(profile: Profile) -> list[tuple[Call, list[Launch]]]:
    """The launches of each call, in the order in which they began, without those whose call is unknown."""
    found: dict[int, list[Launch]] = {}
    for launch, owner in zip(profile.launches, owners(profile), strict=True):
        found.setdefault(id(owner), []).append(launch)
    return [(call, sorted(found.get(id(call), []), key=lambda launch: launch.begin_ns)) for call in profile.calls]


class Walk:
    """The place in the host flow of a call whose launches are told in order."""

    def __init__(self, places: Mapping[str, Sequence[int]]) -> None:
        """``places``: where each kernel is launched, ascending; larger is later in the program."""
        self._places = places
        self._at = -1

    def next(self, kernel: str) -> int | None:
        """The place of the next launch; None for a kernel that is launched nowhere.

        The same kernel may be launched at several places: it is the next one, or the first one of the next iteration
        of a loop.
        """
        places = self._places.get(kernel)
        if not places:
            return None
        found = bisect.bisect_right(places, self._at)
        self._at = places[found] if found < len(places) else places[0]
        return self._at
