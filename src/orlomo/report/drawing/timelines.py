"""Timelines drawn by matplotlib: of one run, and of a synchronous and an asynchronous run on one time axis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orlomo.errors import require
from orlomo.records.run import Run
from orlomo.records.tables import EVENTS, headline, only, usable
from orlomo.report import colours
from orlomo.report.colours import Palette
from orlomo.report.drawing.style import HATCHES, colour_of, figure_files, plain_text
from orlomo.report.streaming.rounds import ROUNDS_KEPT, STATES, Numbers
from orlomo.report.workers.timeline import Bars, bars, column_of, uses

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELLED = 40
"""At most so many rows of a timeline have a label."""

FEW_ROUNDS = 80
"""Up to so many per worker are all drawn, on average."""

IN_LEGEND = ("computing", "transfer", "waiting")

HEIGHT = 0.84
"""Of a row whose rows are 1 apart."""


class Theme(NamedTuple):
    """Colours of a picture: of the states, of text, of thin lines, behind what waits, and behind everything."""

    palette: Palette
    text: str
    line: str
    idle: str
    back: str


LIGHT = Theme(colours.LIGHT, "#1c2430", "#c5ccd6", "#eef1f5", "#ffffff")
DARK = Theme(colours.DARK, "#e6edf3", "#3d4654", "#1b222c", "#0d1117")


def draw_timeline(axes: Axes, columns: dict[str, Any], method: str, clock: str) -> None:
    """One row per worker: every round where there are few, else cells of time, in which the row's height is divided by
    the shares of the states. What is lost or absent is drawn exactly."""
    scale = _fill(axes, columns, method)
    axes.set(xlabel=f"{clock}{scale}", xlim=(0, columns["end"] or 1))
    axes.figure.legend(frameon=False, ncols=5, loc="outside lower left", fontsize=8)


def timelines_figure(runs: list[tuple[str, str, dict[str, Any]]], clock: str) -> Figure:
    """Timelines above one another on one time axis, of runs with a title, a method and what `strips` gives."""
    from matplotlib.figure import Figure

    rows = [len(columns["workers"]) for _, _, columns in runs]
    figure = Figure(figsize=(9, min(16.0, 1.6 + 0.5 * len(runs) + 0.22 * sum(rows))), layout="constrained")
    panels = figure.subplots(len(runs), 1, sharex=True, height_ratios=rows, squeeze=False)[:, 0]
    handles: dict[str, Any] = {}
    for axes, (title, method, columns) in zip(panels, runs, strict=True):
        scale = _fill(axes, columns, method)
        axes.set_title(plain_text(title + scale), loc="left", fontsize=10, color=colour_of(method))
        handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    panels[-1].set(xlabel=clock, xlim=(0, max(columns["end"] for _, _, columns in runs) or 1))
    figure.legend(handles.values(), handles, frameon=False, ncols=5, loc="outside lower left", fontsize=8)
    return figure


def _fill(axes: Axes, columns: dict[str, Any], method: str) -> str:
    """Draw the rows; what is to be said of the cells."""
    workers = columns["workers"]
    few = "each" in columns and columns["rounds"] <= FEW_ROUNDS * len(workers)
    drawn = set[str]()
    for state, rows, begin, lengths in _rounds(columns["each"]) if few else ():
        look = _look(state, method, LIGHT) | ({"edgecolor": "white", "linewidth": 0.5} if state == "computing" else {})
        axes.barh(rows, lengths, HEIGHT, begin, label=state, **look)
        drawn.add(state)
    if not few:
        drawn |= _fill_cells(axes, columns, method)
    gone = {name: np.array(column) for name, column in columns["away"].items()}
    for code in np.unique(gone["state"]).tolist():
        own, state = gone["state"] == code, STATES[code]
        label: dict[str, Any] = {} if state in drawn else {"label": state}
        lengths = (gone["end"] - gone["begin"])[own]
        axes.barh(gone["row"][own], lengths, HEIGHT, gone["begin"][own], **label, **_look(state, method, LIGHT))
    axes.set_ylim(len(workers) - 0.4, -0.6)
    labelled = np.arange(0, len(workers), -(-len(workers) // LABELLED) or 1)
    axes.set_yticks(labelled, np.array(workers)[labelled])
    axes.set_ylabel("worker")
    return "" if few else f" (1 cell = {columns['width']:.3g}, {_per_cell(columns)})"


def _rounds(each: dict[str, str]) -> Iterator[tuple[str, Numbers, Numbers, Numbers]]:
    """By state, the rows, beginnings and lengths of the parts of rounds."""
    before, start, work, finish = (column_of(each[name], "<f4") for name in ("before", "start", "work", "finish"))
    rows = column_of(each["row"], "<u2")
    parts = {"waiting": (before, start), "computing": (start, start + work), "transfer": (start + work, finish)}
    for state in IN_LEGEND:
        begin, end = parts[state]
        there = end - begin > 1e-5 * (finish - before)
        if there.any():
            yield state, rows[there], begin[there], (end - begin)[there]


def _fill_cells(axes: Axes, columns: dict[str, Any], method: str) -> set[str]:
    """Draw the cells; the states that there are."""
    workers, cells = columns["workers"], columns["cells"]
    edges = np.minimum(np.arange(cells + 1) * columns["width"], columns["end"])
    bottom = np.zeros((len(workers), cells))
    for state, text in columns["shares"].items():
        share = column_of(text, "u1").reshape(len(workers), cells) / 255
        for row in range(len(workers)):
            low, high = (row + HEIGHT * (0.5 - one[row]) for one in (bottom, bottom + share))
            first, last = columns["first"][row], columns["last"][row]
            steps = np.clip(edges, first if first is not None else 0, last if last is not None else np.inf)
            label = state if not row else None
            axes.stairs(low, steps, baseline=high, fill=True, label=label, **_look(state, method, LIGHT))
        bottom += share
    return set(columns["shares"])


def _per_cell(columns: dict[str, Any]) -> str:
    """How many rounds a cell has, in the middle."""
    done = column_of(columns["done"]["text"], f"<u{columns['done']['bytes']}")
    middle = float(np.median(done[done > 0])) if (done > 0).any() else 0.0
    return f"about {middle:.0f} rounds of a worker" if middle > 1 else "one round of a worker or less"


def _look(state: str, method: str, theme: Theme) -> dict[str, Any]:
    """How a state is drawn: work is solid, the rest is a pattern."""
    if state in HATCHES:
        return {
            "facecolor": theme.idle,
            "edgecolor": theme.palette["states"][state],
            "hatch": HATCHES[state],
            "linewidth": 0,
        }
    return {"facecolor": theme.palette["states"].get(state) or colour_of(method, theme.palette), "linewidth": 0}


def hero_figure(synchronous: Run, asynchronous: Run, path: Path, theme: Theme = LIGHT) -> list[Path]:
    """The timelines of a synchronous and of an asynchronous run above one another, on one time axis: every round.

    Writes a PNG and an SVG file; `path` is without an ending. Texts and numbers are the runs' own.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    both = (synchronous, asynchronous)
    require(synchronous.config.method.synchronous, f"{synchronous.folder} is not a run of a synchronous method")
    require(not asynchronous.config.method.synchronous, f"{asynchronous.folder} is a run of a synchronous method")
    require(synchronous.clock == asynchronous.clock, f"{synchronous.folder} and {asynchronous.folder} differ in clock")
    seen = [_seen(run) for run in both]
    longest = max(one.end for one in seen)
    chosen: Any = dict.fromkeys(("text.color", "xtick.color", "ytick.color", "axes.labelcolor"), theme.text)
    chosen |= dict.fromkeys(("figure.facecolor", "savefig.facecolor", "axes.facecolor"), theme.back)
    with rc_context({**chosen, "axes.edgecolor": theme.line, "hatch.linewidth": 0.8, "font.size": 11}):
        rows = [len(one.workers) for one in seen]
        figure = Figure(figsize=(10, 1.9 + 0.3 * sum(rows)), layout="constrained")
        panels = figure.subplots(2, 1, sharex=True, height_ratios=rows)
        for axes, run, one in zip(panels, both, seen, strict=True):
            _draw_every_round(axes, run, one, theme)
            axes.set_xlim(0, longest * 1.005)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(length=0)
        panels[0].spines["bottom"].set_visible(False)
        panels[1].set_xlabel(both[0].clock)
        _say_sooner(panels[1], both, seen, longest, theme)
        handles = _legend_of(seen, theme)
        figure.legend(handles=handles, frameon=False, ncols=len(handles), loc="outside lower right", fontsize=10)
        return figure_files(figure, path)


