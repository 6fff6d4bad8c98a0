"""Two or three sentences on runs, from their own numbers: above the page, and at the end of a command."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from orlomo.loading import is_import_path
from orlomo.printing import printable
from orlomo.records.run import Run
from orlomo.records.tables import MetricColumn
from orlomo.report.comparison.groups import by_method
from orlomo.report.comparison.rows import MethodTable, Row, method_table
from orlomo.report.comparison.texts import spread_text
from orlomo.report.speed import ratio_text, time_text
from orlomo.report.view import View, view_of

SLOW = 1.5
"""A worker that takes so many times as long for a round as fast ones is called slow."""

MOST_NAMED = 4
"""Methods that a sentence names."""

MOST_WARNINGS = 4
"""Warnings that are written out."""


def story(runs: Sequence[Run], target: str | None = None) -> list[str]:
    """Sentences on these runs, and warnings about those that went wrong. `target`: as a user types it.

    >>> import orlomo
    >>> run = orlomo.train("digits", workers=2, epochs=1, jobs=1, out=getfixture("tmp_path") / "run")
    >>> story([run])[0].startswith("orlomo trained digits on 2 workers")
    True
    """
    views = [view_of(run, run.folder.resolve().name, []) for run in runs]
    return story_of(method_table(by_method(views), target))


def story_of(table: MethodTable) -> list[str]:
    """As `story`, of runs that are in a table."""
    views = [view for row in table.rows for view in row.views]
    if not views:
        return ["No run finished: all diverged."]
    sentences = _of_one(table, views) if len(table.rows) == 1 else _of_several(table, views)
    return [printable(sentence) for sentence in (*sentences, *warnings_of(views))]


def _of_one(table: MethodTable, views: Sequence[View]) -> list[str]:
    """On one run, or on the seeds of one method."""
    [row], view = table.rows, views[0]
    config = view.config
    seeds = f", {len(views)} seeds" if len(views) > 1 else ""
    where = f"{config.where} cluster" if config.clock == "virtual" else config.where
    several = "s" * (config.workers != 1)
    task = f" {task_text(config.task)}" if config.task != "custom" else ""
    begin = f"{row.method} trained{task} on {config.workers} worker{several} ({where}{seeds})"
    if any(one.state == "running" for one in views):
        begin += " so far"
    done = []
    epochs = [float(one.metrics["epoch"][-1]) for one in views if len(one.metrics["epoch"])]
    if epochs:
        done.append(
            f"{np.median(epochs):.3g} of {config.epochs:g} epochs"
            if _short(views)
            else f"{np.median(epochs):.3g} epochs"
        )
    else:
        done.append(f"{sum(one.seen.reports for one in views):,} reports")
    if not math.isnan(row.seconds):
        done[-1] += f" in {time_text(row.seconds)} {table.clock}"
    text = f"{begin}: {done[0]}"
    one = table.metric
    if one is not None and not math.isnan(row.metrics.get(one.column, math.nan)):
        text += f", to {_value(row, one)} {one.label}"
    speed = row.speed
    if table.target is not None and speed.reached == speed.seeds and speed.to_target < row.seconds:
        text += f"; {table.target} was reached after {time_text(speed.to_target)}"
    elif table.target is not None and speed.reached < speed.seeds:
        count = f"by {speed.reached} of {speed.seeds} seeds" if speed.reached else ""
        text += f"; {table.target} was {'reached ' + count if count else 'not reached'}"
    sentences = [text + "."]
    if not math.isnan(row.computing):
        text = f"Workers computed {row.computing:.0%} of the time"
        if not view.config.method.synchronous and not math.isnan(row.delay_median):
            text += f"; the median delay was {_reports(row.delay_median)}, the largest {row.max_delay:,}"
        sentences.append(text + ".")
    return [*sentences, *_on_workers(row)]


def task_text(task: str) -> str:
    """A task in a sentence: a user's own by its file and name, without the folder.

    >>> task_text("digits"), task_text("/home/me/mine.py:task")
    ('digits', 'mine.py:task')
    """
    return task.rpartition("/")[2] if is_import_path(task) else task


def _reports(count: float) -> str:
    return f"{count:.0f} report{'s' * (count != 1)}"


def _short(views: Sequence[View]) -> bool:
    """Whether the runs did fewer epochs than was planned."""
    return any(len(v.metrics["epoch"]) and v.metrics["epoch"][-1] < v.config.epochs * (1 - 1e-9) for v in views)


def _value(row: Row, one: MetricColumn) -> str:
    text = one.text(row.metrics[one.column])
    spread = row.spreads[one.column]
    return text if math.isnan(spread) else f"{text} (± {spread_text(spread, one)})"


def _of_several(table: MethodTable, views: Sequence[View]) -> list[str]:
    """On several methods, against the synchronous one where there is one."""
    tasks = list(dict.fromkeys(task_text(view.config.task) for view in views))
    if len(tasks) > 1:
        return [
            f"{len(views)} runs of {len(tasks)} tasks ({', '.join(tasks[:MOST_NAMED])}): their times are not compared."
        ]
    if len({view.clock for view in views}) > 1:
        return [f"{len(views)} runs, some simulated and some real: their times are not compared."]
    reference = next((row for row in table.rows if row.method == table.speeds.reference), None)
    main = _main(table, reference)
    parts = [_for_work(table, main, reference), _computing(table, main, reference)]
    work = "; ".join(part for part in parts if part)
    first = _to_target(table, main, reference)
    sentences = [text for text in (first, f"{work[:1].upper()}{work[1:]}." if work else "") if text]
    return [*sentences, *_on_workers(main)]


def _main(table: MethodTable, reference: Row | None) -> Row:
    """The method that is told about: OrLoMo, else the first that is not the reference and came to its end."""
    others = [row for row in table.rows if row is not reference and row.views]
    return next((row for row in others if row.name == "orlomo"), others[0] if others else table.rows[0])


def first_run(table: MethodTable, views: Sequence[View]) -> int:
    """The position of the run that is shown in detail at first: one of the method that is told about."""
    reference = next((row for row in table.rows if row.method == table.speeds.reference), None)
    return next((place for place, view in enumerate(views) if view is _main(table, reference).views[0]), 0)


def _to_target(table: MethodTable, main: Row, reference: Row | None) -> str:
    if table.target is None or table.metric is None:
        return ""
    rows = [main, *([reference] if reference is not None else [])]
    rest = [row for row in table.rows if row not in rows]
    rest.sort(key=lambda row: row.speed.to_target if row.speed.reached == row.speed.seeds else math.inf)
    reached = [row for row in (*rows, *rest) if row.speed.reached == row.speed.seeds]
    partly = [row for row in (*rows, *rest) if 0 < row.speed.reached < row.speed.seeds]
    never = [row for row in (*rows, *rest) if not row.speed.reached]
    text = ""
    for row in reached[:MOST_NAMED]:
        time = time_text(row.speed.to_target)
        own = (
            ""
            if row is reference or math.isnan(row.speed.to_target_speed_up)
            else ratio_text(row.speed.to_target_speed_up)
        )
        if not text:
            text = f"{row.method} reached {table.target} {table.metric.label} in {time} {table.clock}"
            first = own
        elif row is reference and first:
            text += f", {row.method} in {time} ({first})"
        else:
            text += f", {row.method} in {time}" + f" ({own})" * bool(own)
    if len(reached) > MOST_NAMED:
        text += f" ({len(reached) - MOST_NAMED} more did)"
    goal = "it" if text else f"{table.target} {table.metric.label}"
    parts = [text] if text else []
    parts += [
        f"{row.method} reached {goal} with {row.speed.reached} of {row.speed.seeds} seeds"
        for row in partly[:MOST_NAMED]
    ]
    if never:
        names = [row.method for row in never[:MOST_NAMED]] + (["others"] if len(never) > MOST_NAMED else [])
        parts.append(f"{_listed(names)} did not reach {'it' if parts else goal}")
    return "; ".join(parts) + "."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _for_work(table: MethodTable, main: Row, reference: Row | None) -> str:
    if table.speeds.work is None or not math.isfinite(main.speed.for_work):
        return ""
    work = f"{table.speeds.work:,.0f} samples" if math.isnan(table.epochs) else f"{table.epochs:.3g} epochs"
    text = f"{work} took {main.method} {time_text(main.speed.for_work)} {table.clock}"
    if reference is not None and math.isfinite(reference.speed.for_work):
        times = time_text(reference.speed.for_work), ratio_text(main.speed.for_work_speed_up)
        text += f", {reference.method} {times[0]} ({times[1]})"
    return text


def _computing(table: MethodTable, main: Row, reference: Row | None) -> str:
    others = [row for row in table.rows if row is not main and not math.isnan(row.computing)]
    against = reference if reference is not None and reference in others else next(iter(others), None)
    if math.isnan(main.computing) or against is None:
        return ""
    return (
        f"{_whose(main)} workers computed {main.computing:.0%} of the time, {_whose(against)} {against.computing:.0%}"
    )


def _whose(row: Row) -> str:
    return f"{row.method}'s"


def _on_workers(row: Row) -> list[str]:
    """Which workers were slow, and what happened to them."""
    parts = []
    if slow := _slow(row.views):
        parts.append(slow)
    if row.faults:
        of = f" in {len(row.views)} runs" if len(row.views) > 1 else ""
        parts.append(f"Faults{of}: {row.fault_text}")
    return [". ".join(parts) + "."] if parts else []


def _slow(views: Sequence[View]) -> str:
    """On the workers that need longer for a round than others, in all of these runs; nothing where none does."""
    slow = [_slow_workers(view) for view in views]
    numbers = {len(chosen) for chosen, _, _ in slow}
    if not numbers or len(numbers) > 1 or 0 in numbers:
        return ""
    count, workers = numbers.pop(), views[0].config.workers
    low, high = (float(np.median([ratios[place] for _, ratios, _ in slow])) for place in (0, 1))
    times = f"{low:.2g} to {high:.2g}" if high > 1.25 * low else f"{(low + high) / 2:.2g}"
    text = f"{count} of {workers} workers took {times} times as long for a round as the others"
    cuts = [cut for _, _, cut in slow]
    if all(cut is not None for cut in cuts) and (every := sum(cut[1] for cut in cuts if cut is not None)):
        own = sum(cut[0] for cut in cuts if cut is not None)
        share = f"all {every:,}" if own == every else f"{own:,} of the {every:,}"
        if every > 1:
            text += f"; {share} reports with a weight cut for delay were theirs"
    return text


def _slow_workers(view: View) -> tuple[list[int], tuple[float, float], tuple[int, int] | None]:
    """The slow workers, how many times as long they take as the others (the fastest and the slowest of them), and the
    cut weights: theirs, and all.

    Weights are cut by the delay-adaptive rule only.
    """
    pace = view.seen.tallies.pace
    if len(pace.worker) < 2 or not (pace.compute > 0).all():
        return [], (math.nan, math.nan), None
    fast = np.quantile(pace.compute, 0.5, method="lower")  # at most half of the workers are slow
    slow = pace.compute >= SLOW * fast
    if not slow.any():
        return [], (math.nan, math.nan), None
    ratios = pace.compute[slow] / np.median(pace.compute[~slow])
    times = float(ratios.min()), float(ratios.max())
    cut = None
    if getattr(view.config.method, "global_rate", None) == "delay-adaptive":
        cut = int(pace.cut[slow].sum()), int(pace.cut.sum())
    return pace.worker[slow].tolist(), times, cut


def warnings_of(views: Sequence[View]) -> list[str]:
    """What went wrong in training, in runs that are not at work."""
    found = [text for view in views if view.state != "running" for text in [_warning(view)] if text]
    more = len(found) - MOST_WARNINGS
    return found[:MOST_WARNINGS] + ([f"Warning: {more} more runs ended badly."] if more > 0 else [])


def _warning(view: View) -> str:
    """Whether a run ended no better than it began, by its losses or by its most important metric."""
    if len(view.metrics["reports"]) < 2:
        return ""
    rate = f"; its learning rate was {view.config.method.learning_rate:g}" if not view.config.is_loop else ""
    for one in sorted(view.measured, key=lambda one: one.better == "higher"):
        values = view.metrics[one.column]
        if np.isnan(values).all():
            continue
        first, last = float(values[0]), float(values[-1])
        sign = 1 if one.better == "higher" else -1
        if not math.isfinite(last):
            return f"Warning: {view.name} ended with a {one.label} that is not a number{rate}."
        if one.better != "higher" and last > first:
            return f"Warning: in {view.name} the {one.label} grew from {one.text(first)} to {one.text(last)}{rate}."
        if one is _first(view) and math.isfinite(first) and sign * last <= sign * first:
            return (
                f"Warning: {view.name} ended at {one.text(last)} {one.label}, no better than before training "
                f"({one.text(first)}){rate}."
            )
    return ""


def _first(view: View) -> MetricColumn | None:
    """The most important metric that has values."""
    return next((one for one in view.measured if not np.isnan(view.metrics[one.column]).all()), None)
