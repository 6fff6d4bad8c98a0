"""Whether a run of a user's own loop used every sample of every epoch exactly once, by what its folder says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orlomo.clusters.schedule import KINDS, REPORT
from orlomo.errors import RunFolderError
from orlomo.files import is_there, short
from orlomo.records import checkpoint as checkpoints
from orlomo.records.folders import ROUNDS_FILE
from orlomo.records.run import Run
from orlomo.records.tables import Columns, Row, only

MOST_EPOCHS = 10**6
"""A run has fewer."""

SHOWN = 5
"""Ranges of samples that a sentence names before it says how many more there are."""


@dataclass(frozen=True)
class Range:
    """Samples at the positions [first, stop) in the order of an epoch, and the workers whose reports used them."""

    epoch: int
    first: int
    stop: int
    workers: tuple[int, ...] = ()

    @property
    def samples(self) -> int:
        """How many there are."""
        return self.stop - self.first

    def __str__(self) -> str:
        span = f"{self.first}" if self.samples == 1 else f"{self.first} to {self.stop - 1}"
        by = f" (workers {', '.join(map(str, self.workers))})" if self.workers else ""
        return f"{span} of epoch {self.epoch}{by}"


@dataclass(frozen=True)
class EpochCount:
    """What was used of one epoch: samples used at least once, and those used more than once."""

    epoch: int
    samples: int
    used: int
    double: int
    reports: int
    workers: int


@dataclass(frozen=True)
class WorkerCount:
    """What one worker contributed."""

    worker: int
    reports: int
    steps: int
    batches: int
    samples: int


@dataclass(frozen=True)
class Audit:
    """The counts of a run, and what is wrong with them. `text` says it in one sentence; `ok`: nothing is wrong.

    `missing`: samples that no report used. In a run that is not finished they are not wrong: they are not done yet.
    `double`: samples that more than one report used. `outside`: samples that the run does not have.
    `disagree`: rows of rounds.csv that are not of a report in events.csv, and files that are not what the run wrote.
    """

    size: int
    samples: int
    finished: bool
    stopped: str | None
    epochs: tuple[EpochCount, ...]
    workers: tuple[WorkerCount, ...]
    missing: tuple[Range, ...]
    double: tuple[Range, ...]
    outside: tuple[Range, ...]
    disagree: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether each sample was used exactly once; in a run that is not finished, or was stopped, at most once."""
        due = self.missing if self.finished and not self.stopped else ()
        return not (due or self.double or self._foreign or self.disagree)

    @property
    def _foreign(self) -> tuple[Range, ...]:
        # A run that continues for more epochs says so in its next checkpoint.
        return self.outside if self.finished else ()

    @property
    def used(self) -> int:
        """How many samples were used, each counted once per epoch."""
        return sum(one.used for one in self.epochs)

    @property
    def text(self) -> str:
        """What was found, in one sentence."""
        epochs = self.samples / self.size
        whole = f"the {self.samples:,} samples ({epochs:g} epoch{'s' * (epochs != 1)} of {self.size:,})"
        wrong = [
            *_named(self.double, "used more than once"),
            *_named(self._foreign, "not of this run"),
            *self.disagree[:SHOWN],
        ]
        if self.finished and not self.stopped:
            wrong = [*_named(self.missing, "missing"), *wrong]
            return f"of {whole}: {'; '.join(wrong)}" if wrong else f"each of {whole} was used exactly once"
        why = f"stopped: {self.stopped}" if self.stopped else "not finished"
        left = _named(self.missing, "not used yet")
        once = "; ".join(wrong) if wrong else "none of them twice"
        return f"{self.used:,} of {whole} were used, {once}; the run is {why}" + "".join(f"; {text}" for text in left)

    def to_json(self) -> Row:
        """All of it as plain values."""
        return {"ok": self.ok, "text": self.text, "used": self.used, **dataclasses.asdict(self)}


