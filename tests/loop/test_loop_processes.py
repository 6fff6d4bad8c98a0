"""The user's own loop on real worker processes: rounds, samples, ends, losses."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import orlomo
from orlomo.engines.live.control import ask
from orlomo.errors import ConfigError, OrlomoError
from orlomo.records.audit import audit

SAMPLES, BATCH = 96, 4


class Digits(TensorDataset):
    """A small regression that a linear model can solve."""

    def __init__(self) -> None:
        inputs = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(1))
        super().__init__(inputs, inputs @ torch.linspace(-1, 1, 8).unsqueeze(1))


class Loop:
    """A loop with the usual lines; `after` is called with the worker, the epoch and the batch's number after each."""

    def __init__(self, epochs=2, optimizer=None, loader_workers=0, after=None, evaluates=False, model=None):
        self.epochs, self.loader_workers, self.after, self.evaluates = epochs, loader_workers, after, evaluates
        self.optimizer = optimizer or (lambda params: torch.optim.SGD(params, lr=0.02, momentum=0.9))
        self.model = model or (lambda: nn.Linear(8, 1))

    def __call__(self, worker: orlomo.Worker) -> None:
        torch.manual_seed(3)
        data, model = Digits(), self.model()
        optimizer = self.optimizer(model.parameters())
        loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=self.loader_workers)
        loss = lambda: functional.mse_loss(model(data.tensors[0]), data.tensors[1]).item()  # noqa: E731
        with worker.attach(model, optimizer, evaluate=loss if self.evaluates else None):
            for epoch in worker.epochs(self.epochs):
                for number, (x, y) in enumerate(worker.batches(loader)):
                    optimizer.zero_grad()
                    functional.mse_loss(model(x), y).backward()
                    optimizer.step()
                    if self.after is not None:
                        self.after(worker, epoch, number)
        self.end(worker, model)

    def end(self, worker: orlomo.Worker, model: nn.Module) -> None:
        """After the run's end."""


def launch(loop, folder: Path, method="orlomo", **more) -> orlomo.Run:
    made = orlomo.method(method, local_steps=more.pop("local_steps", 4)) if isinstance(method, str) else method
    return orlomo.launch(loop, made, out=folder, threads=1, warn=more.pop("warn", lambda text: None), **more)


class Saves(Loop):
    """Every worker writes what its model holds at the end."""

    def __init__(self, folder: Path, **more):
        super().__init__(**more)
        self.folder = folder

    def end(self, worker, model):
        name = "chief" if worker.chief else f"worker{worker.id}"
        torch.save(nn.utils.parameters_to_vector(model.parameters()), self.folder / f"{name}.pt")


@pytest.mark.parametrize("method", ["orlomo", "prsgdm"])
def test_every_sample_is_used_once_and_every_worker_ends_with_the_same_model(tmp_path, method):
    run = launch(Saves(tmp_path, evaluates=True), tmp_path / "run", method, workers=3)
    found = audit(run)
    assert found.ok, found.text
    vectors = {path.stem: torch.load(path) for path in tmp_path.glob("*.pt")}
    assert len(vectors) == 3, vectors
    assert "chief" in vectors
    assert all(vector.equal(run.params) for vector in vectors.values())
    values = run.metrics["value"].tolist()
    assert values[-1] < 0.5 * values[0], values
    assert run.finished


def test_alone_the_loop_runs_as_without_the_lines():
    model, optimizer, loader = _alone()
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            functional.mse_loss(model(x), y).backward()
            optimizer.step()
    plain = nn.utils.parameters_to_vector(model.parameters())
    model, optimizer, loader = _alone()
    worker = orlomo.worker()
    with worker.attach(model, optimizer):
        for _ in worker.epochs(2):
            for x, y in worker.batches(loader):
                optimizer.zero_grad()
                functional.mse_loss(model(x), y).backward()
                optimizer.step()
    assert nn.utils.parameters_to_vector(model.parameters()).equal(plain)


def _alone():
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(Digits(), batch_size=4, shuffle=True)


