"""Metrics that users declare: exact values, several test sets, what is refused, and where they appear."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score
from torch import Tensor, nn

import orlomo
from orlomo.report.charts import CHARTS, Chart, drawn
from orlomo.report.figures import write_figures
from orlomo.report.view import view_of
from orlomo.report.web.page import page_of, write_report
from orlomo.tasks.evaluation import evaluate
from orlomo.tasks.metrics import measured
from small import call_cli, classification, settings


class Collected:
    """All scores and labels, and one of sklearn's functions over them: no mean over batches."""

    def __init__(self, score: Any):
        self._score, self._outputs, self._labels = score, [], []

    def update(self, model: nn.Module, batch: Any) -> None:
        self._outputs.append(model(batch[0]))
        self._labels.append(batch[1])

    def compute(self) -> float:
        return self._score(torch.cat(self._labels), torch.cat(self._outputs))


def f1(labels: Tensor, outputs: Tensor) -> float:
    return float(f1_score(labels.numpy(), outputs.argmax(1).numpy()))


def auroc(labels: Tensor, outputs: Tensor) -> float:
    return float(roc_auc_score(labels.numpy(), (outputs[:, 1] - outputs[:, 0]).numpy()))


class F1Score:
    """Of torchmetrics' shape."""

    higher_is_better = True

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._right = self._wrong = 0

    def update(self, preds: Tensor, target: Tensor) -> None:
        chosen = preds.argmax(1)
        self._right += int(((chosen == 1) & (target == 1)).sum())
        self._wrong += int((chosen != target).sum())

    def compute(self) -> Tensor:
        return torch.tensor(2 * self._right / (2 * self._right + self._wrong), dtype=torch.float64)


def values_of(task: orlomo.Task, seed: int = 0) -> dict[str, float]:
    return evaluate(task, task.build(seed), task.initial_params(seed), seed).values


def test_metrics_over_several_batches_are_exact() -> None:
    source = torch.Generator().manual_seed(3)
    inputs, labels = torch.randn(901, 4, generator=source), torch.randint(0, 2, (901,), generator=source)
    declared = [
        orlomo.Metric("f1", lambda: Collected(f1)),
        orlomo.Metric("auroc", lambda: Collected(auroc)),
        F1Score(),
        orlomo.Metric("wrapped", F1Score, better="higher"),
        orlomo.accuracy,
        orlomo.Metric.mean("first", lambda model, batch: batch[0][:, 0].double().mean()),
    ]
    task = classification(test_data=(inputs, labels), metrics=declared)
    found = values_of(task)
    with torch.no_grad():
        outputs = task.build(0).module(inputs)
    assert found["test_f1"] == f1(labels, outputs)
    assert found["test_auroc"] == auroc(labels, outputs)
    assert found["test_f1_score"] == found["test_wrapped"] == pytest.approx(f1(labels, outputs), abs=1e-15)
    assert found["test_accuracy"] == (outputs.argmax(1) == labels).double().mean().item()
    assert found["test_first"] == pytest.approx(inputs[:, 0].double().mean().item(), rel=1e-12)
    plain = values_of(classification(test_data=(inputs, labels)))
    assert {name: found[name] for name in plain} == plain  # others beside them change no bit


