"""Methods of a user's own: run as written, on every engine of this machine, killed, resumed and replayed."""

from __future__ import annotations

import dataclasses
import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import orlomo
from orlomo.methods.ledger import AsynchronousLedger, Fold, Step
from orlomo.methods.messages import WorkerState
from orlomo.methods.state import ServerState
from orlomo.methods.worker import MomentumSteps, PlainSteps, WorkerRule
from small import classification

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_method.py"
LIVE_AND_SIMULATED = pytest.mark.parametrize("engine", ["simulated", "processes"])


@dataclass(frozen=True, kw_only=True)
class Half(orlomo.ALSGD):
    """A subclass: half as far as its parent."""

    half: float = 0.5

    def fold(self, state: ServerState, fold: Fold, report: orlomo.Report) -> None:
        state.params.data.sub_(report.delta_params, alpha=self.half * fold.eta)  # unseen by autograd's version counter


class OwnVectors(WorkerRule):
    """Makes new vectors for each report and forgets to say whose they are."""

    def __init__(self, params: Tensor):
        self.params = params

    def start(self, assignment: orlomo.Assignment) -> None:
        self.start_at, self.rate = assignment.params.clone(), assignment.learning_rate
        self.params.copy_(assignment.params)

    def step(self, gradient: Tensor) -> None:
        self.params.sub_(gradient, alpha=self.rate)

    def finish(self, samples: int = 0, loss: float = math.nan) -> orlomo.Report:
        return orlomo.Report(0, 0, self.start_at - self.params)


@dataclass(frozen=True, kw_only=True)
class Own(orlomo.ALSGD):
    """A worker rule that makes its own delta."""

    name: ClassVar[str] = "of my own"

    def worker(self, params: Tensor) -> WorkerRule:
        return OwnVectors(params)


@dataclass(frozen=True, kw_only=True)
class Carrying(orlomo.OrLoMo):
    """Asynchronous, and carries the server's momentum into each round, under a name of its own."""

    assignment_vectors: ClassVar[dict[str, str]] = {"params": "params", "momentum": "momentum"}


