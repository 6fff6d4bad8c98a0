"""One row per method: its runs over several seeds, how fast they were and how they ended."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orlomo.errors import require
from orlomo.records.tables import MetricColumn, headline
from orlomo.report.speed import Curve, Speed, Speeds, Target, given_target, median, speeds
from orlomo.report.summary import mean, number_text, spread
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
    views: tuple[View, ...]
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
        """The median, the 95% quantile and the largest delay; a dash where no report had one."""
        if math.isnan(self.delay_median) or not self.max_delay:
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

    def ranked(self) -> MethodTable:
        """The reference first, then those that reached the target, the fastest first."""
        rows = sorted(self.rows, key=lambda row: (row.method != self.speeds.reference, *_rank(row)))
        return replace(self, rows=rows)

    @property
    def note(self) -> str:
        """How the times are taken."""
        seeds = ", the median over seeds" if any(row.runs > 1 for row in self.rows) else ""
        parts = [f"Times in {self.clock}{seeds}."]
        if self.target is not None and self.metric is not None:
            parts.append("To a target: up to the first evaluation that reaches it.")
        if self.speeds.work is not None and len(self.rows) > 1:
            parts.append(f"Equal work: {self.speeds.work:,.0f} samples ({number_text(self.epochs, '.3g')} epochs).")
        if self.speeds.reference is not None:
            parts.append(f"In brackets: the speed-up over {self.speeds.reference}.")
        return " ".join(parts)


def _rank(row: Row) -> tuple[int, float]:
    missed = row.speed.seeds - row.speed.reached
    return missed, 0.0 if math.isnan(row.speed.to_target) else row.speed.to_target


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
    rows = [_row(name, group, measured, found.methods[name]) for name, group in groups.items()]
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
) -> Row:
    views = [view for view in group if view is not None]
    last = {one.column: [float(view.metrics[one.column][-1]) for view in views if _has(view, one)] for one in measured}
    shares = [use.computing for view in views for use in view.uses if not math.isnan(use.computing)]
    delays = Counter[int]()
    for view in views:
        delays.update(dict(zip(*(column.tolist() for column in view.seen.delays.table()), strict=True)))
    number = sum(delays.values())
    faults = Counter[str]()
    for view in views:
        faults.update({kind: view.seen.tallies.count(kind) for kind in ("crash", "return", "leave", "join", "drop")})
    return Row(
        method=name,
        name=views[0].config.method.name if views else name,
        views=tuple(views),
        runs=len(group),
        diverged=len(group) - len(views),
        measured=measured,
        metrics={column: mean(values) for column, values in last.items()},
        spreads={column: spread(values) for column, values in last.items()},
        seconds=median([_seconds(view) for view in views]),
        speed=speed,
        computing=mean(shares),
        mean_delay=sum(view.seen.delays.sum for view in views) / number if number else math.nan,
        delay_median=_quantile(delays, 0.5),
        delay_95=_quantile(delays, 0.95),
        max_delay=max((view.seen.delays.max for view in views), default=0),
        faults={kind: count for kind, count in faults.items() if count},
    )


def _seconds(view: View) -> float:
    """How long the run took: until its last report or its last evaluation."""
    ends = [view.seen.last_finish, *view.metrics["seconds"][-1:].tolist()]
    return max((end for end in ends if not math.isnan(end)), default=math.nan)


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


def reference_of(groups: Mapping[str, Sequence[View | None]]) -> str | None:
    """The synchronous method that speed-ups are over: PRSGDm where it is among them, else the first; None: none is."""
    found = []
    for name, group in groups.items():
        methods = [view.config.method for view in group if view is not None]
        if methods and methods[0].synchronous and methods[0].max_workers is None:
            found.append((methods[0].name != "prsgdm", name))
    return min(found, key=lambda pair: pair[0])[1] if found and len(groups) > 1 else None
