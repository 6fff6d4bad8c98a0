"""Run the examples and draw their pictures: python docs/example_pictures.py [NAME...]

Each example runs as its first lines say, in a temporary folder. docs/images/examples/NAME.png is drawn from its run
folders, NAME.txt is what it printed. All of them take about five minutes.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

import orlomo

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))
EXAMPLES, IMAGES = ROOT / "examples", ROOT / "docs" / "images" / "examples"
ORANGE, BLUE, GREEN, GREY = "#D55E00", "#0072B2", "#009E73", "#7f7f7f"
COLOURS = {"orlomo": ORANGE, "prsgdm": BLUE, "al-sgd": GREEN, "local-sgd": BLUE, "local-ormo-da": ORANGE}


def run_example(name: str, *flags: str, command: tuple[str, ...] = ()) -> str:
    """Run an example in the current folder, alone or as `orlomo run` does; returns what it printed."""
    before = [sys.executable, "-m", "orlomo", *command] if command else [sys.executable]
    full = [*before, str(EXAMPLES / f"{name}.py"), *flags]
    printed = subprocess.run(full, stdout=subprocess.PIPE, text=True, check=True).stdout
    (IMAGES / f"{name}.txt").write_text(printed)
    return printed


def only_run() -> orlomo.Run:
    """The one run of an example that does not name its folder."""
    [config] = Path("runs").glob("*/config.toml")
    return orlomo.load(config.parent)


def panels(columns: int = 1, **more: Any) -> tuple[Figure, list[Axes]]:
    """A figure with its panels beside each other."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False, **more).flat)
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25)
        one.set_axisbelow(True)
    return figure, axes


def curve(axes: Axes, run: orlomo.Run, column: str, label: str, colour: str, against: str = "seconds") -> None:
    """A metric against time, with its name at its end."""
    x, y = run.metric_columns[against], run.metric_columns[column]
    axes.plot(x, y, color=colour, linewidth=1.8, label=label)
    axes.plot(x[-1], y[-1], "o", color=colour, markersize=4)


def percent(axes: Axes, low: float) -> None:
    """Accuracy from `low` on, which the label says."""
    axes.set_ylim(low, 1.005)
    axes.yaxis.set_major_locator(MultipleLocator(0.05 if low >= 0.8 else 0.2 if low == 0 else 0.1))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_ylabel(f"test accuracy (axis from {low:.0%})" if low else "test accuracy")


def rounds(axes: Axes, run: orlomo.Run, begin: float = 0.0, end: float = math.inf, colour: str = ORANGE) -> None:
    """One row per worker, one bar per round, from one time to another; a cross where a worker was lost."""
    events = run.event_columns
    first, last = np.maximum(events["start"], begin), np.minimum(events["finish"], end)
    for worker in sorted(set(events["worker"].tolist())):
        own = events["worker"] == worker
        drawn, lost = own & (events["kind"] == "report") & (last > first), own & (events["kind"] == "crash")
        bars = list(zip(first[drawn], (last - first)[drawn], strict=True))
        edge = 0.4 if end < math.inf else 0.0
        axes.broken_barh(bars, (worker - 0.4, 0.8), facecolor=colour, edgecolor="white", linewidth=edge)
        axes.plot(events["finish"][lost], np.full(lost.sum(), worker), "x", color="black", markersize=5)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel=run.clock, ylabel="worker")


def uneven_processes() -> Figure:
    run_example("uneven_processes")
    runs = [orlomo.load(f"runs/uneven/{name}") for name in ("prsgdm", "orlomo")]
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    grid = figure.add_gridspec(2, 2)
    right = figure.add_subplot(grid[:, 1])
    for row, run in enumerate(runs):
        left = figure.add_subplot(grid[row, 0])
        begin = float(np.median(run.event_columns["finish"]))
        rounds(left, run, begin, begin + 1, COLOURS[run.config.method.name])
        if run.config.method.synchronous:
            for worker in range(4):
                left.barh(worker, 1, 0.8, begin, facecolor="none", edgecolor=GREY, hatch="////", linewidth=0, zorder=0)
        wait = " (hatched: waiting)" if run.config.method.synchronous else ""
        left.set(title=run.config.method.name + wait, yticks=range(4), ylabel="worker", xlabel="seconds" if row else "")
        curve(right, run, "test_accuracy", run.config.method.name, COLOURS[run.config.method.name])
        left.spines[["top", "right"]].set_visible(False)
    percent(right, 0.8)
    right.spines[["top", "right"]].set_visible(False)
    right.grid(alpha=0.25)
    right.set(xlabel="seconds", title="the same 20 epochs")
    right.legend(frameon=False)
    return figure