def test_perplexity_without_accuracy_and_the_training_data() -> None:
    entropy = orlomo.Metric.mean("entropy", lambda model, batch: -model(batch[0]).log_softmax(1).mean(), data="train")

    class Perplexity:
        def __init__(self) -> None:
            self.total, self.count = 0.0, 0

        def update(self, model: nn.Module, batch: Any) -> None:
            self.total += float(nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum"))
            self.count += len(batch[1])

        def compute(self) -> float:
            return math.exp(self.total / self.count)

    perplexity = orlomo.Metric("perplexity", Perplexity, better="lower", log=True)
    task = classification(metrics=[perplexity, entropy])
    found = values_of(task)
    assert list(found) == ["test_perplexity", "train_entropy", "train_loss", "test_loss"]
    assert found["test_perplexity"] == pytest.approx(math.exp(found["test_loss"]), rel=1e-6)


def test_two_test_sets_by_name() -> None:
    inputs, labels = classification().train_data
    sets = {"clean": (inputs, labels), "shifted_2": (inputs + 10, labels)}
    only = orlomo.Metric("f1", lambda: Collected(f1), data="shifted_2", label="F1")
    task = classification(test_data=sets, metrics=[only, orlomo.accuracy])
    assert [one.column for one in measured(task)] == [
        "shifted_2_f1",
        "clean_accuracy",
        "shifted_2_accuracy",
        "train_loss",
        "clean_loss",
        "shifted_2_loss",
    ]
    found = values_of(task)
    for name, data in sets.items():
        alone = values_of(classification(test_data=data))
        assert (found[f"{name}_loss"], found[f"{name}_accuracy"]) == (alone["test_loss"], alone["test_accuracy"])
    assert measured(task)[0].described().label == "shifted 2 F1"


def test_without_test_data_only_the_training_loss_is_measured() -> None:
    assert list(values_of(classification(test_data=None))) == ["train_loss"]
    with pytest.raises(orlomo.OrlomoError, match=r"metric 'f1' has no test_data: give the task some, or data='train'"):
        classification(test_data=None, metrics=[orlomo.Metric("f1", F1Score)])


def test_wrong_declarations_are_refused() -> None:
    for make, text in (
        (lambda: orlomo.Metric("a b", F1Score), "letters, digits and underscores"),
        (lambda: orlomo.Metric("a", F1Score()), "make must be a function"),
        (lambda: orlomo.Metric("a", F1Score, better="hihger"), "did you mean 'higher'"),
        (lambda: orlomo.Metric("a", F1Score, scale=0), "scale must be a number above 0"),
        (lambda: orlomo.Metric.mean("a", 3), "fn must be a function"),
        (lambda: classification(metrics=[orlomo.Metric("a", F1Score, data="tset")]), "did you mean 'test'"),
        (lambda: classification(metrics=[f1]), r"not function: Metric.mean\(name, fn\) makes one"),
        (lambda: classification(metrics="f1"), "must be a list of Metric objects"),
        (lambda: classification(metrics=[orlomo.Metric("loss", F1Score)]), "two metrics would have the column"),
        (lambda: classification(metrics=[orlomo.accuracy, orlomo.accuracy]), "test_accuracy in metrics.csv"),
        (lambda: classification(test_data={}), "test_data is empty"),
        (lambda: classification(test_data={"train": torch.ones(2, 4)}), "cannot be named 'train'"),
        (lambda: classification(test_data={"a-b": torch.ones(2, 4)}), "a test set's name must be of letters"),
        (
            lambda: classification(
                test_data={"real": classification().test_data}, metrics=[orlomo.Metric("seconds", F1Score)]
            ),
            "metrics.csv has a column real_seconds of its own",
        ),
    ):
        with pytest.raises(orlomo.OrlomoError, match=text):
            make()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.ones(3), r"a tensor of shape \(3,\)"),
        ("0.5", "'0.5'"),
        (None, "None"),
        ({"f1": 0.5}, "f1"),
        (1j, "1j"),
    ],
)
def test_what_is_no_number_is_one_line(value: object, text: str) -> None:
    task = classification(metrics=[orlomo.Metric("own", lambda: Collected(lambda labels, outputs: value))])
    with pytest.raises(orlomo.OrlomoError, match=rf"^metric 'own' gives .*{text}.*: it must give one number$"):
        values_of(task)
    task = classification(metrics=[orlomo.Metric("own", dict)])
    with pytest.raises(orlomo.OrlomoError, match="an object with update and compute, not dict"):
        values_of(task)


