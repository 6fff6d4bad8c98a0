"""What the displays have in common: a screen at a terminal, lines elsewhere, nothing where quiet is wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live

LINE_SECONDS = 5.0
"""Between lines where there is no terminal."""


class Screen(ABC):
    """On standard error; use it as a context manager."""

    def __init__(self, quiet: bool):
        self._console = Console(stderr=True, quiet=quiet)
        self._is_screen = not quiet and self._console.is_terminal
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._is_screen:
            self._live = Live(get_renderable=self._screen, console=self._console, transient=True, refresh_per_second=5)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @abstractmethod
    def _screen(self) -> RenderableType:
        """Drawn a few times a second, in a thread of its own."""

    def _line(self, text: str) -> None:
        """A line as it is, above the screen where there is one."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
