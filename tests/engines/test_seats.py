"""Who sits where, and how long a seat stays empty after losses."""

from __future__ import annotations

import itertools
import time

from orlomo.engines.live.seats import LONGEST_WAIT_SECONDS, LOSSES_IN_A_ROW, Seats


def test_a_seat_in_which_every_worker_dies_is_given_up() -> None:
    seats = Seats()
    seat = seats.add()
    waits = []
    for _ in range(LOSSES_IN_A_ROW - 1):
        seats.take(seat)
        begin = time.monotonic()
        assert seat.vacate()
        waits.append(max(0.0, seat.due - begin))
    assert waits[0] < 0.2
    assert all(later > 1.5 * earlier for earlier, later in itertools.pairwise(waits[1:9]))
    assert max(waits) <= LONGEST_WAIT_SECONDS + 0.2
    seats.take(seat)
    assert not seat.vacate()
    assert seats.next_worker == LOSSES_IN_A_ROW
