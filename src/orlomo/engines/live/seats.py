"""Who sits where: a seat is a place for a worker (its device, its pace); when its worker is lost, another takes it.

A new worker has a new id, always: ids are how the record tells two workers apart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

LOSSES_IN_A_ROW = 10
"""So many workers lost in a seat, none of which reported anything: the seat stays empty."""

LONGEST_WAIT_SECONDS = 30.0


@dataclass
class Seat:
    """A place for a worker; empty until `due` once its worker is lost."""

    number: int
    worker: int | None = None
    losses: int = 0  # in a row, without a report of this seat between
    due: float = 0.0
    cause: Any = None  # of the newest of them

    def vacate(self, cause: Any = None) -> bool:
        """The worker is lost; whether another may follow. The first does at once, the next ones after some wait."""
        self.worker, self.cause = None, cause
        wait = 0.1 * 2**self.losses if self.losses else 0.0
        self.losses += 1
        self.due = time.monotonic() + min(LONGEST_WAIT_SECONDS, wait)
        return self.losses < LOSSES_IN_A_ROW


@dataclass
class Seats:
    """All seats of a run, and the ids given out so far."""

    seats: list[Seat] = field(default_factory=list)
    next_worker: int = 0

    def __len__(self) -> int:
        return len(self.seats)

    def of(self, worker: int) -> Seat:
        """Where this worker sits."""
        return next(seat for seat in self.seats if seat.worker == worker)

    def add(self) -> Seat:
        """One more seat, with the lowest number that is free."""
        taken = {seat.number for seat in self.seats}
        seat = Seat(next(number for number in range(len(taken) + 1) if number not in taken))
        self.seats.append(seat)
        return seat

    def remove(self, seat: Seat) -> None:
        """One seat less."""
        self.seats.remove(seat)

    def take(self, seat: Seat) -> int:
        """A new worker for this seat; its id."""
        seat.worker = self.next_worker
        self.next_worker += 1
        return seat.worker

    def due(self) -> list[Seat]:
        """Empty seats whose wait is over."""
        now = time.monotonic()
        return [seat for seat in self.seats if seat.worker is None and seat.due <= now]

    def seconds_until_due(self) -> float:
        """Until the next empty seat may be taken."""
        return min((seat.due - time.monotonic() for seat in self.seats if seat.worker is None), default=float("inf"))

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        taken = [[seat.number, seat.worker] for seat in self.seats]
        return {"seats": taken, "next_worker": self.next_worker}

    def reported(self, worker: int) -> None:
        """All is well in this worker's seat."""
        seat = self.of(worker)
        seat.losses, seat.cause = 0, None

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Seats:
        """From a checkpoint."""
        return cls([Seat(*entry) for entry in table["seats"]], table["next_worker"])
