"""What happens to the workers of a live run, and what is to be done about it: the words between loop and membership."""

from __future__ import annotations

from typing import NamedTuple

# Events. `busy`: who holds an assignment that it has not reported yet; only the loop knows that.


class Begin(NamedTuple):
    """A new run, with so many workers; the server counts all of them from the start."""

    workers: int


class Resume(NamedTuple):
    """A run continues from a checkpoint: none of its workers is running."""

    busy: frozenset[int]


class Ready(NamedTuple):
    """A worker that was started can take part now."""

    worker: int


class NotStarted(NamedTuple):
    """A worker could not be started."""

    worker: int
    reason: str


class NoRoom(NamedTuple):
    """These workers have no place to work yet, and should not be waited for; `Ready` follows when they have."""

    workers: tuple[int, ...]
    busy: frozenset[int] = frozenset()


class Reported(NamedTuple):
    """A report of this worker has been folded in."""

    worker: int


class Refused(NamedTuple):
    """A report of this worker was of no use."""

    worker: int
    reason: str


class Lost(NamedTuple):
    """A worker is gone, or of no use any more. It is still to be stopped."""

    worker: int
    reason: str
    traceback: str = ""  # where its code raised


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


Event = (
    Begin | Resume | Ready | NotStarted | NoRoom | Reported | Refused | Lost | Add | Remove | Resize | Tick
)  # fmt: skip

# Actions, to be carried out in the order in which they come.


class Start(NamedTuple):
    """Start a worker. Answer at once with `Ready` if it can take part, with `NotStarted` if it cannot be started."""

    worker: int
    rank: int


class Join(NamedTuple):
    """From now on the server counts this worker; it gets its first assignment, or does so at the next barrier."""

    worker: int


class Leave(NamedTuple):
    """The server does not count this worker any more; an assignment it holds will not be reported."""

    worker: int
    kind: str  # "leave" or "crash", for the record


class Stop(NamedTuple):
    """Stop a worker that was started."""

    worker: int


class Redo(NamedTuple):
    """Send the assignment that this worker holds once more."""

    worker: int


class Say(NamedTuple):
    """Warn the user; the details are for the log."""

    text: str
    details: str = ""


class Deny(NamedTuple):
    """What was asked for is not done, and this is why."""

    reason: str


class End(NamedTuple):
    """The run cannot continue. Save it, then raise."""

    reason: str
    diverged: bool = False


Action = Start | Join | Leave | Stop | Redo | Say | Deny | End
