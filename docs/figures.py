"""Draw the figures of docs/concepts.md from real runs: python docs/figures.py (about a minute)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch

import orlomo

IMAGES = Path(__file__).parent / "images/concepts"
RATES = (0.01, 0.02, 0.05, 0.1, 0.2)
METHODS = {
    "prsgdm": ("prsgdm (synchronous)", "#0072B2"),
    "orlomo": ("orlomo", "#D55E00"),
    "al-sgd": ("al-sgd (no momentum)", "#009E73"),
    "async-momentum": ("async-momentum (ignores the order)", "#6a3d9a"),
}
"""What is compared: label and colour, the latter as in reports where a report has one."""
SLOW = 4.0


def main() -> None:
    """All figures, or those that are named: late, order, delays."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 160})
    IMAGES.mkdir(parents=True, exist_ok=True)
    figures = {"late": late, "order": order, "delays": delays}
    for name in sys.argv[1:] or figures:
        with tempfile.TemporaryDirectory() as place:
            figure = figures[name](Path(place))
        figure.savefig(IMAGES / f"{name}.png", bbox_inches="tight")
        print(IMAGES / f"{name}.png")


def late(_: Path) -> plt.Figure:
    """How far one report moves the parameters, on time and two groups late, by the real server."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.1), sharey=True, layout="constrained")
    for plot, method in zip(axes, (orlomo.OrLoMo(local_steps=1), orlomo.method("async-momentum")), strict=True):
        on_time, delayed = moved(method, wait=0), moved(method, wait=8)
        plot.step(range(len(on_time)), on_time, where="post", color="#666666", linewidth=1.4, label="on time")
        plot.step(
            range(len(delayed)),
            delayed,
            where="post",
            color=METHODS[method.name][1],
            linewidth=2.2,
            label="8 reports late",
        )
        plot.set(title=method.name, xlabel="reports folded in", xlim=(0, 48), ylim=(0, 10.5))
        plot.legend(frameon=False, loc="lower right")
    axes[0].set_ylabel("effect of one report\n(1 = its own change)")
    return figure


def moved(method: orlomo.Method, wait: int, workers: int = 4, reports: int = 56) -> list[float]:
    """The parameter after each report, where one report of worker 3, after `wait` others, is 1 and all others are 0."""
    server = method.server(torch.zeros(1), workers)
    server.start()
    turns = [[0, 1, 2][n % 3] for n in range(wait)] + [3] + [n % workers for n in range(reports)]
    effects = [0.0]
    for worker in turns:
        first = worker == 3 and len(effects) == wait + 1
        change = torch.ones(1) if first else torch.zeros(1)
        vectors = {"delta_params": change, "delta_momentum": change.clone()}
        index = server.ledger.outstanding[worker].index
        sent = {name: vectors[name] for name in method.report_vectors}
        server.receive(orlomo.Report(worker, index, vectors=sent))
        effects.append(-workers * float(server.params[0]))
    return effects[:reports]


def order(place: Path) -> plt.Figure:
    """Four methods on uneven workers, three seeds each, with the best of five learning rates for seed 0."""
    figure, plot = plt.subplots(figsize=(7.4, 4.0), layout="constrained")

    def trained(name: str, rate: float, seed: int) -> dict[str, np.ndarray]:
        run = orlomo.train(
            "digits",
            orlomo.method(name, learning_rate=rate, local_steps=4),
            workers=16,
            epochs=60,
            cluster=f"heterogeneous:{SLOW:g}",
            seed=seed,
            out=place / f"{name}-{rate}-{seed}",
        )
        return run.metric_columns

    ends: list[tuple[float, str, str]] = []
    for name, (label, colour) in METHODS.items():
        tried = {rate: trained(name, rate, 0) for rate in RATES}
        print(name, {rate: f"{columns['test_accuracy'][-1]:.4f}" for rate, columns in tried.items()})
        rate = max(tried, key=lambda rate: tried[rate]["test_accuracy"][-1])
        runs = [tried[rate], *(trained(name, rate, seed) for seed in (1, 2))]
        grid = np.linspace(0, min(run["seconds"][-1] for run in runs), 120)
        errors = [np.interp(grid, run["seconds"], 100 * (1 - run["test_accuracy"])) for run in runs]
        line = np.mean(errors, axis=0)
        plot.fill_between(grid, np.min(errors, axis=0), np.max(errors, axis=0), color=colour, alpha=0.15, lw=0)
        plot.plot(grid, line, color=colour, linewidth=2)
        final = 100 * np.mean([run["test_accuracy"][-1] for run in runs])
        ends.append((final, f"{label}, rate {rate:g}: {final:.1f}% after {grid[-1]:,.0f} s", colour))
    for row, (_, text, colour) in enumerate(sorted(ends)):
        plot.text(0.98, 0.94 - 0.075 * row, text, color=colour, ha="right", transform=plot.transAxes)
    plot.set(xlabel="virtual seconds", ylabel="test error in percent (logarithmic)", yscale="log", xlim=(0, None))
    plot.set_yticks([2, 5, 10, 20, 50, 90], labels=["2", "5", "10", "20", "50", "90"])
    plot.minorticks_off()
    plot.grid(alpha=0.25)
    return figure


def delays(place: Path) -> plt.Figure:
    """Delays per worker of four worker processes, one of them slowed four times."""
    method = orlomo.OrLoMo(learning_rate=0.05, local_steps=16)
    run = orlomo.train(
        "digits", method, engine="processes", workers=4, pace=[1, 1, 1, SLOW], epochs=120, out=place / "real"
    )
    reports = run.event_columns["kind"] == "report"
    worker, delay = run.event_columns["worker"][reports], run.event_columns["delay"][reports]
    figure, rows = plt.subplots(4, 1, figsize=(7.4, 3.6), sharex=True, layout="constrained")
    for number, plot in enumerate(rows):
        mine = delay[worker == number]
        counts = np.bincount(mine, minlength=25)[:25] / len(mine)
        plot.bar(range(25), 100 * counts, color=METHODS["orlomo"][1] if number == 3 else "#9aa4b0", width=0.8)
        slowed = f", {SLOW:g} times slower" if number == 3 else ""
        above = f", {int((mine > 24).sum())} above 24" if (mine > 24).any() else ""
        text = f"worker {number}{slowed}: median {np.median(mine):g}{above}"
        plot.set_ylim(0, 140 * counts.max())
        plot.text(0.99, 1.0, text, transform=plot.transAxes, ha="right", va="top", fontsize=9)
        plot.set_yticks([])
        plot.spines["left"].set_visible(False)
    rows[-1].set_xlabel("delay: other reports folded in during the round")
    rows[0].set_title(
        f"{len(delay):,} reports of four worker processes: the share of each worker's reports, by delay",
        fontsize=10,
        loc="left",
    )
    return figure


if __name__ == "__main__":
    main()