def audit(run: Run | Path | str) -> Audit:
    """Check, from rounds.csv and the checkpoint, that every sample of every epoch was used exactly once.

    For runs of `orlomo run` and `orlomo.launch` in which the workers share the samples of one data loader.

    >>> orlomo.audit("runs/a").text  # doctest: +SKIP
    'each of the 15,000 samples (10 epochs of 1,500) was used exactly once'
    """
    run = run if isinstance(run, Run) else Run(run)
    if not is_there(run.folder / ROUNDS_FILE):
        raise RunFolderError(
            f"{short(run.folder)} has no {ROUNDS_FILE}: audit is for runs of `orlomo run` and orlomo.launch with "
            "shared sampling"
        )
    lost = [str(finding) for finding in run.findings(ROUNDS_FILE, "events.csv")]
    # Without the tensors, which may be large.
    newest = checkpoints.newest_values(run.folder / "checkpoints")
    values = newest or (run.checkpoint.values if run.checkpoint else {})
    if not values:
        raise RunFolderError(f"{short(run.folder)} has no checkpoint yet, which says how many samples an epoch has")
    if values.get("blocks") is None:
        raise RunFolderError(
            f"{short(run.folder)} has samples that each worker chose itself: audit is for runs with shared sampling"
        )
    size, samples = values["blocks"]["size"], values["blocks"]["samples"]
    if not (_is_whole(size) and _is_whole(samples) and size > 0 and 0 <= samples <= MOST_EPOCHS * size):
        raise RunFolderError(f"the newest checkpoint of {short(run.folder)} is damaged: {samples} samples of {size}")
    # A change after the end means that the run continues.
    finished = bool(values.get("finished")) and len(values.get("changes", ())) == len(run.changes)
    stopped = values.get("stopped") if finished else None
    rounds = run.round_columns  # read before the events, of which a run that is running has more by then
    used = only(rounds, (rounds["epoch"] >= 0) & (rounds["first"] >= 0) & (rounds["stop"] > rounds["first"]))
    order = np.argsort(used["epoch"], kind="stable")
    used = {name: column[order] for name, column in used.items()}
    counts, missing, double, outside = [], [], [], []
    for epoch in sorted({*range(-(-samples // size)), *used["epoch"].tolist()}):
        planned = max(0, min(size, samples - epoch * size))
        begin, end = np.searchsorted(used["epoch"], [epoch, epoch + 1])
        rows = {name: column[begin:end] for name, column in used.items()}
        pieces = list(_pieces(rows, epoch, planned))
        found = [piece for piece, uses in pieces if uses > 0 and piece.first < planned]
        twice = [_with_workers(piece, rows) for piece, uses in pieces if uses > 1 and piece.first < planned]
        missing += [piece for piece, uses in pieces if uses == 0]
        outside += [_with_workers(piece, rows) for piece, uses in pieces if piece.first >= planned]
        double += twice
        if planned:
            workers = len(np.unique(rows["worker"]))
            counts.append(EpochCount(epoch, planned, _sum(found), _sum(twice), len(rows["epoch"]), workers))
    return Audit(
        size=size,
        samples=samples,
        finished=finished,
        stopped=stopped,
        epochs=tuple(counts),
        workers=tuple(_workers(rounds)),
        missing=tuple(missing),
        double=tuple(double),
        outside=tuple(outside),
        disagree=(*lost, *disagreements(rounds, run.event_columns)),
    )


def _pieces(rows: Columns, epoch: int, end: int) -> Iterator[tuple[Range, int]]:
    """The positions from 0 to `end`, and those that reports used, cut where their number of uses changes."""
    # The number of uses at a position is that of the rows that begin up to it less that of those that stop up to it.
    marks = np.unique(np.concatenate([[0, end], rows["first"], rows["stop"]]).astype(np.int64))
    begun = np.searchsorted(np.sort(rows["first"]), marks, side="right")
    over = np.searchsorted(np.sort(rows["stop"]), marks, side="right")
    uses = (begun - over).tolist()
    positions = marks.tolist()
    begin = 0
    for number in range(1, len(positions)):
        last = number == len(positions) - 1
        inside = positions[number] != end  # what is beyond the end is a piece of its own
        if not last and inside and uses[number] == uses[begin]:
            continue
        if uses[begin] > 0 or positions[begin] < end:  # not the gaps beyond the end
            yield Range(epoch, positions[begin], positions[number]), uses[begin]
        begin = number


def _with_workers(piece: Range, rows: Columns) -> Range:
    touching = (rows["first"] < piece.stop) & (rows["stop"] > piece.first)
    return dataclasses.replace(piece, workers=tuple(np.unique(rows["worker"][touching]).tolist()))


def _workers(rounds: Columns) -> Iterator[WorkerCount]:
    order = np.argsort(rounds["worker"], kind="stable")
    workers, begins = np.unique(rounds["worker"][order], return_index=True)
    for worker, rows in zip(workers.tolist(), np.split(order, begins[1:]), strict=False):
        own = {name: rounds[name][rows] for name in ("epoch", "first", "stop", "steps", "batches")}
        samples = np.where(own["epoch"] >= 0, own["stop"] - own["first"], 0)
        yield WorkerCount(worker, len(samples), int(own["steps"].sum()), int(own["batches"].sum()), int(samples.sum()))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _sum(ranges: Iterable[Range]) -> int:
    return sum(one.samples for one in ranges)


def disagreements(rounds: Columns, events: Columns) -> Iterator[str]:
    """Rows that are damaged, or not each of another report of that worker in events.csv."""
    damaged = (rounds["epoch"] >= 0) & ((rounds["first"] < 0) | (rounds["stop"] < rounds["first"]))
    for row in np.flatnonzero(damaged).tolist():
        yield f"row {row} of rounds.csv is damaged: it does not say which samples were used"
    reports = np.flatnonzero(events["kind"] == KINDS[REPORT])
    known = np.isin(rounds["event"], reports)
    known[known] = events["worker"][rounds["event"][known]] == rounds["worker"][known]
    for row in np.flatnonzero(~known).tolist():
        event, worker = rounds["event"][row], rounds["worker"][row]
        yield f"row {row} of rounds.csv names event {event}, which is not a report of worker {worker}"
    first_rows = np.unique(rounds["event"], return_index=True)[1]
    for row in np.setdiff1d(np.flatnonzero(known), first_rows).tolist():
        yield f"row {row} of rounds.csv names event {rounds['event'][row]}, as a row before it does"


def _named(ranges: Iterable[Range], what: str) -> list[str]:
    """These ranges in words: how many samples, and which; nothing where there are none."""
    found = list(ranges)
    if not found:
        return []
    more = f" and {len(found) - SHOWN} more ranges" if len(found) > SHOWN else ""
    return [f"{_sum(found):,} {what}: {', '.join(map(str, found[:SHOWN]))}{more}"]