class SlowerSteps(AsynchronousLedger):
    """Slow workers take fewer steps: S times their pace over the best."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.paces: dict[int, float] = {}

    def receive(self, worker: int, samples: int, seconds: float = 0.0) -> Step:
        self.paces[worker] = self.outstanding[worker].local_steps / max(seconds, 1e-9)
        return super().receive(worker, samples, seconds)

    def steps_for(self, worker: int) -> int:
        fastest = max(self.paces.values(), default=1.0)
        return max(1, int(self.rules.local_steps * self.paces.get(worker, fastest) / fastest))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "paces": list(self.paces.items())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.paces = dict(state["paces"])


@dataclass(frozen=True, kw_only=True)
class Paced(orlomo.ALSGD):
    """Sets its own local steps for each assignment."""

    ledger_class: ClassVar[Any] = SlowerSteps


@dataclass(frozen=True, kw_only=True)
class Impatient(orlomo.ALSGD):
    """Drops what comes late."""

    latest: int = 2

    def drops(self, fold: Fold) -> bool:
        return fold.delay > self.latest


def trained(method: orlomo.Method, folder: Path, engine: str = "simulated", **more: Any) -> orlomo.Run:
    settings: dict[str, Any] = {"workers": 3, "epochs": 6, "engine": engine, "jobs": 1, **more}
    if engine == "simulated":
        settings["cluster"] = "heterogeneous:4"
    else:
        settings["pace"] = (1, 1, 3)
    return orlomo.train(classification(), method, out=folder, **settings)


@LIVE_AND_SIMULATED
@pytest.mark.parametrize(
    "method",
    [Half(), Own(learning_rate=0.05), Carrying(local_steps=4), Paced(local_steps=8), Impatient(local_steps=2)],
    ids=lambda method: type(method).__name__,
)
def test_it_is_run_as_written_and_replays(method: orlomo.Method, engine: str, tmp_path: Path) -> None:
    run = trained(method, tmp_path / "run", engine)
    assert run.finished
    assert run.config.method.name == method.name
    assert not torch.equal(run.params, classification().initial_params(0))
    assert orlomo.replay(run.folder, task=classification(), method=method, jobs=2).agrees


def test_a_subclass_does_not_train_as_its_parent(tmp_path: Path) -> None:
    methods = (orlomo.ALSGD(), Half(), Half(half=1.0))
    runs = [trained(method, tmp_path / str(number)) for number, method in enumerate(methods)]
    assert not torch.equal(runs[0].params, runs[1].params)
    assert torch.equal(runs[0].params, runs[2].params)
    assert runs[1].config.method.name == "Half"


def test_steps_of_its_own(tmp_path: Path) -> None:
    events = trained(Paced(local_steps=8), tmp_path / "run", epochs=20).event_columns
    steps = {worker: set(events["local_steps"][events["worker"] == worker].tolist()) for worker in range(3)}
    assert steps[0] | steps[1] >= {8}
    assert max(steps[2] - {8}) < 8  # the slow one, once it has been measured
    assert int((events["local_steps"] * 8).sum()) >= 20 * classification().size


def test_dropped_reports_are_recorded_and_change_nothing(tmp_path: Path) -> None:
    events = trained(Impatient(local_steps=2), tmp_path / "run", epochs=20).event_columns
    dropped = events["kind"] == "drop"
    assert dropped.any()
    assert (events["delay"][dropped] > 2).all()
    assert (events["delay"][events["kind"] == "report"] <= 2).all()
    assert events["iteration"][-1] + 1 == (events["kind"] == "report").sum() + (events["kind"][-1] == "drop")


@LIVE_AND_SIMULATED
def test_an_object_is_asked_for_again(engine: str, tmp_path: Path) -> None:
    run = trained(Half(), tmp_path / "run", engine)
    for call in (orlomo.resume, orlomo.replay):
        shutil.rmtree(run.folder / "checkpoints") if call is orlomo.resume else None
        with pytest.raises(
            orlomo.OrlomoError, match=rf"a method that only Python has: give it, as in orlomo.{call.__name__}"
        ):
            call(run.folder, task=classification())
    with pytest.raises(orlomo.OrlomoError, match=r"has half = 0.5, the method given has 0.25"):
        orlomo.resume(run.folder, task=classification(), method=Half(half=0.25))


def test_what_cannot_be_written_down_does_not_start(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Callable(orlomo.ALSGD):
        knob: Any = field(default=print)

    with pytest.raises(orlomo.OrlomoError, match=r"knob = <built-in function print> cannot be written to config.toml"):
        trained(Callable(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(EXAMPLE.read_text())
    folder, warnings = tmp_path / "run", list[str]()
    orlomo.train("digits", orlomo.method(f"{own}:Smoothed"), workers=2, epochs=1, jobs=1, out=folder)
    assert orlomo.replay(folder, jobs=1, warn=warnings.append).agrees
    assert warnings == []
    own.write_text(EXAMPLE.read_text().replace("alpha=2 / fold.workers", "alpha=1 / fold.workers"))
    result = orlomo.replay(folder, jobs=1, warn=warnings.append)
    assert not result.agrees
    assert "the file of the method has changed since" in str(result)
    assert "has changed since" in warnings[0]


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"server_vectors": ("momentum",)}, "server_vectors must have 'params'"),
        ({"server_vectors": "params"}, "must be a tuple of names"),
        ({"server_vectors": ("params", "params")}, "has a name twice"),
        ({"server_vectors": ("params", "ledger")}, "cannot be called 'ledger'"),
        ({"assignment_vectors": {"params": "lookahead"}}, "not kept"),
        ({"assignment_vectors": ("momentum",), "server_vectors": ("params", "momentum")}, "must have 'params'"),
        ({"report_vectors": ()}, "report_vectors is empty"),
    ],
)
def test_wrong_declarations_are_named(declared: dict[str, Any], text: str) -> None:
    kind = type("Wrong", (orlomo.ALSGD,), declared)
    with pytest.raises(orlomo.OrlomoError, match=text):
        kind()


@LIVE_AND_SIMULATED
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda p: MomentumSteps(p, 0.9), r"has \['delta_momentum', 'delta_params'\], but report_vectors declares"),
        (lambda p: _Short(p), r"delta_params of the worker rule is \(1,\)"),
        (lambda p: _Numbers(p), r"keeps the numbers \['steps'\], but declares \[\]"),
    ],
)
def test_a_worker_rule_that_does_not_keep_to_the_declaration(rule: Any, text: str, engine: str, tmp_path: Path) -> None:
    kind = type("Wrong", (orlomo.ALSGD,), {"worker": lambda self, params: rule(params)})
    with pytest.raises(orlomo.OrlomoError, match=text):
        trained(kind(), tmp_path / "run", engine)


class _Short(PlainSteps):
    def finish(self, samples: int = 0, loss: float = math.nan) -> orlomo.Report:
        return orlomo.Report(0, 0, torch.zeros(1))


class _Numbers(PlainSteps):
    def start(self, assignment: orlomo.Assignment) -> None:
        super().start(assignment)
        self.state.numbers["steps"] = 1


def test_vectors_put_in_place_of_others_are_copied(tmp_path: Path) -> None:
    """A report's memory is used again; a worker's two buffers may change places."""

    class Keeping(orlomo.ALSGD):
        server_vectors = ("params", "last")

        def fold(self, state: ServerState, fold: Fold, report: orlomo.Report) -> None:
            state.params.sub_(report.delta_params + 0.1 * state.vectors["last"], alpha=fold.eta)
            state.vectors["last"] = report.delta_params

    class Swapping(PlainSteps):
        def step(self, gradient: Tensor) -> None:
            kept = self.state.vectors
            kept["now"], kept["before"] = kept["before"], kept["now"]
            kept["now"].copy_(gradient)
            super().step(kept["now"] + 0.5 * kept["before"])

    swaps = {"worker_vectors": ("now", "before"), "worker": lambda self, params: Swapping(params)}
    for method in (Keeping(local_steps=3), type("Swaps", (orlomo.ALSGD,), swaps)(local_steps=3)):
        runs = [trained(method, tmp_path / f"{method.name}-{jobs}", jobs=jobs) for jobs in (1, 2)]
        assert torch.equal(runs[0].params, runs[1].params)
        real = trained(method, tmp_path / f"{method.name}-real", "processes")
        assert orlomo.replay(real.folder, task=classification(), method=method, jobs=1).agrees


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"learning_rate": 0.5}, "learning_rate = 0.5 has no type and no effect"),
        ({"synchronous": True}, r"is synchronous: define close\(state, reports\)"),
        (
            {"synchronous": True, "close": lambda *_: None, "drops": lambda *_: True},
            "no report is dropped at a barrier",
        ),
        ({"server_numbers": ("count",)}, "server_numbers must be a table"),
        ({"worker_numbers": {"steps": True}}, "the number 'steps' is a bool"),
        ({"assignment_vectors": None}, "assignment_vectors must be a tuple of names or a table"),
    ],
)
def test_what_would_have_no_effect_is_refused(members: dict[str, Any], text: str) -> None:
    with pytest.raises(orlomo.OrlomoError, match=text):
        type("Wrong", (orlomo.ALSGD,), members)()


def test_settings_that_would_hide_a_part_of_the_contract_are_refused() -> None:
    for name in ("eta", "weight", "name"):
        kind = dataclasses.make_dataclass(
            "Wrong", [(name, float, 1.0)], bases=(orlomo.ALSGD,), frozen=True, kw_only=True
        )
        with pytest.raises(orlomo.OrlomoError, match=f"a setting cannot be called '{name}'"):
            kind()


def test_a_rule_that_changes_what_it_was_assigned_is_refused(tmp_path: Path) -> None:
    class InPlace(PlainSteps):
        def finish(self, samples: int = 0, loss: float = math.nan) -> orlomo.Report:
            return orlomo.Report(0, 0, self.assignment.params.sub_(self.params))

    kind = type("Wrong", (orlomo.ALSGD,), {"worker": lambda self, params: InPlace(params)})
    for engine, jobs in (("simulated", 1), ("simulated", 2), ("processes", 1)):
        with pytest.raises(orlomo.OrlomoError, match="changes the assignment's vectors in place"):
            trained(kind(), tmp_path / f"{engine}-{jobs}", engine, jobs=jobs)


@pytest.mark.parametrize("steps", [0, -1, 2.5, None])
def test_a_round_has_at_least_one_step(steps: Any, tmp_path: Path) -> None:
    ledger = type("Wrong", (AsynchronousLedger,), {"steps_for": lambda self, worker: steps})
    with pytest.raises(orlomo.OrlomoError, match="must give a whole number of at least 1"):
        trained(type("Wrong", (orlomo.ALSGD,), {"ledger_class": ledger})(), tmp_path / "run")


def test_a_finished_run_shows_what_it_was_made_with(tmp_path: Path) -> None:
    run = trained(Half(learning_rate=0.02, half=0.25), tmp_path / "run")
    found: Any = run.config.method
    assert (found.learning_rate, found.half) == (0.02, 0.25)
    with pytest.raises(orlomo.OrlomoError, match=r"method is the class Half: give an object of it, as in Half\(\)"):
        orlomo.train("digits", Half)  # type: ignore[arg-type]


def test_undeclared_vectors_are_refused(tmp_path: Path) -> None:
    def fold(self: orlomo.Method, state: ServerState, fold: Fold, report: orlomo.Report) -> None:
        state.vectors["more"] = report.delta_params

    with pytest.raises(orlomo.OrlomoError, match=r"keeps \['more', 'params'\], but server_vectors declares"):
        trained(type("Wrong", (orlomo.ALSGD,), {"fold": fold})(), tmp_path / "run")


def test_a_report_without_samples_does_not_freeze_the_schedule() -> None:
    """By hand it is refused where the learning rate goes by samples; engines count for themselves."""
    method = orlomo.ALSGD(schedule="step:1", local_steps=1)
    server = method.server(torch.zeros(2), 1, epoch_samples=4)
    server.start()
    with pytest.raises(orlomo.ReportRefused, match="counts no samples") as refusal:
        server.receive(orlomo.Report(0, 0, torch.ones(2)))
    assert refusal.value.reason == "samples"
    [again] = server.receive(orlomo.Report(0, 0, torch.ones(2), samples=4))
    assert again.learning_rate == pytest.approx(0.01)


def test_the_layout_names_the_models_tensors(tmp_path: Path) -> None:
    seen: dict[str, slice] = {}

    class Layered(orlomo.ALSGD):
        def fold(self, state: ServerState, fold: Fold, report: orlomo.Report) -> None:
            seen.update(state.layout)
            super().fold(state, fold, report)

    trained(Layered(), tmp_path / "run")
    module = classification().build(0)
    assert list(seen) == [name for name, _ in module.module.named_parameters()]
    assert sum(part.stop - part.start for part in seen.values()) == module.params.numel()


def test_a_workers_state_is_pure(tmp_path: Path) -> None:
    """A rule that keeps its vectors in memory of its own does not change what the engine keeps."""

    class Hoarding(PlainSteps):
        def start(self, assignment: orlomo.Assignment) -> None:
            super().start(assignment)
            if not hasattr(self, "own"):
                self.own = torch.zeros_like(self.params)
            self.own.copy_(self.state.vectors["mine"])
            self.state = WorkerState({"mine": self.own}, {})

        def step(self, gradient: Tensor) -> None:
            self.own.add_(gradient)
            super().step(self.own.mul(0.1))

    members = {"worker_vectors": ("mine",), "worker": lambda self, params: Hoarding(params)}
    method = type("Hoarder", (orlomo.ALSGD,), members)(local_steps=2)
    runs = [trained(method, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2)]
    assert torch.equal(runs[0].params, runs[1].params)
    real = trained(method, tmp_path / "real", "processes")
    assert orlomo.replay(real.folder, task=classification(), method=method, jobs=1).agrees
