"""A run as the pictures of it need it: plain numbers, thinned for the eye, ready for JSON.

The page, the figures and the notebook all draw from this.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orlomo import config as configuration
from orlomo.config import RunConfig
from orlomo.records.columns import Columns
from orlomo.records.run import Run
from orlomo.report.summary import without_nan
from orlomo.report.tables import only, table_of
from orlomo.report.thin import thin
from orlomo.report.timeline import STATES, bars, uses

CURVES = ("test_accuracy", "train_loss")
GROUPS_SHOWN = 12
DOTS_SHOWN = 1000
"""Of these groups, at first, at most so many reports."""

RANGED = ("iteration", "group")
BINS = 60


def story(run: Run, name: str, notes: list[str]) -> dict[str, Any]:
    """All that is shown of a run; what cannot be is noted."""
    config = run.config
    events, damaged = table_of(run, "events", name, notes)
    metrics, _ = table_of(run, "metrics", name, notes)
    reports = only(events, events["kind"] == "report")
    state = run.state
    if not damaged and state != "running":
        _note_missing(reports, metrics, state, name, notes)
    simulated = config.engine == "simulated"
    end = float(reports["finish"][-1]) if simulated and len(reports["finish"]) else 0.0  # real ones never come back
    drawn = bars(events, end, synchronous=config.method.synchronous)
    return {
        "name": name,
        "method": config.method.name,
        "task": config.task,
        "engine": config.engine,
        "clock": "virtual seconds" if simulated else "seconds",
        "state": state,
        "workers": config.workers,
        "facts": _facts(config, reports, metrics),
        "curves": _curves(metrics),
        "loss": _thinned(reports, "loss", ("finish", "iteration", "loss")),
        "delay": _thinned(reports, "delay", ("finish", "iteration", "worker", "delay")),
        "delays": histogram(reports["delay"]),
        "eta": _thinned(reports, "eta", ("finish", "iteration", "delay", "eta")),
        "groups": _groups(config, events),
        "timeline": {"states": list(STATES), **{name: numbers(column) for name, column in drawn._asdict().items()}},
        "uses": [without_nan(use._asdict()) for use in uses(events, drawn, config.workers)],
        "config": configuration.write(config),
    }


def histogram(values: NDArray[Any]) -> dict[str, list[float]]:
    """Counts of whole numbers, in at most so many bins of one width."""
    if not len(values):
        return {"left": [], "width": [], "count": []}
    width = max(1, -(-(int(values.max()) + 1) // BINS))
    counts = np.bincount(values.astype(np.int64) // width)
    return {"left": (np.arange(len(counts)) * width).tolist(), "width": [width] * len(counts), "count": counts.tolist()}


def differences(tables: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The settings in which configs differ, one text a config."""
    flat = [_flat(table) for table in tables]
    names = sorted({name for table in flat for name in table})
    texts = {name: [str(table.get(name, "")) for table in flat] for name in names}
    return {name: values for name, values in texts.items() if len(set(values)) > 1}


def _note_missing(reports: Columns, metrics: Columns, state: str, name: str, notes: list[str]) -> None:
    """Where one table tells of more than the other has."""
    here, told = len(reports["delay"]), int(metrics["reports"].max(initial=0))
    if told > here:
        notes.append(f"{name}: events.csv has {here:,} reports, metrics.csv tells of {told:,}: lines are missing.")
    elif state == "finished" and 0 < told < here:
        notes.append(f"{name}: metrics.csv ends at report {told:,} of {here:,}: lines are missing.")


def _facts(config: RunConfig, reports: Columns, metrics: Columns) -> dict[str, Any]:
    """The few numbers that a person wants first."""
    delays, last = reports["delay"], {name: column[-1:] for name, column in metrics.items()}
    seconds = float(reports["finish"][-1]) if len(delays) else math.nan
    facts = {
        "reports": len(delays),
        "epochs": _epochs(len(delays), last),
        "wanted_epochs": config.epochs,
        "test_accuracy": float(last["test_accuracy"][0]) if len(last["test_accuracy"]) else math.nan,
        "train_loss": float(last["train_loss"][0]) if len(last["train_loss"]) else math.nan,
        "seconds": seconds,
        "reports_per_second": len(delays) / seconds if seconds > 0 else math.nan,
        "mean_delay": float(delays.mean()) if len(delays) else math.nan,
        "max_delay": int(delays.max()) if len(delays) else 0,
    }
    return without_nan(facts)


def _epochs(reports: int, evaluated: Columns) -> float:
    """As many as the reports are now; what one of them is of an epoch, the last evaluation tells."""
    if not reports:
        return 0.0
    known = len(evaluated["reports"]) > 0 and evaluated["reports"][0] > 0
    return reports * float(evaluated["epoch"][0] / evaluated["reports"][0]) if known else math.nan


def _curves(metrics: Columns) -> dict[str, Any]:
    found = {}
    for name in CURVES:
        values = metrics[name].astype(np.float64)
        places = thin(values)
        if np.isnan(values).all():
            continue
        wanted = {"seconds": metrics["virtual_seconds"], "samples": metrics["samples"], "epoch": metrics["epoch"]}
        found[name] = {key: numbers(column[places]) for key, column in {**wanted, "value": values}.items()}
    return found


def _thinned(reports: Columns, by: str, names: tuple[str, ...]) -> dict[str, Any]:
    places = thin(reports[by])
    return {name: numbers(reports[name][places]) for name in names}


def _groups(config: RunConfig, events: Columns) -> dict[str, Any] | str:
    """Into which group each update went, and its weight in the momentum then; or why there is none of that."""
    reports = only(events, events["kind"] == "report")
    if len(reports["weight"]) and np.isnan(reports["weight"]).all():
        return f"{config.method.name} keeps no momentum that reports are sorted into."
    behind, weight = reports["behind"], reports["weight"]
    newest = reports["group"] + behind
    places = thin(behind)
    recent = np.flatnonzero(newest > newest[-1:].sum() - GROUPS_SHOWN)[-DOTS_SHOWN:]
    places = np.union1d(places, recent)
    columns = {"iteration": reports["iteration"], "group": reports["group"], "behind": behind, "weight": weight}
    columns |= {"worker": reports["worker"], "delay": reports["delay"]}
    ranges = {}
    if len(recent):  # with those that came late, and so belong to older groups
        ranges = {name: [int(columns[name][recent].min()), int(columns[name][recent].max())] for name in RANGED}
    return {"shown": ranges, **{name: numbers(column[places]) for name, column in columns.items()}}


def numbers(column: NDArray[Any]) -> list[Any]:
    """For JSON: what is not finite becomes None, and no more digits than a picture shows."""
    values: list[Any] = column.tolist()
    if column.dtype.kind != "f":
        return values
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found
