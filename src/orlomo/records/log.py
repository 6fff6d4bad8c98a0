"""log.txt of a run: what happened to its workers and its disk, one line per event, with the time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from orlomo.errors import OrlomoError, RunFolderError
from orlomo.files import open_to_write
from orlomo.printing import printable


class Log:
    """Warns the user at once, and keeps the warnings in the run folder as far as its disk allows."""

    def __init__(self, folder: Path | None, say: Callable[[str], None]):
        self._path, self._say = None if folder is None else folder / "log.txt", say
        self._early: list[str] = []  # before there is a folder

    def keep_in(self, folder: Path) -> None:
        """There is a folder now."""
        self._path = folder / "log.txt"
        early, self._early = self._early, []
        self._write("".join(early))

    def warn(self, text: str, details: str = "") -> None:
        """One line on the terminal; the details go to the file alone."""
        self.note(text, details)
        self._say(text)

    def note(self, text: str, details: str = "") -> None:
        """To the file alone."""
        indented = "".join(f"    {printable(line)}\n" for line in details.splitlines())
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._write(f"{moment} {printable(text)}\n{indented}")

    def _write(self, text: str) -> None:
        if self._path is None:
            self._early.append(text)
        elif text:
            # Opened each time, so that a full disk costs a line of the log and not the run.
            with contextlib.suppress(OSError, RunFolderError), open_to_write(self._path) as file:
                file.seek(0, os.SEEK_END)
                file.write(text.encode("utf-8"))

    def end(self, error: OrlomoError, details: str = "") -> OrlomoError:
        """The error that ends the run, written down."""
        self.note(f"the run ends: {error}", details)
        return error