class _Seen(NamedTuple):
    drawn: Bars
    workers: NDArray[np.int64]
    end: float
    computing: float
    slower: dict[int, float]
    last: dict[int, float]


def _seen(run: Run) -> _Seen:
    """What the picture says of a run: its bars, and the share of its workers' time that they computed."""
    events = only(run.event_columns, usable(run.event_columns, EVENTS))
    require(0 < len(events["kind"]) <= ROUNDS_KEPT, f"{run.folder} has no events, or too many to draw every round")
    end = float(events["finish"][events["kind"] == "report"][-1])
    synchronous = run.config.method.synchronous
    drawn = bars(events, end if run.virtual else 0.0, synchronous)
    used = uses(events, 0, end if run.virtual else 0.0, synchronous)
    share = float(np.nanmean([use.computing for use in used]))
    times = {use.worker: use.round_seconds for use in used}
    middle = float(np.nanquantile(list(times.values()), 0.5, method="lower"))
    last = {worker: float(drawn.end[drawn.worker == worker].max()) for worker in np.unique(drawn.worker).tolist()}
    return _Seen(drawn, np.unique(drawn.worker), end, share, {w: t / middle for w, t in times.items()}, last)


def _draw_every_round(axes: Axes, run: Run, one: _Seen, theme: Theme) -> None:
    method = run.config.method.name
    row_of = {worker: row for row, worker in enumerate(one.workers.tolist())}
    rows = np.array([row_of[worker] for worker in one.drawn.worker.tolist()])
    lengths = one.drawn.end - one.drawn.begin
    for code, state in enumerate(STATES):
        own = one.drawn.state == code
        if own.any():
            look = _look(state, method, theme)
            if state == "computing":
                look |= {"edgecolor": theme.back, "linewidth": 0.8}  # between rounds
            axes.barh(rows[own], lengths[own], HEIGHT, one.drawn.begin[own], **look)
    if not run.config.method.synchronous:  # work that nobody has seen: the run ended before the report
        for worker, last in one.last.items():
            if one.end - last > 0:
                look = {
                    "facecolor": "none",
                    "edgecolor": colour_of(method, theme.palette),
                    "linewidth": 0.8,
                    "linestyle": (0, (2, 2)),
                }
                axes.barh(row_of[worker], one.end - last, HEIGHT - 0.04, last, **look)
    labels = [_worker_label(run, worker, one.slower.get(worker, 1.0)) for worker in one.workers.tolist()]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    kind = "Synchronous" if run.config.method.synchronous else "Asynchronous"
    title = f"{kind} ({method}): workers computed {one.computing:.0%} of the time"
    axes.set_title(
        plain_text(title), loc="left", fontsize=12.5, fontweight="bold", color=colour_of(method, theme.palette), pad=6
    )


