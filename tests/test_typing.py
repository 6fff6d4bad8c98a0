"""What a user's type checker and `help()` see of the public names."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import orlomo

PACKAGE = Path(orlomo.__file__).parent
PROJECT = Path(__file__).parents[1]

RIGHT = """
from pathlib import Path

import torch
from torch import Tensor, nn

import orlomo


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


data = (torch.randn(32, 4), torch.randint(0, 2, (32,)))
task: orlomo.Task = orlomo.Task(model=lambda: nn.Linear(4, 2), loss=loss, train_data=data, batch_size=8)
method: orlomo.Method = orlomo.OrLoMo(learning_rate=0.1, momentum=0.9, local_steps=16)
other: orlomo.Method = orlomo.method("prsgdm", momentum=0.8)
cluster: orlomo.Cluster = orlomo.Cluster(
    speeds=(orlomo.Speed(share=3.0), orlomo.Speed(factor=2.0)),
    faults=(orlomo.Fault(time=3.0, worker=1, kind="crash"),),
)
run: orlomo.Run = orlomo.train(
    task, method, workers=4, epochs=1, cluster=cluster, seed=1, jobs=1, out=Path("runs") / "a", pace=None
)
params: Tensor = run.params
folder: Path = run.folder
name: str = run.config.method.name
again: orlomo.Run = orlomo.resume("runs/a", task=task)
agrees: bool = orlomo.replay("runs/a", task=task).agrees
delays = orlomo.trace(other, workers=4, iterations=100, cluster=orlomo.cluster("heterogeneous"))["delay"]

server: orlomo.Server = method.server(torch.zeros(3), workers=2)
assignments: list[orlomo.Assignment] = server.start()
report = orlomo.Report(worker=0, index=0, delta_params=torch.zeros(3), delta_momentum=torch.zeros(3))
try:
    assignments = server.receive(report)
except orlomo.ReportRefused as error:
    reason: str = error.reason
state = server.state_dict()
server.load_state_dict(state)
first: Tensor = assignments[0].params
"""

WRONG = """
import orlomo

orlomo.train("digits", worker=4)
orlomo.train("digits", workers="four")
orlomo.OrLomo()
count: int = orlomo.load("runs/a").folder
"""


def check(**scripts: str) -> list[str]:
    """What `mypy --strict` says about these scripts, one error per line."""
    options = ["--strict", "--follow-imports=silent", "--no-error-summary", "--config-file", PROJECT / "pyproject.toml"]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in scripts.items():
            (Path(folder) / f"{name}.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *options, *Path(folder).glob("*.py")],
            capture_output=True,
            text=True,
            env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
            cwd=PROJECT,  # where mypy's cache is, of the check before the tests
        )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_a_script_with_the_public_names_passes_and_mistakes_are_found() -> None:
    assert (PACKAGE / "py.typed").is_file()  # else a user's type checker does not look
    errors = [line for line in check(right_script=RIGHT, wrong_script=WRONG) if "error" in line]
    found = [(Path(line.split(":")[0]).stem, line.split(":")[1]) for line in errors]
    assert sorted(found) == [("wrong_script", number) for number in "4567"], errors


@pytest.mark.parametrize("name", orlomo.__all__)
def test_every_public_name_has_an_example(name: str) -> None:
    text = getattr(orlomo, name).__doc__ or ""
    assert ">>> " in text, f"orlomo.{name} has no example in its docstring"
