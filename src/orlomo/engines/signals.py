"""Ctrl-C and SIGTERM, taken at moments when the state is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

from orlomo.errors import Interrupted

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
"""What `signal.signal` takes and returns."""


class Signals:
    """While inside, SIGINT and SIGTERM interrupt only the code under `may_interrupt`, elsewhere they wait for it.

    Further signals do nothing: the first is being obeyed, and what it saves must not be cut off.
    """

    class Stop(BaseException):
        """A signal has arrived; carries its number."""

    def __init__(self) -> None:
        self._requested: int | None = None
        self._waiting = False
        self._obeyed = False
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Signals:
        # Python lets only the main thread set handlers; elsewhere the program around us handles signals.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *details: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._requested is not None and details[0] is None:
            signal.raise_signal(self._requested)  # it came too late for us

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._obeyed:
            return
        self._requested = number
        # A handler runs between any two lines of the main thread. Raising here is right only where these lines may be
        # cut off; elsewhere the number is kept, and the next `obey` raises.
        if self._waiting:
            self._waiting = False
            self.obey()

    def obey(self) -> None:
        """Stop here if a signal has asked for it."""
        if self._requested is not None:
            number, self._requested, self._obeyed = self._requested, None, True
            raise self.Stop(number)

    @contextmanager
    def may_interrupt(self) -> Iterator[None]:
        """Code that may be cut off anywhere without harm."""
        self.obey()
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    @staticmethod
    def interrupted(stop: Stop, consequence: str = "") -> Interrupted:
        """The error that ends a run which was stopped and saved."""
        number = int(stop.args[0])
        what = f"stopped by {signal.Signals(number).name}"
        return Interrupted(f"{what}; {consequence}" if consequence else what, number)