def _killed(worker, epoch, number):
    if worker.id < 4 and number == 4:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_whoever_dies_every_sample_is_used_once(tmp_path, loader_workers):
    run = launch(Loop(epochs=3, loader_workers=loader_workers, after=_killed), tmp_path / "run", workers=2)
    assert list(run.events["kind"]).count("crash") == 4
    found = audit(run)
    assert found.ok, found.text


def _starts_processes_as_usual(worker, epoch, number):
    assert multiprocessing.get_start_method() == multiprocessing.get_all_start_methods()[0]


def test_a_loop_starts_processes_as_it_would_alone(tmp_path):
    """Where they come from elsewhere, each process of a data loader loads torch."""
    launch(Loop(epochs=1, after=_starts_processes_as_usual), tmp_path / "run", workers=1)


class Waits(Loop):
    """In the second epoch the first workers wait until others have taken the places of lost and added ones."""

    def __init__(self, folder: Path):
        super().__init__(epochs=4)
        self.folder, self.after = folder, self._wait

    def _wait(self, worker, epoch, number):
        (self.folder / f"worker-{worker.id}").touch()
        while epoch >= 1 and not (self.folder / "worker-3").exists():  # the second of those that came later
            time.sleep(0.02)


def test_a_worker_that_is_added_or_killed_from_outside(tmp_path):
    folder, begun = tmp_path / "run", threading.Event()

    class Tells(orlomo.Callback):
        def event(self, row):
            begun.set()

    def meddle():
        assert begun.wait(120)
        [first, *_] = ask(folder, {"action": "list"})
        os.kill(first["pid"], signal.SIGKILL)
        ask(folder, {"action": "add", "count": 1})

    thread = threading.Thread(target=meddle)
    thread.start()
    run = launch(Waits(tmp_path), folder, workers=2, callbacks=[Tells()])
    thread.join()
    kinds = list(run.events["kind"])
    assert kinds.count("crash") == 1
    assert kinds.count("join") >= 1
    assert audit(run).ok


def test_a_loop_that_raises_everywhere_ends_the_run_with_its_traceback(tmp_path):
    with pytest.raises(OrlomoError, match="every worker failed: ZeroDivisionError"):
        launch(Loop(after=_raises), tmp_path / "run", workers=2)
    assert "_raises" in (tmp_path / "run" / "log.txt").read_text()


def _raises(worker, epoch, number):
    return 1 / (3 - number)


