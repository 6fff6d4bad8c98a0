"""What a reader must know beside the numbers: what was scaled, with which settings, and how each column is meant."""

from __future__ import annotations

from orlomo.data.catalog import DATASETS
from orlomo.reproduce.experiment import Experiment
from orlomo.reproduce.plan import FEWEST_GROUPS, Scale
from orlomo.reproduce.progress import duration
from orlomo.reproduce.table import Line
from orlomo.tasks.task import Task, data_size


def is_sample(name: str, task: Task) -> bool:
    """Whether fewer images of its data set are stored than there are."""
    whole = [dataset.counts["train"] for dataset in DATASETS.values() if f"{name}-".startswith(f"{dataset.name}-")]
    return any(task.size < count for count in whole)


def caption(experiment: Experiment, scale: Scale, tasks: dict[str, Task], table: list[Line], seeds: int) -> str:
    """A list in Markdown."""
    recipe = experiment.recipe
    points = []
    epochs = sorted({line.epochs for line in table})
    if scale.epochs != 1:
        shown = " or ".join(f"{value:g}" for value in epochs)
        points.append(
            f"Scaled: {shown} epochs in place of {recipe.epochs:g} (scale {scale.epochs}); the learning rate drops at "
            "the same fractions of the run."
        )
    fewer = [name for name, task in tasks.items() if scale.images is not None and scale.images < task.size]
    if fewer:
        points.append(f"Scaled: {scale.images} training images of {', '.join(fewer)} in place of all.")
    smaller = sorted({line.batch_size for line in table} - {recipe.batch_size})
    if smaller:
        shown = " or ".join(map(str, smaller))
        points.append(
            f"Scaled: batch {shown} in place of {recipe.batch_size} where fewer than {FEWEST_GROUPS} groups (T/K) "
            "would have been left."
        )
    few = [line for line in table if line.groups < FEWEST_GROUPS]
    if few:
        points.append(f"Some rows have only {min(line.groups for line in few):.2g} groups: too few to show the method.")
    if seeds != experiment.seeds:
        points.append(f"Scaled: {seeds} seed{'s' if seeds > 1 else ''} in place of {experiment.seeds}.")
    samples = [name for name, task in tasks.items() if is_sample(name, task)]
    if samples:
        points.append(f"Scaled: of {', '.join(samples)} only a sample of the images is stored here.")
    if not points:
        points.append("Nothing was scaled: the paper's recipe in full.")
    for name, task in tasks.items():
        tested = sum(map(data_size, task.test_sets.values()))
        points.append(f"Data: {name} has {task.size} training and {tested} test images here.")
    used = ", ".join(f"{line.method} {line.learning_rate:g}" for line in {line.method: line for line in table}.values())
    points.append(
        f"Learning rates: {used}. The paper gives none; {experiment.how_chosen}. "
        f"Momentum {recipe.momentum:g}, weight decay {recipe.weight_decay:g}."
    )
    points.append(
        "Equal gradients: at the end of each run, after the same number of gradients, but that a synchronous method "
        "completes its last barrier. Equal time: at the virtual time "
        "at which the first method of the row had finished. Virtual time 1: a local step of a fast worker. "
        "Speed-up: gradients per virtual second against prsgdm."
    )
    points.append(
        "Loss: of the server's parameters on up to 2,000 training images, each seed's own, without augmentation; "
        "BatchNorm statistics recalibrated."
    )
    if experiment.note:
        points.append(experiment.note)
    seconds = sum(line.real_seconds * (line.runs - line.diverged) for line in table if line.diverged < line.runs)
    points.append(f"Real time of all runs, one after another: {duration(seconds)}.")
    return "\n".join(f"- {point}" for point in points) + "\n"