def test_the_default_metrics_share_one_forward_pass() -> None:
    calls = []

    class Counting(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            calls.append(len(inputs))
            return super().forward(inputs)

    task = classification(model=lambda: Counting(4, 2))
    values_of(task)
    assert calls == [64, 32]  # the training part, the test data
    calls.clear()
    values_of(classification(model=lambda: Counting(4, 2), metrics=[orlomo.accuracy, F1Score()]))
    assert calls == [64, 32]
    calls.clear()
    values_of(classification(model=lambda: Counting(4, 2), metrics=[orlomo.Metric("f1", lambda: Collected(f1))]))
    assert calls == [64, 32, 32]  # a user's own has one to itself


FILE = """
import dataclasses, orlomo
from small import classification
from test_metrics import Collected, f1

def task():
    own = orlomo.Metric("own_f1", lambda: Collected(f1), label="own F1", scale=100)
    return dataclasses.replace(classification(), metrics=[own])
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TensorBoard's own
def test_one_declaration_makes_it_appear_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    (tmp_path / "mine.py").write_text(FILE)
    words = ["mine.py:task", "--workers", 2, "--epochs", 4, "--local-steps", 2, "--jobs", 1]
    done = call_cli("train", *words, "--method", "orlomo", "--tensorboard", "--out", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    run = orlomo.load(tmp_path / "run")
    last = float(run.metric_columns["test_own_f1"][-1])
    assert 0 < last <= 1
    assert f"{100 * last:.2f}% test own F1" in done.stdout  # the terminal
    described = json.loads((run.folder / "metrics.json").read_text())
    assert described[0] | {"column": "test_own_f1", "label": "test own F1", "better": "higher"} == described[0]
    as_json = json.loads(call_cli("resume", "run", "--json", folder=tmp_path).stdout)
    assert as_json["test_own_f1"] == last
    page = write_report([run.folder], tmp_path / "page.html")
    assert "Test own F1" in [chart["title"] for chart in page["charts"]]
    assert page["runs"][0]["charts"]["metric-own_f1"]["test own F1"]["value"][-1] == pytest.approx(100 * last)
    assert page["runs"][0]["measured"]["test own F1"] == f"{100 * last:.2f}%"
    assert "own_f1-seconds.png" in [
        path.name for path in write_figures(page["charts"], page["runs"], tmp_path / "figures")
    ]
    assert f"test own F1 {100 * last:.2f}%" in run._repr_html_()
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = events.EventAccumulator(str(run.folder / "tensorboard")).Reload()
    assert found.Scalars("evaluation/test_own_f1")[-1].value == pytest.approx(last)
    assert call_cli("export", "run", "--format", "csv", "-o", "csv", folder=tmp_path).returncode == 0
    assert "test_own_f1" in (tmp_path / "csv/metrics.csv").read_text().splitlines()[0]
    compared = call_cli("compare", *words, "--methods", "orlomo", "--seeds", 2, "--out", "both", folder=tmp_path)
    assert compared.returncode == 0, compared.stderr
    assert "test own F1" in compared.stdout
    assert "± " in compared.stdout
    assert (tmp_path / "both/own_f1.png").is_file()
    [row] = json.loads((tmp_path / "both/comparison.json").read_text())["methods"]
    assert {"test_own_f1", "test_own_f1_spread", "train_loss", "seconds"} <= set(row)


def test_the_screen_shows_it_while_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from orlomo.report.terminal.screen import TerminalProgress

    metric = orlomo.Metric("own", lambda: Collected(f1), label="own F1")
    shown = TerminalProgress()
    task = classification(metrics=[metric])
    run = orlomo.train(task, settings("orlomo"), workers=2, epochs=2, jobs=1, out=tmp_path / "run", callbacks=[shown])
    assert f"test own F1 {run.metric_columns['test_own'][-1]:.4g}" in shown.run.facts


def test_a_chart_is_one_declaration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Declared once, it is on the page and among the figures."""
    own = Chart(
        name="compute",
        title="Seconds of computing",
        kind="dots",
        x="finish",
        y="compute",
        needs="reports",
        data=lambda view: {name: view.reports[name].tolist() for name in ("finish", "worker", "compute")},
    )
    monkeypatch.setattr("orlomo.report.charts.CHARTS", (*CHARTS, own))
    run = orlomo.train(classification(), settings("orlomo"), workers=2, epochs=2, jobs=1, out=tmp_path / "run")
    charts, runs = drawn([view_of(run, "run", [])])
    assert charts[-1]["title"] == "Seconds of computing"
    assert runs[0]["charts"]["compute"]["compute"] == run.event_columns["compute"].tolist()
    assert "Seconds of computing" in page_of({"charts": charts, "runs": runs})
    assert (tmp_path / "figures/run/compute.svg") in write_figures(charts, runs, tmp_path / "figures")


def test_no_reader_knows_a_metrics_name() -> None:
    """A metric touches the file of its task, and none of ours."""
    source = Path(orlomo.__file__).parent
    allowed = {"tasks/metrics.py", "reproduce/experiment.py"}
    found = set()
    for path in (*source.rglob("*.py"), *source.glob("report/web/page.*")):
        lines = path.read_text().splitlines()
        code = [line for line in lines if not line.lstrip().startswith((">>>", "...", "#"))]
        if any(f'"{name}"' in line for line in code for name in ("test_accuracy", "train_loss", "test_loss")):
            found.add(str(path.relative_to(source)))
    assert found <= allowed


def test_a_task_that_measures_something_else_now_is_said(tmp_path: Path) -> None:
    class Stop(orlomo.Callback):
        def event(self, row: dict[str, Any]) -> None:
            if row["reports"] == 10:
                raise KeyboardInterrupt

    more = {"workers": 2, "epochs": 8, "jobs": 1, "checkpoint_seconds": 0.0, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        orlomo.train(classification(), settings("orlomo"), **more, callbacks=[Stop()])
    said: list[str] = []
    other = classification(metrics=[orlomo.Metric("f1", F1Score)])
    run = orlomo.resume(tmp_path / "run", task=other, jobs=1, warn=said.append)
    assert [text.partition("began: ")[2] for text in said] == [
        "test_f1 is new and not recorded",
        "test_accuracy is no longer measured",
    ]
    accuracies = run.metric_columns["test_accuracy"]
    assert np.isnan(accuracies[-1])
    assert np.isfinite(accuracies[0])
