"""A run for TensorBoard: its evaluations as scalars, its delays as histograms, by samples seen."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from orlomo.engines.callbacks import Callback, RunHandle
from orlomo.errors import ConfigError, RunFolderError
from orlomo.records.run import Run
from orlomo.records.tables import METRICS

OWN_SCALARS = ("learning_rate", "epoch")
"""Of the columns that every run has, those that are drawn beside its metrics."""


def summary_writer() -> Any:
    """PyTorch's writer of TensorBoard's files."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("TensorBoard is not installed: pip install 'orlomo[tensorboard]'") from None
    return SummaryWriter


class TensorBoardWriter(Callback):
    """Writes as a run goes on."""

    watches_only = True

    def __init__(self, folder: Path, warn: Callable[[str], None] = print):
        self._writer: Any = summary_writer()(str(folder))
        self._warn = warn
        self._waiting: list[tuple[int, float]] = []  # delay and eta of reports, until an evaluation comes
        self._told = 0

    def event(self, row: dict[str, Any]) -> None:
        """A row of the trace."""
        if row["kind"] == "report":
            self._waiting.append((int(row["delay"]), float(row["eta"])))

    def started(self, run: RunHandle) -> None:
        """What a continued run has kept is written first."""
        if run.kept is not None:
            self.tell(run.kept)

    def evaluation(self, row: dict[str, Any]) -> None:
        """The numbers of an evaluation, and the delays of the reports between the one before and this."""
        count = max(0, int(row["reports"]) - self._told)
        self._told = int(row["reports"])
        new = self._waiting[:count]
        del self._waiting[:count]
        if self._writer is None:
            return
        try:
            self._write(row, new)
        except OSError as error:
            self._warn(f"TensorBoard's files are no longer written: {error}; `orlomo export` makes them afterwards")
            self._writer = None

    def _write(self, row: dict[str, Any], new: list[tuple[int, float]]) -> None:
        step = int(row["samples"])
        for name in scalars_of(row):
            if not math.isnan(float(row[name])):
                self._writer.add_scalar(f"evaluation/{name}", float(row[name]), step)
        if new:
            delays, etas = np.array(new).T
            self._writer.add_histogram("delay", delays, step)
            self._writer.add_scalar("delay/mean", delays.mean(), step)
            self._writer.add_scalar("delay/max", delays.max(), step)
            self._writer.add_scalar("eta/mean", etas.mean(), step)
        self._writer.flush()

    def tell(self, run: Run) -> None:
        """What a run has recorded so far."""
        with contextlib.suppress(RunFolderError, KeyError):  # the evaluations can be told without the delays
            events = run.event_columns
            reports = events["kind"] == "report"
            self._waiting = list(zip(events["delay"][reports].tolist(), events["eta"][reports].tolist(), strict=True))
        for row in run.metric_rows:
            self.evaluation(row)

    def finished(self, run: Run) -> None:
        """No more comes."""
        self.close()

    def close(self) -> None:
        """Close the files."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()


def scalars_of(row: Iterable[str]) -> list[str]:
    """Of an evaluation's columns those that TensorBoard shows."""
    return [name for name in row if name not in METRICS or name in OWN_SCALARS]


def writes_in(folder: Path) -> list[Path]:
    """TensorBoard's files there are."""
    return sorted(folder.glob("events.out.tfevents*"))
