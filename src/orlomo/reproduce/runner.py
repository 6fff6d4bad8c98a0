"""Run many cells, several at once, each in a process of its own. They can be stopped and continued at any time."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NoReturn, cast

from orlomo.config import same_run, write
from orlomo.engines.callbacks import Callback, RunHandle
from orlomo.engines.simulated.pool import on_threads
from orlomo.errors import Diverged, Interrupted, OrlomoError, RunFolderError
from orlomo.files import read_text, write_text_atomically, writing_to
from orlomo.records.run import Run
from orlomo.records.tables import MetricColumn, Row
from orlomo.report.terminal.progress import RunProgress
from orlomo.report.terminal.screen import ProgressDisplay, evaluation_text
from orlomo.report.terminal.totals import RECORDED, SHOWN
from orlomo.reproduce.plan import Cell
from orlomo.resuming import resume
from orlomo.tasks.task import Task
from orlomo.training import start

STOPPING = (signal.SIGINT, signal.SIGTERM)

DIVERGED = "diverged.txt"
"""The file beside a run that diverged, with its error and its config: it would diverge again and is not repeated."""


def run_cells(
    cells: list[Cell], tasks: dict[str, Task], jobs: int, progress: ProgressDisplay, warn: Callable[[str], None]
) -> dict[Cell, Run | None]:
    """Every cell's finished run; None for those that diverged. A signal saves the runs at work, then `Interrupted`."""
    waiting = [cell for cell in cells if not is_done(cell)]
    progress.begin(len(cells), len(cells) - len(waiting), sum(cell.steps for cell in waiting))
    each = max(1, jobs // max(1, len(waiting)))  # fewer runs than cores: several cores for each run
    active: dict[Connection, _Active] = {}
    # New processes inherit it: one thread each, as there is one process per core and the number decides the bits.
    with _stoppable() as stopped, on_threads(1):
        while (waiting and not stopped) or active:
            while waiting and not stopped and len(active) < jobs:
                cell = waiting.pop(0)
                pipe, process = _launch(cell, tasks[cell.row.task], each, [*active])
                shown = progress.add(f"{cell.row.name} {cell.method} seed {cell.seed}", cell.steps)
                active[pipe] = _Active(cell, process, shown)
            # The timeout is for signals: their handler sets a flag and does not end the wait.
            for ready in multiprocessing.connection.wait(list(active), timeout=0.5):
                _listen(cast(Connection, ready), active, warn, stopped)
            if stopped:
                for running in active.values():
                    running.stop()
    if stopped:
        if stopped.error is not None:
            raise stopped.error
        raise Interrupted(f"stopped by {signal.Signals(stopped.number).name}; saved", stopped.number)
    return {cell: None if (cell.folder / DIVERGED).exists() else Run(cell.folder) for cell in cells}


def is_done(cell: Cell) -> bool:
    """Whether the cell's run is there, finished or diverged; a run with other settings in its folder is an error."""
    note = cell.folder / DIVERGED
    if note.exists():
        same, done = read_text(note).endswith(write(cell.config)), True
    elif (cell.folder / "config.toml").exists():
        run = Run(cell.folder)
        _ = run.resumable  # an error where the record is damaged
        same, done = same_run(run.config, cell.config), run.finished
    else:
        return False
    if not same:
        raise RunFolderError(f"{cell.folder} holds a run with other settings: choose another --out")
    return done


@dataclass
class _Stopped:
    """Whether to stop, and why: a signal's number, or a run's error."""

    number: int = 0
    error: OrlomoError | None = None

    def __bool__(self) -> bool:
        return self.number != 0 or self.error is not None


@dataclass
class _Active:
    cell: Cell
    process: BaseProcess
    shown: RunProgress
    is_stopping: bool = False

    def stop(self) -> None:
        """Ask it to save and end, once."""
        if not self.is_stopping and self.process.pid is not None:
            self.is_stopping = True
            with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(self.process.pid, signal.SIGTERM)


@contextlib.contextmanager
def _stoppable() -> Iterator[_Stopped]:
    stopped = _Stopped()

    def handle(number: int, frame: object) -> None:
        stopped.number = stopped.number or number

    before = {number: signal.signal(number, handle) for number in STOPPING}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _launch(cell: Cell, task: Task, jobs: int, others: list[Connection]) -> tuple[Connection, BaseProcess]:
    forks = hasattr(os, "fork")
    context = multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    forked = task if forks else None  # a task may hold what cannot be sent: the process makes its own
    process = context.Process(target=_work, args=(cell, forked, jobs, theirs, [*others, ours]))
    with _signals_wait():  # a new process has our handlers until it sets its own, and would lose a signal
        process.start()
    theirs.close()
    return ours, process


def _listen(
    pipe: Connection,
    active: dict[Connection, _Active],
    warn: Callable[[str], None],
    stopped: _Stopped,
) -> None:
    """Take one message of a run: ("started", ...), ("event", ...) or ("evaluation", ...) for display,
    ("warning", text), ("failed", text). A closed pipe means that the process has ended."""
    cell, shown = active[pipe].cell, active[pipe].shown
    try:
        kind, *rest = pipe.recv()
    except (EOFError, OSError):
        process = active.pop(pipe).process
        process.join()
        pipe.close()
        if is_done(cell):  # by its files: an exit code of 0 alone proves nothing
            shown.finish(announce=True)
        elif not stopped:
            stopped.error = OrlomoError(f"{cell.folder}: the run ended with exit code {process.exitcode}")
        return
    if kind == "warning":
        warn(f"{cell.folder.name}: {rest[0]}")
    elif kind == "failed":
        if stopped.error is None:  # the others follow from the stop
            stopped.error = OrlomoError(rest[0])
            for note in rest[1:]:
                stopped.error.add_note(note)
    elif kind == "started":
        shown.begin(*rest)
    elif kind == "event":
        shown.event(*rest)
    else:
        shown.evaluation(*rest)


class _PipeCallback(Callback):
    """Sends a run's progress through a pipe. Where its other end is closed, the run saves and ends."""

    watches_only = True

    def __init__(self, pipe: Connection):
        self._pipe = pipe
        self._measured: tuple[MetricColumn, ...] = ()

    def send(self, *message: object) -> None:
        try:
            self._pipe.send(message)
        except OSError:  # the parent has ended
            signal.raise_signal(signal.SIGTERM)

    def started(self, run: RunHandle) -> None:
        columns = run.kept.some_events(*RECORDED) if run.kept is not None else {}
        self._measured = run.measured
        method, clock = run.config.method, run.config.clock
        self.send("started", run.workers, run.total, columns, method.synchronous, clock == "virtual")

    def event(self, row: Row) -> None:
        self.send("event", {name: row[name] for name in SHOWN if name in row})

    def evaluation(self, row: Row) -> None:
        self.send("evaluation", evaluation_text(self._measured, row))


def _work(cell: Cell, task: Task | None, jobs: int, pipe: Connection, others: list[Connection]) -> NoReturn:
    """One run in its own process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent stops us by SIGTERM
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    for other in others:  # inherited by the fork: a pipe must close when its own process ends
        other.close()
    messages = _PipeCallback(pipe)

    def warn(text: str) -> None:
        messages.send("warning", text)

    code = 0
    try:
        if (cell.folder / "config.toml").exists():
            # Trusted: its config is the one that was asked for, see `is_done`.
            resume(cell.folder, task=task, trust=True, jobs=jobs, callbacks=[messages], warn=warn)
        else:
            start(cell.config, cell.folder, task=task, jobs=jobs, callbacks=[messages], warn=warn)
    except Diverged as error:
        _note(cell, str(error))
        warn(str(error))
    except Interrupted as stop:
        code = 128 + stop.signal_number
    except OrlomoError as error:
        messages.send("failed", f"{cell.folder}: {error}")
        code = 2
    except BaseException as error:
        messages.send("failed", f"{cell.folder}: {type(error).__name__}: {error}", traceback.format_exc().rstrip())
        code = 1
    pipe.close()
    os._exit(code)  # not sys.exit: what the fork inherited is the parent's to clean up


def _note(cell: Cell, text: str) -> None:
    with writing_to(cell.folder):
        cell.folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(cell.folder / DIVERGED, f"{text}\n\n{write(cell.config)}")
