"""A task is tried before there is a folder: what is wrong leaves nothing, what is right is the same bits."""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import orlomo
from orlomo.clusters.schedule import REPORT
from orlomo.config import RunConfig
from orlomo.engines.simulated.engine import plan
from orlomo.engines.work import planned_samples
from orlomo.tasks.task import classification_loss
from user import INPUTS, LABELS, task, train

SHARED = nn.Linear(4, 2)
SCALER = torch.amp.GradScaler("cpu")
HOLED = INPUTS.clone()
HOLED[17, 2] = float("nan")


class Counting(nn.Linear):
    """Counts its calls in Python."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += self.training
        return super().forward(inputs)


class Caching(nn.Linear):
    """Keeps what depends on the batch alone, and what it computed last."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.sizes: dict[int, Tensor] = {}
        self.last: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        self.sizes.setdefault(len(inputs), torch.ones(len(inputs)))
        self.last = super().forward(inputs)
        return self.last


def first_fails(model: nn.Module, batch: Any) -> Tensor:
    raise KeyError("the user's own")


def metric_fails(model: nn.Module, batch: Any) -> float:
    raise ZeroDivisionError("in the metric")


def augment_fails(batch: Any, source: torch.Generator) -> Any:
    raise IndexError("in augment")


OWN = {
    "loss": (KeyError, {"loss": first_fails}),
    "metric": (ZeroDivisionError, {"metrics": [orlomo.Metric.mean("own", metric_fails)]}),
    "augment": (IndexError, {"augment": augment_fails}),
}


