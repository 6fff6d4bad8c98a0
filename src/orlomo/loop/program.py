"""The user's program that each worker runs: a script with its arguments, or a function of the worker."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orlomo.errors import ConfigError, require
from orlomo.loading import is_import_path, load_attribute

if TYPE_CHECKING:
    from orlomo.loop.worker import Worker

Function = Callable[["Worker"], object]


@dataclass(frozen=True)
class Program:
    """What to run. `name`: a script, `FILE.py:FUNCTION`, or `custom` for a function that only Python has."""

    name: str
    arguments: tuple[str, ...] = ()  # of the script
    directory: str = ""  # in which it runs
    function: Function | None = None

    def check(self) -> None:
        """Raise a `ConfigError` where there is no such program."""
        if self.function is None and not is_import_path(self.name):
            path = Path(self.name)
            require(path.is_file(), f"cannot read the script {path}: no such file")
        require(Path(self.directory or ".").is_dir(), f"the folder {self.directory} of the run's script is not there")

    def run(self, worker: Worker) -> None:
        """Run it, in a process in which nothing else runs."""
        if self.directory:
            os.chdir(self.directory)
        if self.function is not None:
            self.function(worker)
            return
        if is_import_path(self.name):
            found = load_attribute(self.name, "function")
            require(callable(found), f"{self.name} is not a function of a worker")
            assert callable(found)
            found(worker)
            return
        sys.argv = [self.name, *self.arguments]
        sys.path.insert(0, str(Path(self.name).parent))
        try:
            runpy.run_path(self.name, run_name="__main__")
        except SyntaxError as error:
            raise ConfigError(f"{error.filename}, line {error.lineno}: {error.msg}") from None
