"""What every engine must do with every method, with the same expectations of all."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import orlomo
from orlomo.engines.registry import ENGINES
from orlomo.engines.work import planned_reports
from small import NAMES, classification, settings


def case(engine: str, *more: Any) -> Any:
    """Those on Ray share one cluster, and are run by test_ray.py in namespaces of their own."""
    marks = [pytest.mark.ray] if engine == "ray" else []
    return pytest.param(engine, *more, marks=marks, id="-".join(map(str, (engine, *more))))


EVERY = [case(engine, name) for engine in ENGINES for name in NAMES]
STOPPED = [case(engine, name, "INT") for engine in ("simulated", "processes") for name in NAMES]
STOPPED += [case(engine, "orlomo", "TERM") for engine in ENGINES]
ONE_EACH = [case(engine) for engine in ENGINES]


@pytest.fixture(autouse=True)
def with_a_cluster(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["engine"] == "ray":
        request.getfixturevalue("ray_cluster")


def train(engine: str, name: str, folder: Path, task: orlomo.Task | None = None, **more: Any) -> orlomo.Run:
    return orlomo.train(
        task or classification(),
        settings(name, learning_rate=0.05),
        workers=1 if name == "msgd" else 2 if engine == "ray" else 4,
        epochs=20,
        engine=engine,
        out=folder,
        **more,
    )


class StopAt(orlomo.Callback):
    """Sends a signal to this process when so many reports are in."""

    def __init__(self, report: int, number: int):
        self.at, self.number = report, number

    def event(self, row: dict[str, Any]) -> None:
        if row["reports"] == self.at:
            os.kill(os.getpid(), self.number)


def assert_whole(run: orlomo.Run, resumed: bool = False) -> None:
    """Every report exactly once, in order, with the delays that the order implies."""
    events, config = run.event_columns, run.runnable_config()
    assert run.finished
    names = ("kind", "worker", "round", "iteration", "index", "delay")
    rows = list(zip(*(events[key].tolist() for key in names), strict=True))
    reports = [row[1:] for row in rows if row[0] == "report"]
    rounds = Counter(worker for worker, *_ in reports)
    assert {(worker, number) for worker, number, *_ in reports} == {(w, n) for w in rounds for n in range(rounds[w])}
    planned = planned_reports(config, classification())
    workers = config.workers
    assert len(reports) == run.metric_columns["reports"][-1]
    # What workers keep between rounds is gone with their processes: after a resume they are new ones.
    renewed = resumed and config.method.keeps_worker_state and config.engine != "simulated"
    changes = Counter(kind for kind, *_ in rows if kind != "report")
    assert changes == (Counter(crash=workers, join=workers) if renewed else Counter())
    if config.method.synchronous:
        assert len(reports) == -(-planned // workers) * workers
        return
    assert len(reports) == planned
    assert [iteration for _, _, iteration, *_ in reports] == list(range(planned))
    held = dict.fromkeys(range(workers), 0)
    for kind, worker, _, iteration, index, delay in rows:
        if kind == "crash":
            del held[worker]
        elif kind == "join":
            held[worker] = iteration
        else:
            assert index == held[worker]
            assert delay == iteration - index
            held[worker] = iteration + 1
    delays, under_way = sum(delay for *_, delay in reports), sum(planned - index for index in held.values())
    assert renewed or delays + under_way == (workers - 1) * planned


@pytest.mark.parametrize(("engine", "name"), EVERY)
def test_trains_and_replays(engine: str, name: str, tmp_path: Path) -> None:
    run = train(engine, name, tmp_path / "run")
    assert_whole(run)
    metrics, events = run.metric_columns, run.event_columns
    assert metrics["train_loss"][-1] < 0.5 * metrics["train_loss"][0]
    assert metrics["test_accuracy"][-1] > 0.9
    assert metrics["epoch"][0] == 0
    assert metrics["epoch"][-1] >= 20
    assert (np.diff(events["finish"]) >= 0).all()
    assert (events["compute"] <= events["finish"] - events["start"] + 1e-6).all()
    result = orlomo.replay(run.folder, task=classification(), jobs=1)
    assert result.agrees, str(result)


@pytest.mark.parametrize(("engine", "name", "number"), STOPPED)
def test_stopped_by_a_signal_it_continues(engine: str, name: str, number: str, tmp_path: Path) -> None:
    with pytest.raises(orlomo.Interrupted, match=r"saved. Continue with: orlomo.resume") as stopped:
        train(engine, name, tmp_path / "run", callbacks=[StopAt(11, signal.Signals[f"SIG{number}"])])
    assert stopped.value.signal_number == signal.Signals[f"SIG{number}"]
    before = orlomo.load(tmp_path / "run")
    assert not before.finished
    assert len(before.event_columns["kind"]) >= 11
    assert orlomo.replay(before.folder, task=classification(), jobs=1).agrees
    run = orlomo.resume(tmp_path / "run", task=classification())
    assert_whole(run, resumed=True)
    assert orlomo.replay(run.folder, task=classification(), jobs=1).agrees


@pytest.mark.parametrize(
    ("engine", "buffers"),
    [case(engine, buffers) for engine in ENGINES for buffers in ("average", "keep")]
    + [case("simulated", "recalibrate"), case("processes", "recalibrate")],
)
def test_batch_normalisation(engine: str, buffers: str, tmp_path: Path) -> None:
    model = lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))  # noqa: E731
    task = classification(model, buffers=buffers)
    run = train(engine, "orlomo", tmp_path / "run", task)
    assert run.metric_columns["test_accuracy"][-1] > 0.9
    assert orlomo.replay(run.folder, task=task, jobs=1).agrees


@pytest.mark.parametrize("engine", ONE_EACH)
def test_a_task_by_its_name(engine: str, tmp_path: Path) -> None:
    run = orlomo.train("quadratic", settings("orlomo"), workers=2, epochs=0.5, engine=engine, out=tmp_path / "run")
    assert run.metric_columns["train_loss"][-1] < run.metric_columns["train_loss"][0]
    assert orlomo.replay(run.folder, jobs=1).agrees


@pytest.mark.parametrize("engine", ONE_EACH)
def test_a_learning_rate_that_is_too_high_is_one_clear_error(engine: str, tmp_path: Path) -> None:
    method = orlomo.OrLoMo(learning_rate=1e30, local_steps=4)
    task = classification(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    with pytest.raises(orlomo.Diverged, match="lower the learning rate"):
        orlomo.train(
            task, method, workers=2, epochs=20, engine=engine, out=tmp_path / "run", jobs=1, warn=lambda text: None
        )