@pytest.mark.parametrize("name", OWN)
def test_what_the_users_code_raises_goes_up_as_it_is_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    kind, changes = OWN[name]
    with pytest.raises(kind) as caught:
        train(task(**changes), tmp_path / "run")
    assert caught.traceback[-1].name.endswith("fails")
    assert not (tmp_path / "run").exists()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one module": ({"model": lambda: SHARED}, "copy.deepcopy"),
    "a shared layer": ({"model": lambda: nn.Sequential(SHARED, nn.ReLU())}, "share the parameter 0.weight"),
    "NaN in the data": ({"train_data": (HOLED, LABELS), "batch_size": 64}, "column 0, sample 17"),
    "a NaN loss": ({"loss": lambda m, b: m(b[0]).sum() * float("nan")}, "its data are finite"),
    "a scaled loss": ({"loss": lambda m, b: SCALER.scale(classification_loss(m, b))}, "GradScaler"),
    "a loss elsewhere": ({"loss": lambda m, b: classification_loss(m, b).to("meta")}, "on meta"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_there_is_a_folder(name: str, tmp_path: Path) -> None:
    changes, part = REFUSED[name]
    with pytest.raises(orlomo.OrlomoError, match=part) as caught:
        train(task(**changes), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def contexts() -> dict[str, Any]:
    return {
        "autocast": torch.autocast("cpu", torch.bfloat16),
        "inference_mode": torch.inference_mode(),
        "default device": torch.device("meta"),
    }


@pytest.mark.parametrize("name", contexts())
def test_contexts_around_a_run_are_refused(name: str, tmp_path: Path) -> None:
    with contexts()[name], pytest.raises(orlomo.OrlomoError, match=name):
        train(out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_grad_around_a_run_changes_nothing(tmp_path: Path) -> None:
    with torch.no_grad():
        inside = train(out=tmp_path / "inside")
    assert inside.params.equal(train(out=tmp_path / "outside").params)


def said(tmp_path: Path, given: orlomo.Task | None = None, **changes: Any) -> str:
    lines: list[str] = []
    train(given or task(), tmp_path / "run", warn=lines.append, **changes)
    return "\n".join(lines)


def test_state_in_python_objects_is_named(tmp_path: Path) -> None:
    assert "the model's attribute calls changes in a training step" in said(tmp_path, task(model=Counting))


def test_state_of_the_loss_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    history: list[float] = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        value = classification_loss(model, batch)
        if torch.is_grad_enabled():
            history.append(value.item())
        return value

    assert "the variable history of loss" in said(tmp_path, task(loss=loss))
    # The trial has taken its own entries back: one is left for every local step of the run.
    assert len(history) == 16


def test_caches_are_no_state(tmp_path: Path) -> None:
    assert said(tmp_path, task(model=Caching)) == ""


def test_a_metric_that_needs_both_classes_is_tried_on_all_of_the_data(tmp_path: Path) -> None:
    def both(model: nn.Module, batch: Any) -> Tensor:
        if batch[1].unique().numel() < 2:
            raise ValueError("only one class")
        return torch.tensor(1.0)

    labels = torch.zeros(500, dtype=torch.long)
    labels[:16] = 1
    data = (torch.randn(500, 4), labels)
    made = task(test_data=data, evaluation_batch_size=500, metrics=[orlomo.Metric.mean("both", both, data="test")])
    tried = np.linspace(0, 499, 32).astype(int)
    assert set(labels[tried].tolist()) == {0, 1}
    labels[tried] = 0
    assert train(made, tmp_path / "run").finished


def test_the_callers_generators_stay_as_they_were(tmp_path: Path) -> None:
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    train(out=tmp_path / "run")
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1]
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]
    assert (before[2] == after[2]).all()


NUMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "a long round": ({"method": orlomo.OrLoMo(local_steps=500), "epochs": 1}, "are 1 report; lower local_steps"),
    "a large batch": ({"batch_size": 100}, "batch_size is 100, but there are 64 training samples"),
    "many workers": ({"workers": 1000, "epochs": 1}, "996 workers never report"),
    "one worker too many": (
        {"workers": 5, "epochs": 1},
        "5 workers, but 4 reports are planned: 1 worker never reports",
    ),
    "a wide barrier": ({"workers": 100, "method": "local-sgd"}, "the run takes"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_settings_that_do_not_fit_are_said_with_their_numbers(name: str, tmp_path: Path) -> None:
    changes, part = NUMBERS[name]
    assert part in said(tmp_path, **changes)


def test_data_sets_without_a_worker_are_named(tmp_path: Path) -> None:
    sites = orlomo.PerWorker([(INPUTS, LABELS)] * 3)
    assert "3 data sets, but 2 workers: none trains on '2'" in said(tmp_path, task(train_data=sites))


def test_never_more_samples_than_asked_for_and_one_round_per_worker() -> None:
    source = random.Random(0)
    for _ in range(60):
        name = source.choice(["orlomo", "asgd", "local-sgd", "prsgdm", "fedbuff"])
        own = {} if name == "asgd" else {"local_steps": source.randint(1, 40)}
        config = RunConfig(
            task="custom",
            cluster=orlomo.cluster("homogeneous"),
            method=orlomo.method(name, **own),
            workers=source.randint(1, 30),
            epochs=source.uniform(0.01, 5.0),
            seed=source.randint(0, 9),
        )
        made = task(batch_size=source.randint(1, 100))
        schedule = plan(config, made, torch.zeros(8))
        a_round = config.method.local_steps * made.batch_size
        samples = int((schedule["kind"] == REPORT).sum()) * a_round
        assert samples >= planned_samples(config, made)
        assert samples <= config.epochs * made.size + config.workers * a_round


def test_a_second_run_in_the_process_is_refused(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    class Another(orlomo.Callback):
        def started(self, run: orlomo.RunHandle) -> None:
            def second() -> None:
                try:
                    train(out=tmp_path / "second")
                except orlomo.OrlomoError as error:
                    caught.append(error)

            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
            second()

    assert train(out=tmp_path / "first", callbacks=[Another()]).finished
    assert ["another run is under way" in str(error) for error in caught] == [True, True]
    assert not (tmp_path / "second").exists()
    with contextlib.suppress(KeyError):
        train(task(loss=first_fails), tmp_path / "third")
    assert train(out=tmp_path / "fourth").finished  # released on every path


class Lines:
    """Samples of a file that is held open."""

    def __init__(self, path: Path):
        self.file = path.open("rb")

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.file.seek(index)
        return INPUTS[index], LABELS[index]


def test_a_data_set_with_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(64))
    given = task(train_data=Lines(path), test_data=None)
    assert "train_data.file is an open file" in said(tmp_path, given, jobs=2)
    with pytest.raises(orlomo.OrlomoError, match="open it in __getitem__"):
        train(given, tmp_path / "sent", engine="processes")
    assert not (tmp_path / "sent").exists()
    given.train_data.file.close()
