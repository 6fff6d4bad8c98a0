"""`orlomo reproduce` as a user runs it: real runs, tables beside the paper's numbers, stopped and continued."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tiny import TINY, write_tiny

import orlomo
from small import call_cli, started, wait_for


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_scaled_table_beside_the_papers(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    words = ("reproduce", "./tiny.toml", "--scale", "1/2", "--seeds", "2", "--rows", "uneven")
    done = call_cli(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 runs: 0 done, 4 to do" in done.stderr
    assert "[4/4]" in done.stderr
    folder = tmp_path / "runs/reproduce/tiny/scale-1-2"
    text = (folder / "table-uneven-2-seeds.md").read_text()
    assert "| digits uneven K=2 S=2 | orlomo | 97.25 ± 0.20 |" in text
    assert "Scaled: 2 epochs in place of 4 (scale 1/2)" in text
    assert "A note." in text
    lines = {line["method"]: line for line in rows_of(folder / "table-uneven-2-seeds.csv")}
    accuracies = []
    for seed in (0, 1):
        run = orlomo.load(folder / f"digits-uneven-K2-S2/orlomo-lr0.05-seed{seed}")
        assert run.finished
        accuracies.append(100 * run.metric_columns["test_accuracy"][-1])
    assert float(lines["orlomo"]["accuracy"]) == pytest.approx(np.mean(accuracies))
    assert float(lines["orlomo"]["accuracy_spread"]) == pytest.approx(np.std(accuracies, ddof=1))
    assert float(lines["orlomo"]["speed_up"]) > 1.2
    slow = float(lines["prsgdm"]["accuracy_at_equal_time"])
    assert slow < float(lines["prsgdm"]["accuracy"])  # its twin had finished when it was half-way
    for name in ("png", "svg"):
        assert (folder / f"curves-digits-uneven-K2-S2-2-seeds.{name}").stat().st_size > 10_000

    again = call_cli(*words, "--json", folder=tmp_path)
    assert "4 runs: 4 done, 0 to do" in again.stderr
    assert {line["method"] for line in json.loads(again.stdout)["lines"]} == {"prsgdm", "orlomo"}


def test_tuning_chooses_on_held_out_samples_and_is_used(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    done = call_cli("reproduce", "./tiny.toml", "--tune", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "orlomo-lr1e+30: the run diverged" in done.stderr
    folder = tmp_path / "runs/reproduce/tiny"
    chosen = tomllib.loads((folder / "learning-rates.toml").read_text())
    tried = chosen["held_out_accuracy"]["orlomo"]
    assert tried["1e+30"] == [0, 0]
    assert chosen["chosen"]["orlomo"] == float(max(tried, key=lambda rate: sum(tried[rate])))
    config = orlomo.load(folder / "tuning/digits-uneven-K2-S2/orlomo-lr0.05").config
    assert (config.held_out, config.epochs) == (0.1, 1)
    assert config.method.schedule == "step:0.5,0.75"
    printed = call_cli("reproduce", "./tiny.toml", "--tune", "--methods", "prsgdm", "--json", folder=tmp_path)
    assert json.loads(printed.stdout) == chosen
    assert tomllib.loads((folder / "learning-rates.toml").read_text()) == chosen  # the other methods' stay
    words = ("--scale", "1/4", "--seeds", "1", "--rows", "uneven", "--methods", "prsgdm")
    call_cli("reproduce", "./tiny.toml", *words, folder=tmp_path)
    rates = folder / "learning-rates.toml"
    rates.write_text("[chosen]\norlomo = 0.05\n")
    part = call_cli("reproduce", "./tiny.toml", *words[:-1], "orlomo", folder=tmp_path)
    assert "orlomo: chosen on held-out training images by --tune, see learning-rates.toml; prsgdm: any" in part.stdout
    assert sorted(path.name for path in (folder / "scale-1-4").glob("curves*.png")) == [
        f"curves-digits-uneven-K2-S2-{method}-1-seeds.png" for method in ("orlomo", "prsgdm")
    ]
    rates.write_text("chosen = 3\n")
    wrong = call_cli("reproduce", "./tiny.toml", *words, folder=tmp_path)
    assert "learning-rates.toml has no table `chosen`" in wrong.stderr
    rate = chosen["chosen"]["prsgdm"]
    assert (folder / f"scale-1-4/digits-uneven-K2-S2/prsgdm-lr{rate:g}-seed0").is_dir()


def test_stopped_and_gone_on_with_to_the_same_bits(tmp_path: Path) -> None:
    write_tiny(tmp_path, TINY.replace("epochs = 4\ndrops = [2, 3]", "epochs = 24\ndrops = [12, 18]"))
    words = ["reproduce", "./tiny.toml", "--seeds", "1", "--rows", "uneven", "--methods", "orlomo", "--jobs", "1"]
    folder = tmp_path / "stopped/full/digits-uneven-K2-S2/orlomo-lr0.05-seed0"
    for number, rows in ((signal.SIGINT, 4), (signal.SIGTERM, 10)):
        with started(*words, "--out", "stopped", folder=tmp_path, start_new_session=True) as process:
            metrics = folder / "metrics.csv"
            wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= rows, process)  # noqa: B023
            process.send_signal(number)
            _, errors = process.communicate()
        assert process.returncode == 128 + number
        assert f"saved. Continue with: orlomo {' '.join(words)}" in errors
        assert not of_session(process.pid)
        assert not orlomo.load(folder).finished
    for out in ("stopped", "whole"):
        assert call_cli(*words, "--out", out, folder=tmp_path).returncode == 0
    whole = orlomo.load(tmp_path / "whole/full/digits-uneven-K2-S2/orlomo-lr0.05-seed0")
    assert orlomo.load(folder).params.equal(whole.params)


def of_session(leader: int) -> bytes:
    """The ids of its processes."""
    return subprocess.run(["pgrep", "-s", str(leader)], capture_output=True).stdout


def test_runs_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    write_tiny(tmp_path, TINY.replace("epochs = 4\ndrops = [2, 3]", "epochs = 4000\ndrops = [20, 30]"))
    words = ["reproduce", "./tiny.toml", "--seeds", "1", "--rows", "uneven", "--out", "out"]
    with started(*words, folder=tmp_path, start_new_session=True) as process:
        wait_for(lambda: list(tmp_path.glob("out/full/*/*/events.csv")) != [], process)
        process.kill()
        process.communicate()  # their ends of its pipes are closed
    deadline = time.monotonic() + 60
    while of_session(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_that_diverges_is_reported_and_not_run_again(tmp_path: Path) -> None:
    write_tiny(
        tmp_path, TINY.replace("[learning_rates.chosen]\nprsgdm = 0.05", "[learning_rates.chosen]\nprsgdm = 1e30")
    )
    words = ("reproduce", "./tiny.toml", "--scale", "1/4", "--seeds", "1", "--rows", "uneven")
    done = call_cli(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 diverged" in done.stdout
    alone = call_cli(*words, "--methods", "prsgdm", folder=tmp_path)
    assert (alone.returncode, alone.stderr) == (0, "1 runs: 1 done, 0 to do\n")
    assert "1 of 1 diverged" in alone.stdout
    again = call_cli(*words, folder=tmp_path)
    assert "2 runs: 2 done" in again.stderr
    assert "1 of 1 diverged" in again.stdout
    path = tmp_path / "tiny.toml"
    path.write_text(path.read_text().replace("weight_decay = 0.001", "weight_decay = 0.002"))
    other = call_cli(*words, folder=tmp_path)
    assert other.returncode == 2
    assert "holds a run with other settings" in other.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "unknown experiment 'nothing'"),
        (["./tiny.toml", "--rows", "K=3"], "--rows K=3 matches no row"),
        (["./tiny.toml", "--methods", "orlom"], "did you mean 'orlomo'"),
        (["./tiny.toml", "--scale", "3"], "--scale must be above 0 and at most 1"),
        (["./tiny.toml", "--seeds", "0"], "--seeds must be at least 1"),
        (["./tiny.toml", "--jobs", "0"], "jobs must be at least 1"),
        (["./tiny.toml", "--images", "0"], "--images must be at least 1"),
        (["./missing.toml"], "cannot read missing.toml"),
        (["./tiny.toml", "--methods", "orlomo,orlomo"], "--methods names orlomo more than once"),
        (["./tiny.toml", "--tune", "--methods", "asgd"], "unknown method of tiny 'asgd'"),
        (["./tiny.toml", "--tune", "--seeds", "2"], "--seeds does nothing with --tune"),
        (["speed-up", "--rows", "K=8"], "--rows does nothing in speed-up"),
        (["theorem", "--seeds", "0"], "--seeds does nothing in theorem"),
        (["speed-up", "--jobs", "9"], "--jobs does nothing in speed-up"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    write_tiny(tmp_path)
    done = call_cli("reproduce", *words, folder=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_the_list_of_experiments(tmp_path: Path) -> None:
    done = call_cli("reproduce", folder=tmp_path)
    assert "table-resnet20" in done.stdout
    assert done.returncode == 0
    assert "table-resnet20" in json.loads(call_cli("reproduce", "--json", folder=tmp_path).stdout)


def test_a_file_with_values_of_the_wrong_kind(tmp_path: Path) -> None:
    for old, new in (
        ("epochs = 4\n", 'epochs = "4"\n'),
        ("workers = 2\n", "workers = 0\n"),
        ("seeds = 2", 'seeds = "2"'),
    ):
        write_tiny(tmp_path, TINY.replace(old, new))
        done = call_cli("reproduce", "./tiny.toml", folder=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_absent_data_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORLOMO_DATA", str(tmp_path / "data"))
    done = call_cli("reproduce", "table-resnet20", folder=tmp_path)
    assert done.returncode == 2
    assert "`orlomo data cifar10`" in done.stderr


def test_measured_experiments(tmp_path: Path) -> None:
    (tmp_path / "fast.toml").write_text(
        'title = "Fast"\nkind = "speed-up"\nclusters = ["heterogeneous"]\nworkers = [4]\nlocal_steps = [8]\n'
        "epochs = 1\nsize = 50000\nbatch_size = 64\nseeds = 2\n"
    )
    done = call_cli("reproduce", "./fast.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "| heterogeneous | 4 | 8 |" in done.stdout
    [row] = rows_of(tmp_path / "runs/reproduce/fast/speed-up.csv")
    assert float(row["ceiling"]) == 1.75
    (tmp_path / "holds.toml").write_text(
        'title = "Holds"\nkind = "theorem"\nseeds = 2\n'
        "[[cases]]\nworkers = 2\nlocal_steps = 2\niterations = 60\nmomentum = 0.5\n"
    )
    done = call_cli("reproduce", "./holds.toml", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) >= 15


def test_equal_time_is_seed_by_seed(tmp_path: Path) -> None:
    """The first method's accuracy at equal time is its own at the end, whatever its seeds' ends."""
    write_tiny(tmp_path)
    call_cli("reproduce", "./tiny.toml", "--scale", "1/4", "--rows", "uneven", folder=tmp_path)
    lines = {line["method"]: line for line in rows_of(tmp_path / "runs/reproduce/tiny/scale-1-4/table-uneven.csv")}
    ends = [
        float(orlomo.load(path).metric_columns["seconds"][-1])
        for path in tmp_path.glob("runs/reproduce/tiny/scale-1-4/*/orlomo-*")
    ]
    assert len(set(ends)) == 2
    assert lines["orlomo"]["accuracy_at_equal_time"] == lines["orlomo"]["accuracy"]
