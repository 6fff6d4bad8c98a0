"""What a live run knows of its workers, wherever they are: it hires them, gives them work, and hears what happens."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from orlomo.methods import Assignment, Report
from orlomo.methods.server import Vectors


class Arrived(NamedTuple):
    """A report, its vectors still in the worker's slot; times in seconds of the monotonic clock."""

    report: Report
    sent: float
    finished: float
    compute_seconds: float


class Lost(NamedTuple):
    """A worker is gone, or of no use any more. It is for the listener to dismiss it."""

    worker: int
    reason: str
    traceback: str = ""  # where its code raised
    refused: bool = False  # its reports were of no use


class Crew(Protocol):
    """The workers of a live run."""

    @property
    def workers(self) -> list[int]:
        """Who is there, or lost and not dismissed yet."""

    @property
    def anyone_ready(self) -> bool:
        """Whether a worker has been ready so far."""

    def hire(self, worker: int, seat: int) -> None:
        """Start a worker; it may be given an assignment at once. OSError or EOFError where none can be started."""

    def room(self, worker: int) -> Vectors:
        """Where to put what is handed to this worker."""

    def assign(self, assignment: Assignment) -> None:
        """Let a worker compute; the vectors are in its room already."""

    def dismiss(self, worker: int) -> None:
        """End a worker; the round it has in hand is not reported."""

    def wait(self, seconds: float) -> list[Arrived | Lost]:
        """What has happened, in the order it happened; nothing, if nothing does for so long."""

    def listing(self) -> list[dict[str, Any]]:
        """A worker a row, for people."""
