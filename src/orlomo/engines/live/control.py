"""Requests to a running run, as small JSON files in its folder: `control/N.json` in, `control/N.answer` back.

Files need no port and no open socket, and asking takes the right to write to the run folder.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from orlomo.errors import OrlomoError, RunFolderError
from orlomo.files import is_being_written, write_text_atomically

POLL_SECONDS = 0.2
ANSWER_SECONDS = 30.0

Request = Mapping[str, str | int]
Handler = Callable[[Request], object]


class Control:
    """The run's side: looks for requests now and then, and answers each."""

    def __init__(self, folder: Path, since: int):
        """`since`, in nanoseconds: earlier requests were to a process that was killed, and are not answered."""
        self._folder = folder / "control"
        self._next_look = 0.0
        for path in self._folder.glob("*"):
            stamp = path.name.partition("-")[0]
            if not stamp.isdecimal() or int(stamp) < since:
                with contextlib.suppress(OSError):
                    path.unlink()

    def answer(self, handle: Handler) -> None:
        """Let `handle` answer what has been asked since; an `OrlomoError` is an answer too."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + POLL_SECONDS
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError):  # what cannot be read and removed is not obeyed
                self._answer(path, handle)

    def _answer(self, path: Path, handle: Handler) -> None:
        text = path.read_text("utf-8")
        path.unlink()  # before it is handled: a request is carried out at most once, also if this process is killed
        answer: dict[str, object]
        try:
            answer = {"result": handle(json.loads(text))}
        except OrlomoError as error:
            answer = {"error": str(error)}
        except (ValueError, KeyError, TypeError):
            answer = {"error": f"{path} is not a request"}
        _write(path.with_suffix(".answer"), answer)

    def close(self) -> None:
        """Remove the folder: no request is answered any more."""
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.json"):
                path.unlink(missing_ok=True)
            self._folder.rmdir()


def ask(folder: Path, request: Request) -> Any:
    """The asker's side: the run's answer, or an error if it does not run."""
    if not is_being_written(folder):
        raise RunFolderError(f"{folder} is not running: `orlomo resume {folder} --workers N` starts it with N workers")
    requests = folder / "control"
    requests.mkdir(exist_ok=True)
    # The time comes first, so that requests are handled in the order in which they were made.
    path = requests / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"
    _write(path, request)  # atomically: the run never reads half a request
    until = time.monotonic() + ANSWER_SECONDS
    answered = path.with_suffix(".answer")
    while not answered.exists():
        if time.monotonic() > until or not is_being_written(folder):
            path.unlink(missing_ok=True)
            raise RunFolderError(f"{folder} does not answer: has it come to its end?")
        time.sleep(0.05)
    answer = json.loads(answered.read_text("utf-8"))
    answered.unlink()
    if "error" in answer:
        raise OrlomoError(answer["error"])
    return answer["result"]


def _write(path: Path, content: object) -> None:
    write_text_atomically(path, json.dumps(content))