def mnist_like_script() -> Figure:
    flags = ("run", "--workers", "4", "--local-steps", "8", "--pace", "1,1,1,4", "--out", "runs/a", "--quiet")
    run_example("mnist_like_script", command=flags)
    run = orlomo.load("runs/a")
    figure, [axes] = panels()
    middle = float(np.median(run.event_columns["finish"]))
    rounds(axes, run, middle, middle + 1)
    axes.set_yticks(range(4), ["0", "1", "2", "3 (4x slower)"])
    axes.set_title("One second of a training script on four processes: each bar is a round of 8 steps")
    return figure


def character_gpt() -> Figure:
    run_example("character_gpt", "--compare", "runs/gpt")
    figure, [axes] = panels()
    for name in ("local-sgd", "local-ormo-da"):
        run = orlomo.load(Path("runs/gpt") / name)
        label = f"{name}: {run.metric_columns['epoch'][-1]:.0f} epochs"
        curve(axes, run, "validation_loss", label, COLOURS[name])
    axes.set(xlabel="virtual seconds", ylabel="validation loss per character")
    axes.set_title("A small GPT with AdamW, two of eight workers 4 times slower")
    axes.legend(frameon=False)
    return figure


def lora_huggingface() -> Figure:
    flags = ("run", "--method", "local-ormo-da", "--momentum", "0.9", "--local-steps", "4", "--workers", "2")
    run_example("lora_huggingface", "--epochs", "12", command=(*flags, "--out", "runs/a", "--quiet"))
    run = orlomo.load("runs/a")
    from lora_huggingface import SIZES
    from transformers import GPT2Config, GPT2LMHeadModel

    whole = sum(tensor.numel() for tensor in GPT2LMHeadModel(GPT2Config(**SIZES)).parameters())
    figure, [left, right] = panels(2)
    curve(left, run, "eval_loss", "", ORANGE, "epoch")
    left.set(xlabel="epochs", ylabel="eval_loss", title="The Trainer of Hugging Face on two workers")
    bars = right.barh(["whole model", "adapters"], [whole, len(run.params)], 0.5, color=[GREY, ORANGE])
    right.bar_label(bars, fmt="{:,.0f}", padding=4)
    right.margins(x=0.2)
    right.grid(axis="y", visible=False)
    right.set(xlabel="parameters", title="Only the adapters are exchanged")
    return figure


def metrics_and_stopping() -> Figure:
    run_example("metrics_and_stopping")
    run = only_run()
    figure, [left, right] = panels(2)
    curve(left, run, "test_loss", "", GREY, "epoch")
    least = int(np.argmin(run.metric_columns["test_loss"]))
    end = run.metric_columns["epoch"][-1]
    left.axvspan(run.metric_columns["epoch"][least], end, color=GREY, alpha=0.15, linewidth=0)
    left.set(xlabel="epochs", ylabel="test loss", title="Stopped: no improvement in 3 evaluations")
    curve(right, run, "test_auroc", "", ORANGE, "epoch")
    best = run.best.metrics
    right.plot(best["epoch"], best["test_auroc"], "*", color="black", markersize=12)
    right.set_ylim(0.99, 1.0005)
    right.set(
        xlabel="epochs",
        ylabel="AUROC on the test data (axis from 0.99)",
        title=f"The best model kept: {best['test_auroc']:.4f}",
    )
    return figure


def own_method() -> Figure:
    run_example("own_method")
    run = only_run()
    figure, [left, right] = panels(2)
    curve(left, run, "test_accuracy", "", ORANGE)
    percent(left, 0.0)
    left.set(xlabel="virtual seconds", title="A method of one's own: accuracy")
    curve(right, run, "train_loss", "", ORANGE)
    right.set(xlabel="virtual seconds", ylabel="training loss", yscale="log", title="and training loss")
    return figure


def per_worker_data() -> Figure:
    printed = run_example("per_worker_data")
    run = only_run()
    figure, [left, right] = panels(2)
    rounds(left, run, end=60.0)
    names = re.findall(r"worker \d: (\w+), (\d+) patients, ([\d.]+) epochs", printed)
    left.set_yticks(range(2), [f"{name}\n{patients} patients\n{epochs} epochs" for name, patients, epochs in names])
    left.set(ylabel="", title="South is 3 times slower, nobody waits")
    curve(right, run, "test_accuracy", "", ORANGE)
    percent(right, 0.5)
    right.set(xlabel="virtual seconds", title="One model for both hospitals")
    return figure


