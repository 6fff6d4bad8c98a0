"""Seals: what a checkpoint says the other files of its run were, and where they are something else now.

Each checkpoint holds digests of the rows of the tables that were written before it, and of the files beside them. They
find damage. Who changes a file on purpose can change its seal too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from orlomo.errors import RunFolderError
from orlomo.files import is_file, is_there, read_bytes
from orlomo.records import best as best_model
from orlomo.records import checkpoint as checkpoints
from orlomo.records.best import BEST, NEXT, READABLE
from orlomo.records.changes import CHANGES, read_changes, to_json
from orlomo.records.checkpoint import Checkpoint, Values
from orlomo.records.digests import Mark, first_difference, lines_in, sha256_of
from orlomo.records.folders import CHECKPOINTS, CONFIG, MEASURED, MODEL, ROUNDS_FILE, WORKER_DATA

TABLES = ("events.csv", "metrics.csv", ROUNDS_FILE)


@dataclass(frozen=True)
class Finding:
    """A file of a run folder that is not what it should be, and how."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file} {self.what}"


@dataclass(frozen=True)
class Sealed:
    """What a checkpoint says of the other files: the marks of each table, and the sha256 of files by name."""

    there: bool = False  # runs of earlier versions have none
    tables: dict[str, list[Mark]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def table(self, name: str) -> list[Mark]:
        """The marks of a table; none where it is not sealed."""
        return self.tables.get(name, [])


def sealed_in(values: Values) -> Sealed:
    """The seals in the values of a checkpoint; an error where they are none that a run writes."""
    for name in ("files", "config_sha256"):
        if name not in values:
            raise RunFolderError(f"it has no {name!r}")
    found = values.get("sealed")
    if found is None:
        return Sealed()
    try:
        tables = {str(name): [Mark(*mark) for mark in marks] for name, marks in found["tables"].items()}
        files = {str(name): str(digest) for name, digest in found["files"].items()}
        numbers = [number for marks in tables.values() for mark in marks for number in mark[:2]]
        good = all(type(number) is int and number >= 0 for number in numbers) and all(tables.values())
    except (TypeError, ValueError, KeyError, AttributeError):
        good = False
    if not good:
        raise RunFolderError("its seals are damaged")
    return Sealed(True, tables, files)


@dataclass(frozen=True)
class Base:
    """The checkpoint by whose seals the files are judged, without its tensors."""

    position: int
    values: Values
    sealed: Sealed

    @property
    def by(self) -> str:
        """For the end of a sentence."""
        return f"(sealed by checkpoint {self.position})"


class Seals:
    """Compares the files of a run folder with the seals in its newest checkpoint, each file when it is asked for, once.

    `changes`: how many there are in changes.json. `running`: a process is writing to the run; then only what cannot
    change any more is compared. `base`: in place of the newest checkpoint.
    """

    def __init__(self, folder: Path, changes: int = 0, running: bool = False, base: Base | None = None):
        self.folder, self.running, self._count = folder, running, changes
        if base is not None:
            self._newest = base, []
        self.compare = first_difference
        self.notes: list[str] = []  # what is not sealed yet
        self._known: dict[str, list[Finding]] = {}

    @cached_property
    def _newest(self) -> tuple[Base | None, list[Finding]]:
        damaged: list[Finding] = []
        for position in reversed(checkpoints.positions(self.folder / CHECKPOINTS)):
            try:
                values = checkpoints.read_values(self.folder / CHECKPOINTS, position)
                return Base(position, values, sealed_in(values)), damaged
            except RunFolderError as error:
                damaged.append(Finding(f"checkpoints/{position:09d}.json", f"is damaged: {reason(error)}"))
        return None, damaged

    @property
    def base(self) -> Base | None:
        """The newest checkpoint whose values are whole."""
        return self._newest[0]

    @property
    def damaged(self) -> list[Finding]:
        """The checkpoints that are newer and damaged."""
        return self._newest[1]

    @property
    def done(self) -> bool:
        """Whether the run has come to its end: there is nothing in it behind the last seal."""
        values = {} if self.base is None or self.running else self.base.values
        return bool(values.get("finished")) and len(values.get("changes", ())) == self._count

    def find(self, names: Iterable[str]) -> list[Finding]:
        """What does not fit in these files, and in the checkpoints that should say what they were."""
        names = list(names)
        for name in names:
            if name not in self._known:
                self._known[name] = self._found(name)
        return [*self.damaged, *(finding for name in names for finding in self._known[name])]

    def choose(self) -> tuple[Checkpoint | None, list[str], bool]:
        """The newest checkpoint that is whole and that the other files fit, and why newer ones are passed over.

        Where they fit none, the newest that is whole, and False.
        """
        folder, passed = self.folder / CHECKPOINTS, list[str]()
        found = checkpoints.load_newest(folder, passed.append, self.check)
        if found is not None or not passed:
            return found, passed, True
        whole = checkpoints.load_newest(folder, lambda text: None, _check_seals)
        return whole, passed, False

    def check(self, found: Checkpoint) -> None:
        """An error where a checkpoint counts on something else than the other files are."""
        seals = self
        if self.base is None or self.base.position != found.position:
            base = Base(found.position, found.values, sealed_in(found.values))
            # Of an older one, what was written after it does not matter.
            seals = Seals(self.folder, self._count, running=True, base=base)
        for finding in seals.find((MEASURED, WORKER_DATA, *TABLES)):
            raise RunFolderError(f"{self.folder}/{finding}")

    def find_all(self) -> list[Finding]:
        """What does not fit in any file."""
        return self.find((CONFIG, CHANGES, MEASURED, WORKER_DATA, *TABLES, MODEL, BEST))

    def _found(self, name: str) -> list[Finding]:
        try:
            return list(self._of(name)) if self.base is not None else []
        except RunFolderError as error:  # a link, or no regular file
            return [Finding(name, reason(error).removeprefix(f"{self.folder / name} "))]
        except OSError as error:
            return [Finding(name, f"cannot be read: {error.strerror}")]

    def _of(self, name: str) -> Iterable[Finding]:
        assert self.base is not None
        if name.endswith(".csv"):
            return self._table(self.base, name)
        if name == CHANGES:
            return self._changes(self.base)
        if name in (MODEL, BEST) and self.running:  # they may just be replaced by newer ones
            return []
        return self._best(self.base) if name == BEST else self._file(self.base, name)

    def _table(self, base: Base, name: str) -> Iterable[Finding]:
        path = self.folder / name
        size = base.values.get("files", {}).get(name.removesuffix(".csv"))
        marks = base.sealed.table(name.removesuffix(".csv"))
        if size is None and not marks:
            if base.sealed.there and is_there(path):
                yield self._unknown(base, name)
            return
        if not is_there(path):
            yield Finding(name, f"is missing {base.by}")
            return
        wrong = self.compare(path, marks)
        now, due = path.stat().st_size, marks[-1].bytes if marks else size
        if wrong is not None:
            yield Finding(name, f"is not what the run wrote, first in {wrong} {base.by}")
        elif now < due:
            found, wanted = lines_in(path), marks[-1].rows + 1 if marks else 0
            if marks and found >= wanted:
                yield Finding(name, f"is not what the run wrote: {due - now:,} bytes are missing {base.by}")
                return
            there = f": {found:,} of {wanted:,} are whole" if marks else ""
            yield Finding(name, f"has lost lines that checkpoint {base.position} counts on{there}")
        elif now > due and not self.running:
            more = lines_in(path, due)
            lines = f"{more:,} line{'s' * (more != 1)}" if more else "a part of a line"
            if self.done:
                yield Finding(name, f"has {lines} more than the run wrote {base.by}")
            else:
                self.notes.append(f"{name}: {lines} after checkpoint {base.position} not sealed")

    @staticmethod
    def _unknown(base: Base, name: str) -> Finding:
        return Finding(name, f"is not one that the run wrote: checkpoint {base.position} does not know it")

    def _file(self, base: Base, name: str) -> Iterable[Finding]:
        path, sealed = self.folder / name, base.sealed.files.get(name)
        if name == CONFIG:
            sealed = base.values.get("config_sha256")
        if sealed is None:
            if base.sealed.there and is_there(path):
                if name == MODEL and not self.done:
                    self.notes.append(f"{name}: not sealed yet")
                else:
                    yield self._unknown(base, name)
        elif not is_there(path):
            if name != MODEL or base.values.get("finished"):
                yield Finding(name, f"is missing {base.by}")
        elif sha256_of(path) != sealed:
            if name == MODEL and not self.done:  # killed at the end of a run that was continued
                self.notes.append(f"{name}: not sealed yet")
            else:
                yield Finding(name, f"is not what the run wrote {base.by}")

    def _best(self, base: Base) -> Iterable[Finding]:
        """The best model; killed after a checkpoint, a run may have left the new one beside the old."""
        sealed = base.sealed.files.get(BEST)
        waiting = self.folder / NEXT
        if sealed is not None and is_file(waiting) and sha256_of(waiting) == sealed:
            self.notes.append(f"{BEST}: a newer one is put in its place by a resume")
        elif self.damaged:
            self.notes.append(f"{BEST}: not verified, since the newest checkpoint is damaged")
        else:
            found = list(self._file(base, BEST))
            yield from found
            if not found and is_there(self.folder / BEST) and base.sealed.there:
                yield from self._readable()

    def _readable(self) -> Iterable[Finding]:
        path = self.folder / READABLE
        if not is_there(path):
            yield Finding(READABLE, f"is missing beside {BEST}")
            return
        try:
            if read_bytes(path) != best_model.readable_of(self.folder).encode():
                yield Finding(READABLE, f"is not what the run wrote: {BEST} has another row")
        except RunFolderError as error:  # a link, or no regular file
            yield Finding(READABLE, reason(error).removeprefix(f"{path} "))

    def _changes(self, base: Base) -> Iterable[Finding]:
        known = base.values.get("changes", [])
        try:
            now = to_json(read_changes(self.folder))
        except RunFolderError as error:
            yield Finding(CHANGES, f"is damaged: {reason(error)}")
            return
        sealed = base.sealed.files.get(CHANGES)
        if now[: len(known)] != known:
            yield Finding(CHANGES, f"is not what the run wrote {base.by}")
        elif len(now) > len(known):
            self.notes.append(f"{CHANGES}: {len(now) - len(known)} after checkpoint {base.position} not sealed")
        elif sealed is not None and sha256_of(self.folder / CHANGES) != sealed:
            yield Finding(CHANGES, f"is not what the run wrote {base.by}")


def _check_seals(found: Checkpoint) -> None:
    sealed_in(found.values)


def reason(error: Exception) -> str:
    """What an error says after the name of its file."""
    _, damaged, rest = str(error).rpartition(" is damaged: ")
    return rest if damaged else str(error)
