"""Which worker may use which samples: every sample of every epoch is folded in exactly once, whichever worker dies.

All samples of a run are one line of positions, epoch after epoch. Each position is in one of four states:

    not handed out -> leased to one worker -> acknowledged, when a report that used it was folded in
                          |        ^
                          v        |
                      returned, by a worker that died, left, used only a part, or holds many at the end

Nothing is acknowledged but by a folded report, so a position is never lost; and only the worker that holds its lease
can acknowledge it, so it never counts twice.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

from orlomo.errors import require
from orlomo.loop.messages import Lease


class Blocks:
    """The leases of a run of `samples` samples: `size` in an epoch, at most `block` in a lease.

    The last block of an epoch is shorter if need be, so that no block is of two epochs; so is the last of the run.
    `workers`: how many are expected; more may come.

    >>> blocks = Blocks(size=10, block=4, samples=20)
    >>> blocks.lease(worker=0, ahead=1)
    (Lease(epoch=0, first=0, stop=4), Lease(epoch=0, first=4, stop=8))
    >>> blocks.fold(0, Lease(0, 0, 4))
    >>> blocks.give_back(0)  # it died; the block that it still held goes out first
    >>> blocks.lease(worker=1), blocks.samples_done
    ((Lease(epoch=0, first=4, stop=8),), 4)
    """

    def __init__(self, size: int, block: int, samples: int, workers: int = 1):
        require(size > 0, f"an epoch must have at least one sample, not {size}")
        require(block > 0, f"a block must have at least one sample, not {block}")
        require(samples > 0, f"a run must use at least one sample, not {samples}")
        self.size, self.block, self.samples = size, block, samples
        self._workers = workers
        self._next = 0  # the position, counted over all epochs, of the first sample not handed out yet
        self._returned: list[Lease] = []  # in order of their positions
        self._held: dict[int, list[Lease]] = {}  # in the order in which the worker uses them

    def lease(self, worker: int, ahead: int = 0) -> tuple[Lease, ...]:
        """All leases of this worker, topped up to one for its next round and `ahead` more, in the order of their use.

        Fewer, or none, where no more are left; a block that another worker holds may still come back. Between two
        rounds of the worker; towards the end of the run it may lose what it holds ahead.
        """
        held = self._held.setdefault(worker, [])
        workers = max(self._workers, len(self._held))
        # At the end of the run a slow worker must not hold blocks for many rounds while others have nothing to do: when
        # there is not one for each worker any more, what it holds ahead goes back to all.
        if workers > 1 and self.available < workers:
            self._return(held[1:])
            del held[1:]
        while len(held) < 1 + ahead:
            # Before that, nothing more is leased ahead unless there is enough for all workers to do so.
            if held and workers > 1 and self.available < workers * (1 + ahead):
                break
            lease = self._take()
            if lease is None:
                break
            held.append(lease)
        return tuple(held)

    def fold(self, worker: int, used: Lease | None) -> None:
        """Acknowledge that a report on this worker's first lease was folded in; `used`: the part that it used.

        The rest of that lease is returned. None: the report used no sample.
        """
        held = self._held.get(worker, [])
        require(bool(held), f"worker {worker} reports on {_text(used)} and holds no lease")
        lease = held[0]
        if used is None:
            used = lease._replace(stop=lease.first)
        fits = used[:2] == lease[:2] and lease.first <= used.stop <= lease.stop
        require(fits, f"worker {worker} reports on {_text(used)} and holds {_text(lease)}: not the beginning of it")
        del held[0]
        if used.stop < lease.stop:
            self._return([lease._replace(first=used.stop)])

    def give_back(self, worker: int) -> None:
        """Return all leases of a worker that died, left, or whose report was refused."""
        self._return(self._held.pop(worker, []))

    def held(self, worker: int) -> tuple[Lease, ...]:
        """The leases of this worker, in the order of their use."""
        return tuple(self._held.get(worker, ()))

    @property
    def available(self) -> int:
        """How many blocks can be leased now: returned ones, and those not handed out yet."""
        # From the next position to the end of its epoch, then whole epochs, then the part of the last one.
        end = min((self._next // self.size + 1) * self.size, self.samples)
        epochs, rest = divmod(self.samples - end, self.size)
        fresh = self._count(end - self._next) + epochs * self._count(self.size) + self._count(rest)
        return len(self._returned) + fresh

    @property
    def complete(self) -> bool:
        """Whether every sample of the run is acknowledged."""
        return self.samples_done == self.samples

    @property
    def epoch(self) -> int:
        """The epoch of the newest block that was handed out."""
        return max(0, self._next - 1) // self.size

    @property
    def samples_done(self) -> int:
        """How many samples are acknowledged."""
        return self._next - sum(lease.samples for lease in self._open)

    @property
    def _open(self) -> list[Lease]:
        """All that was handed out and is not acknowledged, in order."""
        return sorted([*self._returned, *(lease for held in self._held.values() for lease in held)])

    def to_json(self) -> dict[str, Any]:
        """The state as plain values; leases count as returned, because a resumed run has other workers."""
        open_leases = [list(lease) for lease in self._open]
        return {
            "size": self.size,
            "block": self.block,
            "samples": self.samples,
            "next": self._next,
            "returned": open_leases,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], workers: int = 1) -> Blocks:
        """The state that `to_json` gave."""
        blocks = cls(values["size"], values["block"], values["samples"], workers)
        blocks._next = values["next"]
        blocks._returned = sorted(Lease(*lease) for lease in values["returned"])
        return blocks

    def _return(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            bisect.insort(self._returned, lease)

    def _take(self) -> Lease | None:
        """The block to hand out next: returned ones first, then new ones."""
        if self._returned:
            return self._returned.pop(0)
        if self._next >= self.samples:
            return None
        epoch, first = divmod(self._next, self.size)
        stop = min(first + self.block, self.size, self.samples - epoch * self.size)
        self._next += stop - first
        return Lease(epoch, first, stop)

    def _count(self, samples: int) -> int:
        """How many blocks so many samples of one epoch are."""
        return -(-samples // self.block)


def _text(lease: Lease | None) -> str:
    if lease is None:
        return "no samples"
    return f"samples {lease.first} to {lease.stop} of epoch {lease.epoch}"
