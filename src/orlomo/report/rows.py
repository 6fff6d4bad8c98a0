"""One row per method: its runs over several seeds, how fast they were and how they ended."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from orlomo.errors import require
from orlomo.loading import is_import_path
from orlomo.printing import printable
from orlomo.records.tables import MetricColumn, first_of_each, headline
from orlomo.report.speed import Curve, Speed, Speeds, Target, given_target, median, ratio_text, speeds, time_text
from orlomo.report.summary import markdown, markdown_cell, mean, number_text, spread, with_diverged
from orlomo.report.view import View


@dataclass(frozen=True)
class Row:
    """One method over its seeds; NaN: not known.

    `metrics` are means of the last evaluations by column, `spreads` their sample standard deviations. `seconds` are
    those of the whole run (median), `computing` is the share of the workers' time. Delays are of the reports of all
    seeds. `faults`: how many events of each kind happened to workers.
    """

    method: str
    name: str  # the method's own: that of its colour
    views: tuple[int, ...]  # the positions of its runs among those that are shown
    runs: int
    diverged: int
    measured: tuple[MetricColumn, ...]
    metrics: dict[str, float]
    spreads: dict[str, float]
    seconds: float
    speed: Speed
    computing: float
    mean_delay: float
    delay_median: float
    delay_95: float
    max_delay: int
    faults: dict[str, int]

    def values(self) -> dict[str, object]:
        """One value per column of a file."""
        own = vars(self)
        found: dict[str, object] = {name: own[name] for name in ("method", "runs", "diverged")}
        found |= self.metrics
        found |= {f"{column}_spread": value for column, value in self.spreads.items()}
        found |= {"seconds": self.seconds, "reached_target": self.speed.reached}
        found |= {"seconds_to_target": self.speed.to_target, "speed_up_to_target": self.speed.to_target_speed_up}
        found |= {"seconds_for_equal_work": self.speed.for_work}
        found |= {"speed_up_for_equal_work": self.speed.for_work_speed_up}
        found |= {name: own[name] for name in ("computing", "mean_delay", "delay_median", "delay_95", "max_delay")}
        return found | {"faults": "; ".join(f"{kind} {count}" for kind, count in self.faults.items())}

    @property
    def delay_text(self) -> str:
        """The median, the 95% quantile and the largest delay."""
        if math.isnan(self.delay_median):
            return "-"
        return f"{self.delay_median:.0f} / {self.delay_95:.0f} / {self.max_delay:,}"

    @property
    def fault_text(self) -> str:
        """What happened to workers; a dash where nothing did."""
        words = {"crash": ("crash", "crashes"), "leave": ("left", "left"), "join": ("joined", "joined")}
        words |= {"return": ("returned", "returned"), "drop": ("dropped report", "dropped reports")}
        found = [f"{count:,} {words[kind][count != 1]}" for kind, count in self.faults.items() if count]
        return ", ".join(found) or "-"


@dataclass(frozen=True)
class MethodTable:
    """One row per method, and what their speeds are measured by. `metric`: the one that is shown where one is."""

    rows: list[Row]
    speeds: Speeds
    metric: MetricColumn | None
    clock: str
    epochs: float  # that the equal work is

    @property
    def target(self) -> Target | None:
        """What `time to target` is measured by."""
        return self.speeds.target

    @property
    def note(self) -> str:
        """How the times are taken."""
        parts = [f"Times in {self.clock}, the median over seeds."]
        if self.target is not None and self.metric is not None:
            parts.append(f"To {self.target}: the first evaluation that reaches this {self.metric.label}.")
        if self.speeds.work is not None:
            parts.append(f"Equal work: {self.speeds.work:,.0f} samples ({number_text(self.epochs, '.3g')} epochs).")
        if self.speeds.reference is not None:
            parts.append(f"In brackets: how many times faster than {self.speeds.reference}.")
        return " ".join(parts)


def method_table(
    groups: Mapping[str, Sequence[View | None]], target: str | None = None, reference: str | None = None
) -> MethodTable:
    """One row per method, from its runs, one per seed; None stands for a run that diverged.

    `target`: as a user types it. `reference`: the method that speed-ups are over; default: `reference_of`.
    """
    every = [view for group in groups.values() for view in group if view is not None]
    one = _shared_metric(every)
    clocks = {view.clock for view in every}
    known: dict[str, list[Curve | None]] = {
        name: [
            None if view is None or one is None else Curve.of(view.metrics, one, view.state == "finished")
            for view in group
        ]
        for name, group in groups.items()
    }
    if target is not None:
        require(one is not None, "--target: these runs have no metric in common")
    value = None if target is None or one is None else given_target(target, one)
    comparable = one is not None and len(clocks) == 1 and len({view.config.task for view in every}) == 1
    chosen = reference_of(groups) if reference is None else reference
    found = speeds(known, one, value, chosen if comparable else None)
    if not comparable:
        found = Speeds(found.target if value is not None else None, None, None, found.methods)
    measured = tuple(dict.fromkeys(column for view in every for column in view.measured))
    positions = {id(view): number for number, view in enumerate(every)}
    rows = [_row(name, group, measured, found.methods[name], positions) for name, group in groups.items()]
    clock = clocks.pop() if len(clocks) == 1 else "seconds (virtual where simulated)"
    return MethodTable(rows, found, one, clock, _epochs(every, found.work))


def _shared_metric(views: Sequence[View]) -> MetricColumn | None:
    """The most important metric of the first run that all runs have."""
    for view in views:
        if not view.measured:
            return None
    shared = [one for one in (views[0].measured if views else ()) if all(one in view.measured for view in views)]
    return headline(shared, views[0].metrics) if shared else None


def _epochs(views: Sequence[View], samples: float | None) -> float:
    """So many samples as epochs; NaN where it is not known."""
    for view in views:
        if samples is not None and len(view.metrics["samples"]) and view.metrics["samples"][-1] > 0:
            return samples * float(view.metrics["epoch"][-1] / view.metrics["samples"][-1])
    return math.nan


def _row(
    name: str,
    group: Sequence[View | None],
    measured: tuple[MetricColumn, ...],
    speed: Speed,
    positions: dict[int, int],
) -> Row:
    views = [view for view in group if view is not None]
    last = {one.column: [float(view.metrics[one.column][-1]) for view in views if _has(view, one)] for one in measured}
    shares = [use.computing for view in views for use in view.uses if not math.isnan(use.computing)]
    delays = Counter[int]()
    for view in views:
        width, counts = view.seen.delays.bins(view.seen.delays.max + 1)
        delays.update({number * width: count for number, count in enumerate(counts.tolist()) if count})
    number = sum(delays.values())
    faults = Counter[str]()
    for view in views:
        faults.update({kind: view.seen.tallies.count(kind) for kind in ("crash", "return", "leave", "join", "drop")})
    return Row(
        method=name,
        name=views[0].config.method.name if views else name,
        views=tuple(positions[id(view)] for view in views),
        runs=len(group),
        diverged=len(group) - len(views),
        measured=measured,
        metrics={column: mean(values) for column, values in last.items()},
        spreads={column: spread(values) for column, values in last.items()},
        seconds=median([view.seen.last_finish for view in views]),
        speed=speed,
        computing=mean(shares),
        mean_delay=sum(view.seen.delays.sum for view in views) / number if number else math.nan,
        delay_median=_quantile(delays, 0.5),
        delay_95=_quantile(delays, 0.95),
        max_delay=max((view.seen.delays.max for view in views), default=0),
        faults={kind: count for kind, count in faults.items() if count},
    )


def _has(view: View, one: MetricColumn) -> bool:
    return one.column in view.metrics and len(view.metrics[one.column]) > 0


def _quantile(counts: Counter[int], share: float) -> float:
    """The smallest value that so large a share of them does not exceed; NaN of none."""
    wanted, seen = share * sum(counts.values()), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return float(value)
    return math.nan


def label(name: str) -> str:
    """What to call a method in tables and folders: a built-in one by its name, a user's own by file and class.

    >>> label("orlomo"), label("/home/me/my_method.py:MyMethod")
    ('orlomo', 'my_method-MyMethod')
    """
    if not is_import_path(name):
        return name
    where, _, attribute = name.rpartition(":")
    return f"{Path(where).stem if where.endswith('.py') else where}-{attribute}"


def reference_of(groups: Mapping[str, Sequence[View | None]]) -> str | None:
    """The synchronous method that speed-ups are over: PRSGDm where it is among them, else the first; None: none is."""
    found = []
    for name, group in groups.items():
        methods = [view.config.method for view in group if view is not None]
        if methods and methods[0].synchronous and methods[0].max_workers is None:
            found.append((methods[0].name != "prsgdm", name))
    return min(found, key=lambda pair: pair[0])[1] if found and len(groups) > 1 else None


def shown_metrics(table: MethodTable) -> list[MetricColumn]:
    """One column per metric that has values, the most important first."""
    every = first_of_each(table.rows[0].measured) if table.rows else []
    return [one for one in every if not all(math.isnan(row.metrics[one.column]) for row in table.rows)]


def target_cell(speed: Speed) -> str:
    """The time to the target with its speed-up, or how many seeds reached it."""
    if math.isnan(speed.to_target):
        return "-"
    if speed.reached < speed.seeds:
        return f"{speed.reached} of {speed.seeds} seeds" if speed.reached else "not reached"
    return _with_ratio(speed.to_target, speed.to_target_speed_up)


def work_cell(speed: Speed) -> str:
    """The time for equal work with its speed-up."""
    return _with_ratio(speed.for_work, speed.for_work_speed_up)


def _with_ratio(seconds: float, speed_up: float) -> str:
    return time_text(seconds) + ("" if math.isnan(speed_up) else f" ({ratio_text(speed_up)})")


def metric_cell(row: Row, one: MetricColumn) -> str:
    """A metric at the end: its mean and its spread."""
    text = one.text(row.metrics[one.column])
    if not math.isnan(row.spreads[one.column]):
        text += f" ± {one.text(row.spreads[one.column]).removesuffix('%')}"
    return with_diverged(text, row.diverged, row.runs)


def columns(table: MethodTable, every_metric: bool = False) -> list[tuple[str, list[str]]]:
    """The table's columns as text: a heading, and one cell per row. Those that would be empty are left out."""
    rows, metrics = table.rows, shown_metrics(table)
    found = [("method", [row.method for row in rows])]
    if table.target is not None:
        found.append((f"to {table.target}", [target_cell(row.speed) for row in rows]))
    if table.speeds.work is not None:
        found.append(("equal work", [work_cell(row.speed) for row in rows]))
    else:
        found.append(("time", [time_text(row.seconds) for row in rows]))
    for one in metrics if every_metric else metrics[:1]:
        found.append((one.label, [metric_cell(row, one) for row in rows]))
    if not metrics:
        found.append(("result", [with_diverged("-", row.diverged, row.runs) for row in rows]))
    found.append(("computing", [number_text(100 * row.computing, ".0f", "%") for row in rows]))
    found.append(("delay 50% / 95% / max", [row.delay_text for row in rows]))
    if any(row.faults for row in rows):
        found.append(("faults", [row.fault_text for row in rows]))
    return found


def terminal_table(table: MethodTable, title: str) -> Table:
    """The table for a terminal."""
    drawn = Table(
        title=Text(printable(title)),
        caption=Text(printable(table.note)),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    found = columns(table)
    for heading, _ in found:
        first, _, rest = printable(heading).partition(" ")
        shown = f"{first}\n{rest}" if len(heading) > 10 else printable(heading)
        drawn.add_column(
            Text(shown), justify="left" if heading == "method" else "right", no_wrap=True, vertical="bottom"
        )
    for cells in zip(*(cells for _, cells in found), strict=True):
        drawn.add_row(*(Text(printable(cell)) for cell in cells))
    return drawn


def markdown_table(table: MethodTable) -> str:
    """The table for a document, with all metrics."""
    found = columns(table, every_metric=True)
    rows = list(zip(*(cells for _, cells in found), strict=True))
    return (
        markdown([heading for heading, _ in found], rows, words=("method", "faults"))
        + f"\n{markdown_cell(table.note)}\n"
    )