def text_collate() -> Figure:
    printed = run_example("text_collate")
    run = only_run()
    figure, [axes] = panels()
    curve(axes, run, "test_accuracy", "", ORANGE)
    percent(axes, 0.0)
    axes.set(xlabel="virtual seconds")
    axes.set_title(f"From which module is a sentence? {printed.split(' sentences')[0]} texts of unequal length")
    return figure


def bf16() -> Figure:
    run_example("bf16")
    half = only_run()
    method = orlomo.OrLoMo(learning_rate=0.1, local_steps=4)
    full = orlomo.train(
        "digits", method, workers=8, cluster="heterogeneous", epochs=40, batch_size=64, out="runs/float32"
    )
    figure, [axes] = panels()
    curve(axes, full, "test_accuracy", "float32", GREY)
    curve(axes, half, "test_accuracy", "bfloat16, in pieces of 16 samples", ORANGE)
    percent(axes, 0.8)
    axes.set(xlabel="virtual seconds", title="Half-precision arithmetic learns as float32 does")
    axes.legend(frameon=False)
    return figure


def rehearse_cluster() -> Figure:
    found = re.findall(
        r"^(8 new.*?) +(\w+) +([\d.]+|inf) +([\d.]+|inf)$", run_example("rehearse_cluster"), re.MULTILINE
    )
    figure, axes = panels(2, sharey=True)
    for one, column, title in zip(axes, (2, 3), ("minutes to 96%", "dollars"), strict=True):
        for name, place in (("prsgdm", -0.2), ("orlomo", 0.2)):
            values = [float(row[column]) for row in found if row[1] == name]
            bars = one.barh(np.arange(len(values)) + place, values, 0.38, color=COLOURS[name], label=name)
            one.bar_label(bars, fmt="%.1f", padding=3)
        one.set(title=title)
        one.grid(axis="y", visible=False)
        one.margins(x=0.15)
    axes[0].set_yticks(range(3), list(dict.fromkeys(row[0] for row in found)))
    axes[0].invert_yaxis()
    axes[1].legend(frameon=False)
    return figure


def spot_storm() -> Figure:
    run_example("spot_storm")
    calm, storm = (orlomo.load(f"runs/storm/{name}") for name in ("calm", "storm"))
    figure, [left, right] = panels(2)
    rounds(left, storm)
    lost = int((storm.event_columns["kind"] == "crash").sum())
    left.set(title=f"{lost} workers killed (x), replaced each time")
    curve(right, calm, "test_accuracy", "calm", GREY, "epoch")
    curve(right, storm, "test_accuracy", "storm", ORANGE, "epoch")
    percent(right, 0.8)
    right.set(xlabel="epochs", title=f"{accuracy_of(calm)} calm, {accuracy_of(storm)} in the storm")
    right.legend(frameon=False)
    return figure


def accuracy_of(run: orlomo.Run) -> str:
    """The accuracy at the end."""
    return f"{run.metric_columns['test_accuracy'][-1]:.1%}"


def compare_methods() -> Figure:
    run_example("compare_methods")
    figure, [left, right] = panels(2, width_ratios=(1, 2))
    from compare_methods import labels, points

    for spiral, colour in enumerate((ORANGE, BLUE, GREEN)):
        left.plot(*points[labels == spiral][:300].T, ".", color=colour, markersize=3)
    left.set(title="The task", xticks=[], yticks=[], aspect="equal")
    for name in ("prsgdm", "al-sgd", "orlomo"):
        runs = [orlomo.load(f"runs/compared/{name}-seed{seed}").metric_columns for seed in range(3)]
        values = np.stack([run["test_accuracy"] for run in runs])
        seconds = np.mean([run["seconds"] for run in runs], axis=0)
        right.plot(seconds, np.median(values, axis=0), color=COLOURS[name], linewidth=1.8, label=name)
        right.fill_between(seconds, values.min(0), values.max(0), color=COLOURS[name], alpha=0.15, linewidth=0)
    percent(right, 0.8)
    right.set(xlabel="virtual seconds", title="Three methods, each with its best learning rate")
    right.legend(frameon=False, loc="lower right")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    function.__name__: function
    for function in (
        uneven_processes, mnist_like_script, character_gpt, rehearse_cluster, spot_storm, compare_methods,
        per_worker_data, metrics_and_stopping, own_method, text_collate, bf16, lora_huggingface,
    )
}  # fmt: skip


def main() -> None:
    """Draw them, or those that are named."""
    rcParams.update({"font.size": 9, "axes.titlesize": 10})
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        with tempfile.TemporaryDirectory() as place:
            os.chdir(place)
            figure = PICTURES[name]()
            os.chdir(ROOT)
        figure.savefig(IMAGES / f"{name}.png", dpi=150)
        print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
