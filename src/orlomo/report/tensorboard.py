"""A run for TensorBoard: its evaluations as scalars, its delays as histograms, by samples seen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from orlomo.cluster.schedule import REPORT
from orlomo.errors import ConfigError
from orlomo.records.run import Run

SCALARS = ("test_accuracy", "test_loss", "train_loss", "learning_rate", "epoch")


def summary_writer() -> Any:
    """PyTorch's writer of TensorBoard's files."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("TensorBoard is not installed: pip install 'orlomo[tensorboard]'") from None
    return SummaryWriter


class TensorBoardWriter:
    """Writes as a run goes on: told its events and evaluations, and passes them on to another display."""

    def __init__(self, folder: Path, beside: Any = None):
        self._writer: Any = summary_writer()(str(folder))
        self._beside = beside
        self._delays: list[int] = []
        self._etas: list[float] = []

    def event(self, row: dict[str, Any]) -> None:
        """A row of the trace."""
        if hasattr(self._beside, "event"):
            self._beside.event(row)
        if row["kind"] in (REPORT, "report"):
            self._delays.append(int(row["delay"]))
            self._etas.append(float(row["eta"]))

    def report(self, done: int, total: int, loss: float) -> None:
        """Reports are told as events; here they are only passed on."""
        if self._beside is not None:
            self._beside.report(done, total, loss)

    def evaluation(self, row: dict[str, Any]) -> None:
        """The numbers of an evaluation, and the delays since the one before."""
        if self._beside is not None:
            self._beside.evaluation(row)
        step = int(row["samples"])
        for name in SCALARS:
            if not math.isnan(float(row[name])):
                self._writer.add_scalar(f"evaluation/{name}", float(row[name]), step)
        if self._delays:
            self._writer.add_histogram("delay", np.array(self._delays), step)
            self._writer.add_scalar("delay/mean", float(np.mean(self._delays)), step)
            self._writer.add_scalar("delay/max", max(self._delays), step)
            self._writer.add_scalar("eta/mean", float(np.mean(self._etas)), step)
        self._delays.clear()
        self._etas.clear()
        self._writer.flush()


def export(run: Run, folder: Path) -> None:
    """A run that is there already."""
    writer = TensorBoardWriter(folder)
    events, metrics = run.events, run.metrics
    reports = np.flatnonzero(events["kind"] == "report") if len(events["kind"]) else np.zeros(0, dtype=np.int64)
    told = 0
    for place in range(len(metrics["iteration"])):
        row = {name: column[place] for name, column in metrics.items()}
        for number in reports[told : int(row["reports"])]:
            writer.event({"kind": "report", "delay": events["delay"][number], "eta": events["eta"][number]})
        told = int(row["reports"])
        writer.evaluation(row)
