"""What a replay proves, exactly; and records and checkpoints that no run wrote: an error in one line, no other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import orlomo
from orlomo.records import checkpoint as checkpoints
from orlomo.records.digests import sha256_of
from small import call_cli


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 103 reports and five evaluations, with its last three checkpoints."""
    folder, more = tmp_path_factory.mktemp("runs") / "run", {"evaluate_every": 0.025, "checkpoint_seconds": 0.0}
    orlomo.train("quadratic", "asgd", workers=2, epochs=0.1, jobs=1, out=folder, **more)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def change(path: Path, line: int, column: str, value: str) -> None:
    lines = path.read_text().splitlines()
    fields = lines[line].split(",")
    fields[lines[0].split(",").index(column)] = value
    path.write_text("\n".join([*lines[:line], ",".join(fields), *lines[line + 1 :]]) + "\n")


def replayed(folder: Path) -> tuple[int, str]:
    done = call_cli("replay", folder, "--jobs", 1, "--quiet", folder=folder)
    assert done.returncode != 2 or len(done.stderr.splitlines()) <= 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout if done.returncode < 2 else done.stderr.splitlines()[-1]


def test_the_whole_run_is_proved(folder: Path) -> None:
    code, text = replayed(folder)
    what = "order, times, samples, parameters, losses and metrics agree, bit for bit"
    assert (code, text.partition(" (")[0]) == (0, f"103 of 103 reports, 5 of 5 evaluations: {what}")


def test_a_trace_that_is_cut_off_is_no_proof(folder: Path) -> None:
    events = folder / "events.csv"
    events.write_text("".join(events.read_text().splitlines(keepends=True)[:2]))
    code, text = replayed(folder)
    assert code == 1
    assert text.startswith(
        "1 of 103 reports, 1 of 5 evaluations: these agree, bit for bit, but events.csv ends there: "
    )
    assert "checkpoint 103 has 102 events more" in text


@pytest.mark.parametrize(
    ("file", "line", "column", "value", "text"),
    [
        ("metrics.csv", 3, "train_loss", "0.001", "train_loss is 0.001 in metrics.csv and "),
        (
            "metrics.csv",
            3,
            "samples",
            "7",
            "the other evaluations in metrics.csv are none that the run could have made",
        ),
        ("metrics.csv", 3, "seconds", "7.5", "seconds is 7.5 in metrics.csv and "),
        ("metrics.csv", 3, "learning_rate", "7.5", "learning_rate is 7.5 in metrics.csv and "),
        (
            "metrics.csv",
            3,
            "reports",
            "29",
            "are none that the run could have made",
        ),
        ("events.csv", 9, "loss", "0.25", "loss is 0.25 in events.csv and "),
        ("events.csv", 9, "finish", "1e5", "finish of event 8 is 100000.0 in events.csv and "),
        ("events.csv", 9, "compute", "0.25", "compute of event 8 is 0.25 in events.csv and "),
    ],
)
def test_one_number_of_the_record_is_noticed(
    file: str, line: int, column: str, value: str, text: str, folder: Path
) -> None:
    change(folder / file, line, column, value)
    code, said = replayed(folder)
    assert code == 1
    assert text in said
    assert "parameters agree, but" in said or "these agree" in said


@pytest.mark.parametrize(
    ("file", "line", "column", "value"),
    [
        *(("events.csv", 5, "worker", value) for value in ("7", "-1", "x", "999999999999999999999", "")),
        *(("events.csv", 5, "kind", value) for value in ("crash", "join", "leave", "no kind")),
        *(("events.csv", 5, column, "x") for column in ("round", "iteration", "eta", "finish", "local_steps")),
        *(("events.csv", 0, column, "other") for column in ("kind", "worker", "loss", "finish")),
        *(("metrics.csv", 0, column, "other") for column in ("reports", "params_checksum", "train_loss")),
        ("metrics.csv", 2, "reports", "x"),
    ],
)
def test_a_damaged_record_is_one_line(file: str, line: int, column: str, value: str, folder: Path) -> None:
    change(folder / file, line, column, value)
    code, _ = replayed(folder)
    assert code in (1, 2)


def forge(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change what the newest checkpoint says, with a seal that fits."""
    for path in sorted((folder / "checkpoints").glob("*.json")):
        content = json.loads(path.read_text())
        del content["sha256"]
        edit(content["values"])
        path.write_text(json.dumps({"sha256": checkpoints._seal(content), **content}, indent=1))


def tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    for path in (folder / "checkpoints").glob("*.safetensors"):
        found = {name: tensor.clone() for name, tensor in load_file(path).items()}
        edit(found)
        save_file(found, path)
        content = json.loads(path.with_suffix(".json").read_text()) | {"tensors_sha256": sha256_of(path)}
        del content["sha256"]
        path.with_suffix(".json").write_text(json.dumps({"sha256": checkpoints._seal(content), **content}, indent=1))


NAMES = ["files", "config_sha256", "ledger", "numbers", "held", "worker_numbers", "evaluations", "evaluated", "reports"]


@pytest.mark.parametrize("name", [*NAMES, "real_seconds", "schedule", "finished", "sealed", "changes"])
def test_a_checkpoint_without_a_value_is_one_line(name: str, folder: Path) -> None:
    forge(folder, lambda values: values.pop(name))
    resumes_or_says(folder)


@pytest.mark.parametrize("value", [None, "x", -5, [[[]]], {"a": {"b": []}}, 1e300])
@pytest.mark.parametrize("name", [*NAMES, "sealed", "changes", "finished", "stopped"])
def test_a_value_of_another_type_is_one_line(name: str, value: object, folder: Path) -> None:
    forge(folder, lambda values: values.update({name: value}))
    resumes_or_says(folder)


@pytest.mark.parametrize("name", ["iteration", "samples", "outstanding", "folded", "group"])
@pytest.mark.parametrize("value", ["gone", "x", [[1]], None])
def test_a_ledger_of_another_shape_is_one_line(name: str, value: object, folder: Path) -> None:
    forge(
        folder, lambda values: values["ledger"].pop(name) if value == "gone" else values["ledger"].update({name: value})
    )
    resumes_or_says(folder)


@pytest.mark.parametrize(
    "edit",
    [
        lambda found: found.pop("server.params"),
        lambda found: found.update({"server.params": found["server.params"].long()}),
        lambda found: found.update({"server.params": found["server.params"][:-1].clone()}),
        lambda found: found["server.params"].fill_(torch.nan),
    ],
)
def test_parameters_that_are_none_are_one_line(edit: Callable[[dict[str, torch.Tensor]], object], folder: Path) -> None:
    tensors(folder, edit)
    resumes_or_says(folder)
    assert replayed(folder)[0] in (1, 2)


def resumes_or_says(folder: Path) -> None:
    """`resume` with more epochs is exit 2 and one line, or all is well; `verify` and `report` do not fall over."""
    for arguments in (("resume", folder, "--epochs", 0.12, "--jobs", 1, "--quiet"), ("verify", folder)):
        done = call_cli(*arguments, folder=folder.parent)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 1, 2)
        if done.returncode == 2:
            assert done.stderr.startswith("orlomo: ")
