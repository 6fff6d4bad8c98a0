"""Whether a run folder is what its run wrote, by all that can be known without computing anything again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orlomo.clusters.schedule import KINDS, REPORT
from orlomo.errors import OrlomoError, RunFolderError
from orlomo.files import is_there, short
from orlomo.printing import printable
from orlomo.records import checkpoint as checkpoints
from orlomo.records.audit import disagreements
from orlomo.records.folders import CHECKPOINTS, MODEL, ROUNDS_FILE
from orlomo.records.parsing.blocks import UNWRITTEN
from orlomo.records.run import Run
from orlomo.records.seals import Finding, Seals
from orlomo.records.tables import Columns, usable
from orlomo.values import path_of

SHOWN = 3
"""Findings of one kind that are named."""


@dataclass(frozen=True)
class Verification:
    """What `verify` found. `findings`: files that are not what the run wrote, or disagree with one another; `notes`:
    what is not wrong, but not sealed either. `checkpoint`: the events before the one that seals the rest, or None."""

    folder: Path
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    checkpoint: int | None
    events: int
    evaluations: int

    @property
    def whole(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        name = printable(short(self.folder))  # each finding is one line, whatever the folder is called
        if not self.whole:
            return "\n".join(f"{name}: {finding}" for finding in self.findings)
        counts = f"{self.events:,} event{'s' * (self.events != 1)}, {self.evaluations:,} evaluations"
        sealed = (
            "no checkpoint, so that nothing is sealed" if self.checkpoint is None else f"checkpoint {self.checkpoint}"
        )
        return "; ".join([f"{name} is whole: {counts}, {sealed}", *self.notes])

    def to_json(self) -> dict[str, object]:
        """All of it as plain values."""
        findings = [{"file": finding.file, "what": finding.what} for finding in self.findings]
        return {**vars(self), "folder": str(self.folder), "whole": self.whole, "findings": findings}


def verify(folder: Path | str) -> Verification:
    """Check that the files of a run are unchanged, by the digests in its checkpoints, and consistent with one another.

    Nothing is repeated and no code of the run is loaded; `replay` does that. Damage is reported by file and line. This
    does not protect against someone who changes files on purpose, and the digests with them.

    >>> import orlomo
    >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> verify(run.folder).whole
    True
    >>> metrics = run.folder / "metrics.csv"
    >>> _ = metrics.write_text(metrics.read_text().replace("0", "9", 1))
    >>> [str(finding) for finding in verify(run.folder).findings]
    ['metrics.csv is not what the run wrote, first in lines 1 to 2 (sealed by checkpoint 103)']
    """
    path = path_of(folder, "the run's folder").absolute()
    try:
        run = Run(path, warn=lambda text: None)
    except OrlomoError:
        # The config is damaged, and so much so that it cannot be read.
        seals = Seals(path)
        found = seals.find_all() if is_there(path / CHECKPOINTS) else []
        if seals.base is None or not any(finding.file in ("config.toml", "changes.json") for finding in found):
            raise
        return Verification(path, tuple(found), tuple(seals.notes), seals.base.position, 0, 0)
    seals = run.seals
    findings = [*seals.find_all(), *_checkpoints(run)]
    if not checkpoints.positions(path / CHECKPOINTS) and is_there(path / MODEL):
        findings.append(Finding(CHECKPOINTS, f"has no checkpoint, though the run is finished: {MODEL} is there"))
    if seals.base is not None and not seals.base.sealed.there:
        seals.notes.append("only sizes are compared: it is of a version that sealed nothing")
    wrong = {finding.file for finding in findings}
    tables: dict[str, Columns] = {}
    for name in ("rounds", "events", "metrics"):  # the events after the rounds, of which a running run has more by then
        if name == "rounds" and not is_there(path / ROUNDS_FILE):
            continue
        try:
            tables[name] = getattr(run, f"{name[:-1]}_columns")
        except RunFolderError as error:
            if seals.base is None and UNWRITTEN in str(error):  # killed when it opened the file
                seals.notes.append(f"{name}.csv {UNWRITTEN}")
            elif is_there(path / f"{name}.csv") and f"{name}.csv" not in wrong:
                findings.append(Finding(f"{name}.csv", f"cannot be read: {error}"))
    # What is known to be damaged is not compared with the rest.
    good = {name: columns for name, columns in tables.items() if f"{name}.csv" not in wrong}
    findings += _inconsistencies(run, good)
    position = None if seals.base is None else seals.base.position
    counts = [len(next(iter(tables[name].values()))) if name in tables else 0 for name in ("events", "metrics")]
    return Verification(path, tuple(findings), tuple(seals.notes), position, *counts)


def _checkpoints(run: Run) -> Iterator[Finding]:
    folder = run.folder / CHECKPOINTS
    newest = run.seals.base
    for position in checkpoints.positions(folder):
        if newest is not None and position > newest.position:
            continue  # known to be damaged
        try:
            checkpoints.check(folder, position)
        except RunFolderError as error:
            if not run.seals.running or position in checkpoints.positions(folder):  # not removed meanwhile
                yield Finding(
                    f"{CHECKPOINTS}/{position:09d}", f"is damaged: {str(error).rpartition(' is damaged: ')[2]}"
                )


def _inconsistencies(run: Run, tables: dict[str, Columns]) -> Iterator[Finding]:
    """Where the tables do not fit their columns, one another or the checkpoint."""
    for name, columns in tables.items():
        schema = run.schema(name)
        if list(columns) != list(schema):
            yield Finding(f"{name}.csv", f"has other columns than {', '.join(schema)}")
            return
        bad = [] if name == "rounds" else np.flatnonzero(~usable(columns, schema)).tolist()
        for row in bad[:SHOWN]:
            yield Finding(f"{name}.csv", f"has a row without its numbers, line {row + 2}")
        if bad:
            return
    if "events" in tables:
        yield from _events(run, tables["events"])
    if "metrics" in tables:
        yield from _metrics(run, tables)
    if "rounds" in tables and "events" in tables:
        for number, text in enumerate(disagreements(tables["rounds"], tables["events"])):
            if number < SHOWN:
                yield Finding(ROUNDS_FILE, f"does not fit events.csv: {text}")


def _events(run: Run, events: Columns) -> Iterator[Finding]:
    base = run.seals.base
    reports = events["kind"] == KINDS[REPORT]
    if base is not None:
        count, known = int(reports[: base.position].sum()), base.values.get("reports")
        if len(reports) < base.position:
            yield Finding("events.csv", f"has {len(reports):,} events, the checkpoint {base.position:,}")
        elif count != known:
            yield Finding(
                "events.csv", f"has {count:,} reports before checkpoint {base.position}, which counts {known}"
            )
    yield from _falling("events.csv", "iteration", events["iteration"])


def _metrics(run: Run, tables: dict[str, Columns]) -> Iterator[Finding]:
    metrics, base = tables["metrics"], run.seals.base
    for column in ("iteration", "reports", "samples"):
        yield from _falling("metrics.csv", column, metrics[column])
    if not len(metrics["reports"]):
        return
    last = int(metrics["reports"][-1])
    if "events" in tables and not run.seals.running:
        there = int((tables["events"]["kind"] == KINDS[REPORT]).sum())
        if last > there:
            yield Finding("metrics.csv", f"counts {last:,} reports, events.csv has {there:,}")
    if base is not None and base.values.get("reports") == last and run.seals.done:
        same = metrics["params_checksum"][-1] == base.values.get("params_checksum")
        if not same:
            yield Finding("metrics.csv", f"ends with other parameters than checkpoint {base.position} has")


def _falling(file: str, name: str, values: np.ndarray) -> Iterator[Finding]:
    for row in np.flatnonzero(np.diff(values) < 0)[:1]:
        yield Finding(file, f"has a {name} that is less than the one before it, line {row + 3}")
