"""What happens to the workers of a live run. A membership answers each event with actions.

`busy`: the workers that hold an assignment and have not reported it yet; only the loop knows that.
"""

from __future__ import annotations

from typing import NamedTuple


class Begin(NamedTuple):
    """A new run, with so many workers; the server counts all of them from the start."""

    workers: int


class Resume(NamedTuple):
    """A run continues from a checkpoint: none of its workers is running. `ended`: what they worked on is not there."""

    busy: frozenset[int]
    ended: bool = False


class Ready(NamedTuple):
    """A worker that was started can take part now."""

    worker: int


class NotStarted(NamedTuple):
    """A worker could not be started."""

    worker: int
    reason: str


class NoRoom(NamedTuple):
    """These workers have nowhere to run yet, or are late, and should not be waited for; `Ready` follows."""

    workers: tuple[int, ...]
    busy: frozenset[int] = frozenset()


class Reported(NamedTuple):
    """A report of this worker has been folded in."""

    worker: int


class Refused(NamedTuple):
    """A report of this worker was of no use: its numbers were not finite, or it is not what the method reports."""

    worker: int
    reason: str
    finite: bool = False  # its numbers were


class Lost(NamedTuple):
    """A worker is gone, or of no use any more. It is still to be stopped."""

    worker: int
    reason: str
    traceback: str = ""  # where its code raised


class Left(NamedTuple):
    """A worker has left the run by itself. It is still to be stopped."""

    worker: int


class Idle(NamedTuple):
    """There is nothing to do for these workers, and nobody should wait for them; `Ready` follows when there is."""

    workers: tuple[int, ...]
    busy: frozenset[int] = frozenset()


class Add(NamedTuple):
    """One more worker is wanted."""


class Remove(NamedTuple):
    """This worker is to leave."""

    worker: int
    is_busy: bool


class Resize(NamedTuple):
    """So many workers are wanted."""

    workers: int
    busy: frozenset[int]


class Tick(NamedTuple):
    """Time has passed."""


OfOne = Ready | NotStarted | Reported | Refused | Lost | Left
"""What happens to one worker."""

Event = OfOne | Begin | Resume | NoRoom | Idle | Add | Remove | Resize | Tick
