"""Callbacks: what a user's code sees of a run under way, and how it ends a run or keeps its best model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orlomo.errors import ConfigError, require, unknown_name
from orlomo.values import convert, shown, whole

if TYPE_CHECKING:
    from torch import Tensor

    from orlomo.config import RunConfig
    from orlomo.records.run import Run
    from orlomo.records.tables import MetricColumn, Row


class Callback:
    """Base class of callbacks: every method does nothing unless a subclass overrides it.

    Callbacks run in the server's process, in the order in which they were passed to `orlomo.train`, `resume` or
    `compare`; `replay` calls only `started`, `event` and `finished`. If a callback raises, a checkpoint is saved and
    the run ends with that error.

    >>> class PrintLoss(Callback):
    ...     def evaluation(self, row):
    ...         print(f"epoch {row['epoch']:.1f}: training loss {row['train_loss']:.2g}")
    >>> import orlomo
    >>> out = getfixture("tmp_path") / "run"
    >>> run = orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=out, callbacks=[PrintLoss()])
    epoch 0.0: training loss 14
    epoch 0.1: training loss 0.29
    """

    watches_only: bool = False
    """Set to True by a callback that never stops a run nor keeps a best model. Where all callbacks only watch, the
    simulator continues while an evaluation is under way; else it waits, so that what they do does not depend on the
    number of jobs."""

    def started(self, run: RunHandle) -> None:
        """The run starts, or continues; then `run.kept` is the run so far."""

    def event(self, row: Row) -> None:
        """A row of the trace, as in events.csv: a report was folded in, or a worker joined or left.

        `row["kind"]` is `report`, `crash`, `return`, `join` or `leave`. The row also has the totals so far, `reports`
        and `samples`.
        """

    def evaluation(self, row: Row) -> None:
        """An evaluation is done; `row` is its row of metrics.csv."""

    def warning(self, text: str) -> None:
        """A message for the user: a worker was lost, the disk is full."""

    def finished(self, run: Run) -> None:
        """The run has ended: it is complete, or was stopped, interrupted or failed.

        `run.finished` and `run.stopped` say which; an interrupted run can be resumed.
        """


@dataclass(frozen=True)
class RunHandle:
    """The run, as passed to `Callback.started`.

    `workers`: how many the run starts with. `total`: the number of planned reports. `measured`: the metrics, as
    metrics.json describes them. `kept`: the run so far if it is resumed, else None.

    >>> import orlomo
    >>> class Impatient(orlomo.Callback):
    ...     def started(self, run):
    ...         self.run = run
    ...     def event(self, row):
    ...         if row["reports"] == 10:
    ...             self.run.stop(f"10 of {self.run.total} reports are enough")
    >>> out = getfixture("tmp_path") / "run"
    >>> orlomo.train("quadratic", "asgd", workers=2, epochs=1, jobs=1, out=out, callbacks=[Impatient()]).stopped
    '10 of 1024 reports are enough'
    """

    folder: Path
    config: RunConfig
    workers: int
    total: int
    measured: tuple[MetricColumn, ...] = ()
    kept: Run | None = None
    callbacks: Callbacks = field(default_factory=lambda: Callbacks(), repr=False)

    def stop(self, reason: str) -> None:
        """End the run at the next consistent state, with a last evaluation, the model and a checkpoint.

        The reason is recorded (`run.stopped`); if there are several, the first.
        """
        require(bool(reason.strip()), "stop needs a reason: the run folder keeps it")
        if self.callbacks.stop_reason is None:
            self.callbacks.stop_reason = " ".join(reason.split())

    def keep_best(self, row: Row) -> None:
        """Keep the model of this evaluation as `run.best`, replacing the previous one.

        `row` is the row that `Callback.evaluation` was called with. The model is written with the next checkpoint, so
        that it belongs to the recorded metrics even after a kill and a resume.
        """
        self.callbacks.keep(row)


class Evaluated(NamedTuple):
    """An evaluation: its row, and the parameters and buffers it is of."""

    row: Row
    params: Tensor
    buffers: Tensor | None


class Callbacks:
    """The callbacks of one run, called one after another.

    What one of them raises is kept, and raised by `check` at the next whole state, where the run can be saved; until
    then none is called any more.
    """

    def __init__(
        self,
        callbacks: Iterable[Callback] | Callback | None = (),
        warn: Callable[[str], None] = lambda text: None,
    ):
        given = (callbacks,) if isinstance(callbacks, Callback) else () if callbacks is None else callbacks
        wanted = "callbacks must be objects of subclasses of orlomo.Callback"
        require(isinstance(given, Iterable), f"{wanted}, in a list, not {shown(given)}")
        self._callbacks = list(given)
        for callback in self._callbacks:
            require(isinstance(callback, Callback), f"{wanted}, not {shown(callback)}")
        require(callable(warn), f"warn must be a function of a text, such as print, not {shown(warn)}")
        self._warn = warn
        self._started: list[Callback] = []
        self._current: Evaluated | None = None
        self.stop_reason: str | None = None
        self.best: Evaluated | None = None  # to be written with the next checkpoint
        self.error: BaseException | None = None

    def add(self, callback: Callback) -> None:
        """One more, called after the others."""
        self._callbacks.append(callback)

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._callbacks)

    @property
    def watch_only(self) -> bool:
        """Whether none of them will stop the run or keep a model."""
        return all(callback.watches_only for callback in self._callbacks)

    def started(self, run: RunHandle) -> None:
        """There is nothing to save yet: what a callback raises here goes up at once."""
        for callback in self._callbacks:
            self._started.append(callback)
            callback.started(run)

    def event(self, row: Row) -> None:
        """A row of the trace."""
        self._call(lambda callback: callback.event(row))

    def evaluation(self, evaluated: Evaluated) -> None:
        """An evaluation; while they are called, they may keep its model."""
        self._current = evaluated
        self._call(lambda callback: callback.evaluation(evaluated.row))
        self._current = None

    def warning(self, text: str) -> None:
        """To every callback, and to the `warn` that the run was given."""
        self._call(lambda callback: callback.warning(text))
        self._warn(text)

    def finished(self, run: Run) -> None:
        """All that were started are called, also where one of them raises."""
        # The stack calls in reverse, so they are pushed in reverse: each is called in the order in which it was given.
        with ExitStack() as stack:
            for callback in reversed(self._started):
                stack.callback(callback.finished, run)

    def check(self) -> None:
        """Raise what a callback has raised; to be called where the run can be saved."""
        if self.error is not None:
            raise self.error

    def keep(self, row: Row) -> None:
        """Keep the model of the evaluation that callbacks are being called with."""
        if self._current is None or row["reports"] != self._current.row["reports"]:
            raise ConfigError("keep_best takes the row that `evaluation` is being called with, no earlier one")
        self.best = self._current

    def _call(self, call: Callable[[Callback], None]) -> None:
        # Raised here, an error would leave the run half changed, where it cannot be saved: `check` raises it later.
        if self.error is not None:
            return
        try:
            for callback in self._callbacks:
                call(callback)
        except BaseException as error:  # SystemExit, too: the run is to be saved first
            self.error = error


class _Record:
    """The best value of a metric so far; which values are better, its declaration says."""

    def __init__(self, metric: str, measured: Iterable[MetricColumn]):
        known = {one.column: one for one in measured}
        if metric not in known:
            raise unknown_name("metric", metric, known)
        self.metric, self.value = metric, math.nan
        self._sign = 1.0 if known[metric].better == "higher" else -1.0

    def beaten_by(self, row: Row, by: float = 0.0) -> bool:
        """Whether this row has the best value so far, which is then kept. NaN is never the best."""
        value = float(row[self.metric])
        first = math.isnan(self.value)
        if first and math.isnan(value):
            raise ConfigError(f"{self.metric} is not a number in the first evaluation: this task does not have it")
        # Written so that a comparison with NaN, which is false, means no improvement.
        if not first and not self._sign * (value - self.value) > by:
            return False
        self.value = value
        return True


class EarlyStopping(Callback):
    """Stop a run when a metric has not improved in `patience` evaluations in a row.

    Args:
        metric: a column of metrics.csv, as in `test_accuracy`.
        patience: evaluations without an improvement after which the run is stopped.
        least: only larger improvements than this count.

    >>> import orlomo
    >>> stopping = EarlyStopping("train_loss", patience=2, least=1e9)
    >>> out = getfixture("tmp_path") / "run"
    >>> orlomo.train("quadratic", "asgd", workers=2, epochs=4, jobs=1, out=out, callbacks=[stopping]).stopped
    'train_loss has not improved in 2 evaluations: the best was 14.47'
    """

    def __init__(self, metric: str, patience: int, *, least: float = 0.0):
        convert(metric, str, "metric")
        convert(least, float, "least")
        patience = whole(patience, "patience")
        require(patience >= 1, f"patience must be at least 1, not {patience}")
        self._metric, self._patience, self._least = metric, patience, least

    def started(self, run: RunHandle) -> None:
        """Evaluations from before a resume count too."""
        self._run, self._record, self._without = run, _Record(self._metric, run.measured), 0
        for row in run.kept.metric_rows if run.kept is not None else ():
            self.evaluation(row)

    def evaluation(self, row: Row) -> None:
        """Count evaluations without an improvement."""
        self._without = 0 if self._record.beaten_by(row, self._least) else self._without + 1
        if self._without >= self._patience:
            what = f"{self._metric} has not improved in {self._without} evaluations"
            self._run.stop(f"{what}: the best was {self._record.value:.4g}")


class KeepBest(Callback):
    """Keep the model of the evaluation at which a metric was best: `run.best`, `best.safetensors` in the run folder.

    Args:
        metric: a column of metrics.csv, as in `test_accuracy`.

    >>> import orlomo
    >>> best, out = KeepBest("test_accuracy"), getfixture("tmp_path") / "run"
    >>> run = orlomo.train("digits", workers=2, epochs=0.5, jobs=1, out=out, callbacks=[best])
    >>> bool(run.best.metrics["test_accuracy"] == run.metrics["test_accuracy"].max())
    True
    >>> type(run.best.model(orlomo.task("digits").model)).__name__
    'Sequential'
    """

    def __init__(self, metric: str):
        convert(metric, str, "metric")
        self._metric = metric

    def started(self, run: RunHandle) -> None:
        """Compare with the best model from before a resume."""
        self._run, self._record = run, _Record(self._metric, run.measured)
        if run.kept is not None and run.kept.best is not None:
            self._record.beaten_by(run.kept.best.metrics)

    def evaluation(self, row: Row) -> None:
        """Keep the model if it is the best so far."""
        if self._record.beaten_by(row):
            self._run.keep_best(row)
