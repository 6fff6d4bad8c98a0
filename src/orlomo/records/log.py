"""log.txt of a run: what happened to its workers and its disk, one line per event, with the time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from orlomo.errors import OrlomoError


class Log:
    """Warns the user at once, and keeps the warnings in the run folder as far as its disk allows."""

    def __init__(self, folder: Path, say: Callable[[str], None]):
        self._path, self._say = folder / "log.txt", say

    def warn(self, text: str, details: str = "") -> None:
        """One line on the terminal; the details go to the file alone."""
        self.note(text, details)
        self._say(text)

    def note(self, text: str, details: str = "") -> None:
        """To the file alone."""
        indented = "".join(f"    {line}\n" for line in details.splitlines())
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        # Opened for each line, so that a full disk costs a line of the log and not the run.
        with contextlib.suppress(OSError), self._path.open("a") as file:
            file.write(f"{moment} {text}\n{indented}")

    def end(self, error: OrlomoError, details: str = "") -> OrlomoError:
        """The error that ends the run, written down."""
        self.note(f"the run ends: {error}", details)
        return error
