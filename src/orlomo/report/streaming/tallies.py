"""Counts that sentences and tables about a run need, added up block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orlomo.clusters.schedule import DROP, KINDS, REPORT
from orlomo.report.streaming.workers import Groups, Places, grown


@dataclass(frozen=True)
class Pace:
    """Of each worker that finished a round: its number, its rounds, seconds of computing per round, and how many of its
    reports had their weight cut for their delay."""

    worker: NDArray[np.int64]
    rounds: NDArray[np.int64]
    compute: NDArray[np.float64]
    cut: NDArray[np.int64]


class Tallies:
    """How many events of each kind there are, and by worker its rounds, its computing and its cut weights.

    With K workers present, a weight below 1/K was cut.
    """

    def __init__(self) -> None:
        self.kinds = np.zeros(len(KINDS), dtype=np.int64)
        self._places = Places()
        self._rounds: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._compute: NDArray[np.float64] = np.zeros(0)
        self._cut: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def add(
        self,
        groups: Groups,
        kind: NDArray[np.int64],
        compute: NDArray[np.float64],
        eta: NDArray[np.float64],
        present: NDArray[np.int64],
    ) -> None:
        """More events, not sorted; `groups` are their workers. `present`: how many workers there were at each."""
        order, workers, firsts, _ = groups
        if not len(order):
            return
        self.kinds += np.bincount(kind, minlength=len(KINDS))
        places, count = self._places.of(workers), len(self._places)
        self._rounds, self._cut = grown(self._rounds, count, 0), grown(self._cut, count, 0)
        self._compute = grown(self._compute, count, 0.0)
        kind = kind[order]
        is_round = (kind == REPORT) | (kind == DROP)
        self._rounds[places] += np.add.reduceat(is_round, firsts, dtype=np.int64)
        self._compute[places] += np.add.reduceat(np.where(is_round, compute[order], 0.0), firsts)
        cut = (kind == REPORT) & (eta * present < 1 - 1e-9)[order]
        self._cut[places] += np.add.reduceat(cut, firsts, dtype=np.int64)

    def count(self, kind: str) -> int:
        """Events of this kind."""
        return int(self.kinds[KINDS.index(kind)])

    @property
    def pace(self) -> Pace:
        """The workers that finished a round, in the order of their numbers."""
        workers = self._places.workers
        places = self._places.of_known(workers)
        rounds = self._rounds[places]
        some = rounds > 0
        return Pace(workers[some], rounds[some], self._compute[places][some] / rounds[some], self._cut[places][some])
