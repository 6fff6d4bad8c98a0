"""What fails after the first reports is saved as after Ctrl-C, and the error says how to continue."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orlomo
from orlomo.tasks.task import classification_loss
from small import call_cli
from user import INPUTS, LABELS, task, train

SETTINGS: dict[str, dict[str, Any]] = {
    "one job": {"jobs": 1},
    "two jobs": {"jobs": 2},
    "processes": {"engine": "processes", "jobs": None},
}


class Later:
    """Fails once a file is there, which a callback writes at the tenth report."""

    def __init__(self, switch: Path, where: str):
        self.switch, self.where = switch, where

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        if self.where == "loss" and torch.is_grad_enabled() and self.switch.exists():
            raise KeyError("the user's own")
        return classification_loss(model, batch)

    def metric(self, model: nn.Module, batch: Any) -> float:
        if self.where == "metric" and self.switch.exists():
            raise KeyError("the user's own")
        return 1.0

    def task(self) -> orlomo.Task:
        return task(loss=self.loss, metrics=[orlomo.Metric.mean("own", self.metric)])


class Switch(orlomo.Callback):
    def __init__(self, switch: Path):
        self.switch = switch

    def event(self, row: dict[str, Any]) -> None:
        if row["kind"] == "report" and row["reports"] == 10:
            self.switch.touch()


@pytest.mark.parametrize("where", ["loss", "metric"])
@pytest.mark.parametrize("name", SETTINGS)
def test_code_that_fails_later_leaves_a_run_that_continues(name: str, where: str, tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    given = Later(switch, where).task()
    settings = {**SETTINGS[name], "epochs": 20, "warn": lambda text: None}
    with pytest.raises((KeyError, orlomo.OrlomoError)) as caught:
        train(given, tmp_path / "run", callbacks=[Switch(switch)], **settings)
    log = tmp_path / "run" / "log.txt"
    words = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert str(log) in words
    assert "orlomo.resume(" in words
    assert "the user's own" in log.read_text()
    assert "Traceback" in log.read_text()
    cut = orlomo.load(tmp_path / "run")
    assert cut.checkpoint is not None
    assert cut.checkpoint.values["reports"] >= 9
    switch.unlink()
    run = orlomo.resume(tmp_path / "run", task=given, warn=lambda text: None)
    assert run.finished
    assert orlomo.replay(run.folder, task=given, jobs=1).agrees
    if name != "processes":
        assert run.params.equal(train(given, tmp_path / "whole", epochs=20).params)


@pytest.mark.parametrize("name", SETTINGS)
def test_nan_in_the_data_is_named_not_the_learning_rate(name: str, tmp_path: Path) -> None:
    inputs = INPUTS.clone()
    used = {int(one) for one in task().round_batches(0, 0, 0, 1)[0]}  # the batch of the trial
    sample = next(number for number in range(64) if number not in used)
    inputs[sample, 1] = math.nan
    with pytest.raises(orlomo.Diverged, match=f"the training data has NaN: column 0, sample {sample}"):
        train(task(train_data=(inputs, LABELS)), tmp_path / "run", warn=lambda text: None, **SETTINGS[name])


def test_a_run_that_diverges_is_saved_at_its_last_finite_state(tmp_path: Path) -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return classification_loss(model, batch) * 1e6

    method = orlomo.OrLoMo(learning_rate=1e12, local_steps=1)
    with pytest.raises(orlomo.Diverged, match="lower the learning rate"):
        train(task(loss=loss), tmp_path / "run", method=method, epochs=50)
    if (tmp_path / "run").exists():
        saved = orlomo.load(tmp_path / "run").checkpoint
        assert saved is None or all(bool(vector.isfinite().all()) for vector in saved.tensors.values())


def test_the_command_line_shows_the_users_own_line_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from user import task as usual\n\n\ndef loss(model, batch):\n    return undefined_name\n\n\n"
        "task = usual(loss=loss)\n"
    )
    done = call_cli("train", "wrong.py:task", "--out", "run", folder=tmp_path)
    assert done.returncode == 2
    assert 'wrong.py", line 5, in loss\n    return undefined_name' in done.stderr
    assert not (tmp_path / "run").exists()