def _worker_label(run: Run, worker: int, slower: float) -> str:
    """The worker, and how many times slower it was: as the config says, else as its rounds took."""
    pace = run.config.pace
    if pace is not None:
        times = pace[worker % len(pace)] / min(pace)
        return f"worker {worker}" + (f" (slowed {times:g}x)" if times > 1 else "")
    return f"worker {worker}" + (f" ({slower:.1f}x slower)" if slower >= 1.5 else "")


def _say_sooner(axes: Axes, both: tuple[Run, Run], seen: list[_Seen], longest: float, theme: Theme) -> None:
    """Beside the shorter run: how long both took for the same work, and how good the models were."""
    first, second = both
    if first.config.epochs != second.config.epochs or seen[1].end > 0.75 * longest:
        return
    values = []
    for run in both:
        one = headline(run.measured, run.metric_columns)
        values.append(one.text(float(run.metric_columns[one.column][-1])))
    ratio = seen[0].end / seen[1].end
    lines = (
        f"{first.config.epochs:.3g} epochs in {_seconds(seen[1].end)} {first.clock}",
        f"instead of {_seconds(seen[0].end)}: {ratio:.1f} times as fast",
        f"{one.label} at the end {values[1]}, synchronous {values[0]}",
    )
    middle = (len(seen[1].workers) - 1) / 2
    text = "\n".join(plain_text(line) for line in lines)
    where = seen[1].end + 0.02 * longest, middle
    axes.text(*where, text, va="center", fontsize=12, linespacing=1.5, color=theme.text).set_in_layout(False)


def _seconds(time: float) -> str:
    return f"{time:,.0f}" if time >= 100 else f"{time:.1f}"


def _legend_of(seen: list[_Seen], theme: Theme) -> list[Any]:
    from matplotlib.patches import Patch

    states = [state for code, state in enumerate(STATES) if any((one.drawn.state == code).any() for one in seen)]
    found: list[Any] = []
    for state in states:
        look = _look(state, "", theme)
        if state == "computing":
            look = {"facecolor": theme.text, "linewidth": 0}
        found.append(Patch(label="waiting for others" if state == "waiting" else state, **look))
    dotted: Any = {"facecolor": "none", "edgecolor": theme.text, "linewidth": 0.8, "linestyle": (0, (2, 2))}
    return [*found, Patch(label="not reported by the end", **dotted)]
