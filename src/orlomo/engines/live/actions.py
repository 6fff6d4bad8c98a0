"""What a membership asks of the loop of a live run, to be carried out in the order in which it comes."""

from __future__ import annotations

from typing import NamedTuple


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
