"""The experiments' files, and which runs they ask for."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from tiny import TINY, write_tiny

import orlomo
from orlomo.reproduce.experiment import choose_rows, experiment, names, table_of, wanted_rows
from orlomo.reproduce.plan import Scale, cells, scale_of
from orlomo.reproduce.table import is_sample
from orlomo.tasks.registry import TASKS
from small import classification

GRIDS = ["table-squeezenet", "table-resnet20", "table-tiny-imagenet", "fashion-mnist", "table-delay"]


def test_every_table_of_the_paper_is_there() -> None:
    wanted = {"table-squeezenet", "table-resnet20", "table-delay", "table-tiny-imagenet", "theorem"}
    assert wanted <= set(names())
    assert all(names().values())


@pytest.mark.parametrize("name", GRIDS)
def test_files_are_whole(name: str) -> None:
    found = experiment(name)
    assert len(set(found.rows)) == len(found.rows)
    for row in (*found.rows, *found.tuning.rows):
        assert row.task in TASKS
        assert row.scenario in found.scenarios
        orlomo.cluster(found.scenarios[row.scenario])
    for method in found.methods:
        assert found.learning_rates[method] in found.grid[method]
    recipe = found.recipe
    assert (recipe.epochs, recipe.drops, recipe.batch_size) == (160, (80, 120), 64)
    assert (recipe.momentum, recipe.weight_decay) == (0.9, 0.001)


@pytest.mark.parametrize(
    ("name", "row", "accuracy", "loss"),
    [  # read off the paper by eye, not by the script that wrote the files
        ("table-squeezenet", ("cifar10-squeezenet", "homogeneous", 8, 8), (92.11, 0.08), (0.02, 0.0)),
        ("table-squeezenet", ("cifar100-squeezenet", "heterogeneous", 16, 32), (66.19, 0.24), (0.77, 0.01)),
        ("table-resnet20", ("cifar10-resnet20", "heterogeneous", 8, 32), (91.44, 0.16), (0.08, 0.0)),
        ("table-resnet20", ("cifar100-resnet20", "homogeneous", 16, 16), (65.23, 0.43), (0.86, 0.02)),
        ("table-tiny-imagenet", ("tiny-imagenet-resnet32", "homogeneous", 16, 32), (49.32, 0.41), (1.78, 0.01)),
    ],
)
def test_the_papers_numbers(name: str, row: tuple[str, str, int, int], accuracy: object, loss: object) -> None:
    [found] = [r for r in experiment(name).rows if (r.task, r.scenario, r.workers, r.local_steps) == row]
    assert found.paper["accuracy"]["orlomo"] == accuracy
    assert found.paper["loss"]["orlomo"] == loss


@pytest.mark.parametrize("name", ["table-squeezenet", "table-resnet20", "table-tiny-imagenet"])
def test_tables_are_complete(name: str) -> None:
    """K 8 and 16, S 8, 16 and 32, both scenarios, every method, mean and spread."""
    rows = experiment(name).rows
    for task in {row.task for row in rows}:
        found = {(r.scenario, r.workers, r.local_steps) for r in rows if r.task == task}
        assert len(found) == 12
    for row in rows:
        for metric in ("accuracy", "loss"):
            assert set(row.paper[metric]) == {"prsgdm", "al-sgd", "local-ormo-da", "orlomo"}
            assert not any(math.isnan(spread) for _, spread in row.paper[metric].values())


def test_rows_are_chosen_by_any_of_several_filters() -> None:
    rows = experiment("table-resnet20").rows
    assert len(choose_rows(rows, [])) == 24
    assert {r.task for r in choose_rows(rows, ["cifar10"])} == {"cifar10-resnet20"}
    both = choose_rows(rows, ["K=8,S=8,cifar10,homogeneous", "K=16,S=32,cifar100,heterogeneous"])
    assert [(r.workers, r.local_steps) for r in both] == [(8, 8), (16, 32)]
    with pytest.raises(orlomo.OrlomoError, match="K=9 matches no row; there are K=16, K=8, S=16"):
        choose_rows(rows, ["K=9"])
    with pytest.raises(orlomo.OrlomoError, match="no row matches all"):
        choose_rows(experiment("table-tiny-imagenet").rows, ["K=8,K=16"])


def test_the_full_experiment_is_the_papers(tmp_path: Path) -> None:
    tasks = {"digits": orlomo.task("digits")}
    found = experiment(str(write_tiny(tmp_path)))
    wanted = cells(found, Scale(), tasks, tmp_path, "cpu")
    assert len(wanted) == 2 * 2 * 2
    config = wanted[0].config
    assert (config.epochs, config.batch_size, config.cluster.name) == (4, 16, "heterogeneous")
    assert config.method.schedule == "step:2,3"
    assert [cell.seed for cell in wanted] == [0] * 4 + [1] * 4
    assert len({cell.folder for cell in wanted}) == 8


def test_scaling_keeps_the_drops_fractions_and_enough_groups(tmp_path: Path) -> None:
    tasks = {"digits": orlomo.task("digits")}
    found = experiment(str(write_tiny(tmp_path)))
    scale = Scale(Fraction(1, 4), images=400, seeds=1, methods=("orlomo",), rows=("K=4",))
    [cell] = cells(found, scale, tasks, tmp_path, "cpu")
    assert cell.config.samples == 400
    assert cell.config.epochs == 1
    assert cell.config.method.schedule == "step:0.5,0.75"
    assert cell.config.batch_size == 8  # 400 / (8 * 2 * 4) = 6 groups; no smaller batch than 8
    assert scale.name == "scale-1-4-400-images"


@pytest.mark.parametrize("text", ["0", "2", "1/0", "x", "-1/2"])
def test_a_wrong_scale(text: str) -> None:
    with pytest.raises(orlomo.OrlomoError, match="--scale must be"):
        scale_of(text)


def test_a_wrong_file(tmp_path: Path) -> None:
    path = write_tiny(tmp_path, TINY.replace("[recipe]", "[recip]"))
    with pytest.raises(orlomo.OrlomoError, match="'recipe' is missing or wrong"):
        experiment(str(path))
    with pytest.raises(orlomo.OrlomoError, match="did you mean 'table-resnet20'"):
        experiment("table-resnet2")


def test_a_sample_of_a_data_set_is_said() -> None:
    assert is_sample("cifar100-resnet20", classification(samples=96))
    assert not is_sample("digits", classification(samples=96))


def test_of_rows_those_that_run_by_default() -> None:
    table = table_of("table-delay")
    known, default = experiment("table-delay").rows, table["default_rows"]
    scenario = known[0].scenario
    assert wanted_rows(known, [], default) == default
    assert wanted_rows(known, [scenario], default) == [f"{scenario},{default[0]}"]
    assert wanted_rows(known, ["cifar10"], default) == ["cifar10"]


def test_parts_have_names_of_their_own() -> None:
    both, either = Scale(rows=("K=8,S=8",)), Scale(rows=("K=8", "S=8"), methods=("orlomo",), seeds=1)
    assert (both.chosen, either.chosen, Scale().chosen) == ("K8-S8", "K8-or-S8-orlomo-1-seeds", "")