def test_what_fails_before_the_first_batch_leaves_no_folder(tmp_path):
    def loop(worker):
        raise ValueError("no data here")

    with pytest.raises(ConfigError, match="failed before the run began: ValueError: no data here"):
        launch(loop, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_worker_that_returns_early_leaves_and_the_others_go_on(tmp_path):
    class Returns(Loop):
        def __call__(self, worker):
            if worker.id == 1:
                self.after = _stop
            try:
                super().__call__(worker)
            except StopIteration:
                worker.close()

    def _stop(worker, epoch, number):
        if number == 5:
            raise StopIteration

    run = launch(Returns(epochs=3), tmp_path / "run", workers=2)
    assert audit(run).ok
    rows = run.events
    assert list(rows["kind"]).count("leave") == 1
    partial = [
        row for row in zip(run.round_columns["worker"], run.round_columns["samples"], strict=True) if row[0] == 1
    ]
    assert partial[-1][1] % (4 * BATCH) != 0, partial  # it reported a part of a round


def test_a_loop_without_batches_ends_after_its_steps(tmp_path):
    def loop(worker):
        model = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data = Digits().tensors
        with worker.attach(model, optimizer):
            while not worker.done:
                optimizer.zero_grad()
                functional.mse_loss(model(data[0]), data[1]).backward()
                optimizer.step()

    run = launch(loop, tmp_path / "run", "al-sgd", workers=2, steps=40)
    assert run.round_columns["steps"].sum() >= 40
    with pytest.raises(ConfigError, match="does not say how long the run is"):
        launch(loop, tmp_path / "other", "al-sgd")


def test_a_loop_that_ignores_the_end_is_ended(tmp_path):
    def loop(worker):
        model = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        worker.attach(model, optimizer)
        while True:
            optimizer.zero_grad()
            model(torch.ones(2, 8)).square().sum().backward()
            optimizer.step()

    assert launch(loop, tmp_path / "run", "al-sgd", workers=2, steps=16).finished


def test_a_server_that_is_set_and_is_not_there_is_fatal(monkeypatch):
    monkeypatch.setattr("orlomo.loop.worker._worker", None)
    monkeypatch.setenv("ORLOMO_SERVER", "process 1")
    with pytest.raises(OrlomoError, match="ORLOMO_SERVER is set"):
        orlomo.worker()


def test_impossible_pairs_are_refused_before_there_is_a_folder(tmp_path):
    adamw = Loop(optimizer=lambda params: torch.optim.AdamW(params, lr=1e-3))
    with pytest.raises(ConfigError, match="For AdamW use local-ormo-da"):
        launch(adamw, tmp_path / "run")
    assert launch(adamw, tmp_path / "run", "local-ormo-da", workers=2).finished
    with pytest.raises(ConfigError, match="leave learning_rate out"):
        launch(Loop(), tmp_path / "other", orlomo.OrLoMo(learning_rate=0.5))


class Stops(orlomo.Callback):
    """Ctrl-C after some reports."""

    def event(self, row):
        if row["kind"] == "report" and row["reports"] == 9:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_was_stopped_continues(tmp_path):
    with pytest.raises(orlomo.Interrupted):
        launch(Loop(epochs=3, evaluates=True), tmp_path / "run", workers=2, callbacks=[Stops()])
    before = orlomo.load(tmp_path / "run")
    assert not before.finished
    run = orlomo.resume(tmp_path / "run", task=Loop(epochs=3, evaluates=True), warn=lambda text: None)
    assert run.finished
    assert audit(run).ok
    kinds = list(run.events["kind"])
    assert kinds.count("crash") == 2
    assert kinds.count("join") == 2


def test_what_was_trained_can_be_loaded(tmp_path):
    run = launch(Loop(), tmp_path / "run", workers=1)
    model = nn.Linear(8, 1)
    run.load_into(model)
    assert nn.utils.parameters_to_vector(model.parameters()).equal(run.params)
    built = run.model(lambda: nn.Linear(8, 1))
    assert not built.training
    assert built.weight.equal(model.weight)
    with pytest.raises(ConfigError, match="give what makes its model"):
        run.model()
    with pytest.raises(ConfigError, match="weight is"):
        run.load_into(nn.Linear(4, 1))


class Tracked(nn.Module):
    """A frozen layer, a tied one and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.norm(self.frozen(x)))


def test_buffers_are_averaged_and_frozen_layers_do_not_travel(tmp_path):
    loop = Loop(
        model=Tracked, optimizer=lambda params: torch.optim.SGD([p for p in params if p.requires_grad], lr=0.02)
    )
    run = launch(loop, tmp_path / "run", "al-sgd", workers=2)
    assert len(run.params) == 8 + 8 + 8 + 1  # of the norm and the head: the frozen layer's 72 stay where they are
    model = Tracked()
    frozen, before = model.frozen.weight.clone(), model.norm.running_mean.clone()
    run.load_into(model)
    assert model.frozen.weight.equal(frozen)
    assert not model.norm.running_mean.equal(before)
    assert int(model.norm.num_batches_tracked) > 0


@pytest.mark.parametrize(("declared", "said"), [(1, True), (3, False)])
def test_accumulation_that_is_not_declared_is_said(tmp_path, declared, said):
    def loop(worker):
        model = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(Digits(), batch_size=BATCH)
        with warnings.catch_warnings(record=True) as caught, worker.attach(model, optimizer):
            warnings.simplefilter("always")
            for _ in worker.epochs(2):
                for number, (x, y) in enumerate(worker.batches(loader, accumulate=declared)):
                    functional.mse_loss(model(x), y).backward()
                    if number % 3 == 2:
                        optimizer.step()
                        optimizer.zero_grad()
        (tmp_path / "said").write_text("\n".join(str(one.message) for one in caught))

    run = launch(loop, tmp_path / "run", "al-sgd", workers=1)
    assert audit(run).ok
    steps = run.round_columns["steps"].tolist()
    assert max(steps) == (4 if declared == 3 else 2)
    assert ("every 3 batches, but accumulate=1" in (tmp_path / "said").read_text()) == said
