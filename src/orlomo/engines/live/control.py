"""Requests to a running run, as small JSON files in its folder: `control/N.json` in, `control/N.answer` back.

Files need no port and no open socket, and asking takes the right to write to the run folder. Whatever is put there, a
run continues: what is no request is removed if its name is that of one, answered with an error, and else left alone.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from orlomo.errors import OrlomoError, RunFolderError, require
from orlomo.files import (
    is_there,
    read_text,
    remove,
    remove_temporary_files,
    subfolder,
    write_text_atomically,
    writing_to,
)
from orlomo.locks import is_being_written
from orlomo.reading import parse_json, read_json
from orlomo.records.folders import CONTROL, REQUEST_NAME

POLL_SECONDS = 0.2
ANSWER_SECONDS = 30.0
REQUEST_BYTES = 1000
MOST_ADDED = 1000
"""Workers that one request can add."""

AT_ONCE = 16
"""Requests that are answered before the run continues."""

Request = Mapping[str, str | int]
Handler = Callable[[Request], object]


class Control:
    """The run's side: looks for requests now and then, and answers each."""

    def __init__(self, folder: Path, since: int, say: Callable[[str], None] = lambda text: None):
        """`since`, in nanoseconds: earlier requests were to a process that was killed, and are not answered."""
        self._folder: Path | None = None
        self._next_look = 0.0
        try:
            self._folder = subfolder(folder, CONTROL)
        except RunFolderError as error:
            say(f"`orlomo workers` gets no answer from this run: {error}")
        for path in self._files():
            if int(path.name.partition("-")[0]) < since:
                _discard(path)

    def _files(self, kind: str = "*") -> list[Path]:
        """Those of our own names, oldest first."""
        if self._folder is None:
            return []
        return sorted(path for path in self._folder.glob(f"*.{kind}") if REQUEST_NAME.fullmatch(path.name))

    def answer(self, handle: Handler) -> None:
        """Let `handle` answer what has been asked since; an `OrlomoError` is an answer too."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + POLL_SECONDS
        for path in self._files("json")[:AT_ONCE]:
            self._answer(path, handle)

    def _answer(self, path: Path, handle: Handler) -> None:
        try:
            text: str | None = read_text(path, REQUEST_BYTES)
        except (OSError, RunFolderError):
            text = None
        # Before it is handled: a request is carried out at most once, also if this process is killed.
        if not _discard(path):
            return  # what cannot be removed is not obeyed
        answer: dict[str, object]
        try:
            answer = {"result": handle(_request(text, path))}
        except OrlomoError as error:
            answer = {"error": str(error)}
        with contextlib.suppress(OSError, RunFolderError):  # a full disk: the one who asks is told that there is none
            _write(path.with_suffix(".answer"), answer)

    def close(self) -> None:
        """Remove the folder: no request is answered any more."""
        for path in self._files("json"):
            _discard(path)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                remove_temporary_files(self._folder)  # of one who asked, and was killed
                self._folder.rmdir()


def _discard(path: Path) -> bool:
    with contextlib.suppress(OSError):  # a folder of that name, no permission
        remove(path)
        return True
    return False


def _request(text: str | None, path: Path) -> Request:
    """What a file asks for, checked: a known action and whole numbers."""
    found = None if text is None else parse_json(text, str(path))
    wrong = f"{path} is not a request"
    if not isinstance(found, dict) or found.get("action") not in ("list", "add", "remove"):
        raise RunFolderError(wrong)
    needed = {"list": (), "add": ("count",), "remove": ("worker",)}[found["action"]]
    whole = {name: found.get(name) for name in needed}
    if any(type(value) is not int or not 0 <= value < 2**31 for value in whole.values()):
        raise RunFolderError(wrong)
    count = whole.get("count")
    require(count is None or 1 <= count <= MOST_ADDED, f"add from 1 to {MOST_ADDED} workers, not {count}")
    return {"action": found["action"], **whole}


def ask(folder: Path, request: Request) -> Any:
    """The asker's side: the run's answer, or an error if it does not run."""
    if not is_being_written(folder):
        raise RunFolderError(f"{folder} is not running: `orlomo resume {folder} --workers N` starts it with N workers")
    # The time comes first, so that requests are handled in the order in which they were made.
    name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"
    with writing_to(folder):
        path = subfolder(folder, CONTROL, make=True) / name
        _write(path, request)  # atomically: the run never reads half a request
    until = time.monotonic() + ANSWER_SECONDS
    answered = path.with_suffix(".answer")
    while not is_there(answered):
        if time.monotonic() > until or not is_being_written(folder):
            _discard(path)
            raise RunFolderError(f"{folder} does not answer: has it ended?")
        time.sleep(0.05)
    answer = read_json(answered)
    _discard(answered)
    if not isinstance(answer, dict) or not answer.keys() & {"error", "result"}:
        raise RunFolderError(f"{answered} is not an answer of a run")
    if "error" in answer:
        raise OrlomoError(str(answer["error"]))
    return answer["result"]


def _write(path: Path, content: object) -> None:
    write_text_atomically(path, json.dumps(content))
