"""torch.compile: decided once, the same bits on any number of jobs, a note where it cannot work."""

import dataclasses

import pytest
import torch
from torch import nn

import orlomo
from orlomo.engines import compiling
from orlomo.engines.round import RoundRunner
from orlomo.tasks.task import classification_loss
from small import run_cli


def network():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def small_task(**changes):
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(60, 1, 8, 8, generator=generator), torch.randint(0, 3, (60,), generator=generator)
    data = (images, labels)
    settings = {"model": network, "loss": classification_loss, "train_data": data, "test_data": data, "batch_size": 5}
    return orlomo.Task(**{**settings, "compile": True, **changes})


@pytest.mark.parametrize(
    ("choice", "changes", "steps", "decided"),
    [
        ("auto", {}, compiling.WORTH_STEPS, "on"),
        ("auto", {}, compiling.WORTH_STEPS - 1, "off"),
        ("auto", {"compile": False}, 10**6, "off"),
        ("auto", {"buffers": "average"}, 10**6, "off"),
        ("off", {}, 10**6, "off"),
        ("on", {"compile": False}, 1, "on"),
    ],
)
def test_decision(choice, changes, steps, decided):
    assert compiling.decide(choice, small_task(**changes), steps, "cpu", pytest.fail) == decided


def test_same_bits_on_any_number_of_jobs_and_close_to_uncompiled(tmp_path):
    method = orlomo.OrLoMo(learning_rate=0.05, local_steps=2)
    settings = {"workers": 2, "epochs": 0.5}
    runs = {
        (jobs, choice): orlomo.train(
            small_task(), method, **settings, jobs=jobs, compile=choice, out=tmp_path / f"{jobs}{choice}"
        )
        for jobs, choice in ((1, "on"), (2, "on"), (1, "off"))
    }
    one, two, off = runs.values()
    assert one.config.compile == "on"
    assert torch.equal(one.params, two.params)
    assert torch.allclose(one.params, off.params, atol=1e-5)
    assert one.metric_columns["test_loss"][-1] == pytest.approx(off.metric_columns["test_loss"][-1], abs=1e-5)


def test_what_was_decided_is_recorded_and_found_again(tmp_path):
    run = orlomo.train(small_task(), orlomo.ALSGD(local_steps=2), workers=2, epochs=0.5, jobs=1, out=tmp_path / "a")
    assert run.config.compile == "off"  # too short to pay
    assert orlomo.config.same_run(run.config, dataclasses.replace(run.config, compile="auto"))
    assert not orlomo.config.same_run(run.config, dataclasses.replace(run.config, compile="on"))


def test_without_a_compiler_there_is_a_note_and_the_run_continues(tmp_path):
    environment = {"CXX": str(tmp_path / "no-such-compiler"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = run_cli(
        *("train", "digits", "--epochs", "0.2", "--workers", "2", "--compile", "on", "--jobs", "1"),
        *("--out", str(tmp_path / "run")),
        environment=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "torch.compile does not work here" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert orlomo.load(tmp_path / "run").config.compile == "off"


def test_every_model_is_compiled_however_many_there_were_before():
    """Beyond its default limit, torch.compile would silently run uncompiled: other bits, by what came before."""
    from torch._dynamo.utils import counters

    assert not compiling.why_not("cpu")
    method = orlomo.OrLoMo(learning_rate=0.05, local_steps=2)
    assignment = method.server(small_task().initial_params(0), 1).start()[0]
    torch.compiler.reset()  # another test in this process may have compiled one of these shapes
    alive = []
    for batch in range(2, 12):
        before = counters["stats"]["unique_graphs"]
        alive.append(RoundRunner(small_task(batch_size=batch), method, seed=0))
        alive[-1].run(assignment)
        assert counters["stats"]["unique_graphs"] == before + 1
