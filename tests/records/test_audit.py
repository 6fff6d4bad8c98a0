"""The rounds of users' loops in the record, and whether every sample was used exactly once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orlomo.clusters.cluster import cluster
from orlomo.clusters.schedule import KINDS, REPORT
from orlomo.commands.main import main
from orlomo.config import RunConfig
from orlomo.engines.loops.blocks import Blocks
from orlomo.errors import RunFolderError
from orlomo.loop.messages import Lease
from orlomo.methods.registry import method
from orlomo.records.audit import Range, _pieces, audit
from orlomo.records.recorder import RunRecorder, create_folder
from orlomo.records.run import Run
from orlomo.records.tables import LOOP_ROUNDS, MetricColumn
from orlomo.report.export import export

CONFIG = RunConfig(task="quadratic", method=method("asgd"), cluster=cluster("homogeneous"))
MEASURED = [MetricColumn("train_loss", "training loss", "loss", "loss", better="lower")]


class Written:
    """A run folder as a run writes it: an event and a row of rounds.csv per report."""

    def __init__(self, folder: Path, recorder: RunRecorder | None = None, events: int = 0):
        self.folder, self.events = folder, events
        if recorder is None:
            create_folder(folder, CONFIG, MEASURED)
        self.recorder = recorder or RunRecorder(folder, 1e9)

    def crash(self, worker: int) -> None:
        self.recorder.event({"kind": KINDS.index("crash"), "worker": worker})
        self.events += 1

    def report(self, worker: int, used: Lease, event: int | None = None) -> None:
        self.recorder.event({"kind": REPORT, "worker": worker})
        row = {"event": self.events if event is None else event, "worker": worker, "round": 0, "clock": 0}
        samples = {**used._asdict(), "samples": used.samples, "steps": 2, "batches": 3}
        self.recorder.round({**row, **samples, "checksum": "ab12"})
        self.events += 1

    def save(self, blocks: Blocks | None, **values: object) -> None:
        more = {} if blocks is None else {"blocks": blocks.to_json()}
        self.recorder.save(self.events, {"server.params": torch.zeros(1)}, {**more, **values})

    def close(self) -> Path:
        self.recorder.close()
        return self.folder


def written(folder: Path, used: Iterable[tuple[int, Lease]], finished: bool = True, **values: object) -> Path:
    """A run of 2 epochs of 8 samples in which these leases were used by these workers."""
    run = Written(folder)
    for worker, lease in used:
        run.report(worker, lease)
    run.save(Blocks(size=8, block=4, samples=16), finished=finished, **values)
    return run.close()


WHOLE = [(0, Lease(0, 0, 4)), (1, Lease(1, 0, 4)), (1, Lease(0, 4, 8)), (0, Lease(1, 4, 8))]


def test_a_run_with_crashes_uses_every_sample_once(tmp_path: Path) -> None:
    run = Written(tmp_path / "run")
    blocks = Blocks(size=50, block=8, samples=125, workers=3)
    source = random.Random(0)
    while not blocks.complete:
        worker = source.randrange(3)
        leases = blocks.lease(worker, ahead=1)
        if not leases or source.random() < 0.2:
            blocks.give_back(worker)
            run.crash(worker)
            continue
        used = leases[0]._replace(stop=source.randint(leases[0].first + 1, leases[0].stop))
        blocks.fold(worker, used)
        run.report(worker, used)
    run.save(blocks, finished=True)
    found = audit(run.close())
    assert found.ok
    assert found.text == "each of the 125 samples (2.5 epochs of 50) was used exactly once"
    assert [(one.samples, one.used, one.double) for one in found.epochs] == [(50, 50, 0), (50, 50, 0), (25, 25, 0)]
    assert sum(one.samples for one in found.workers) == found.used == 125
    assert {one.worker for one in found.workers} == {0, 1, 2}


@pytest.mark.parametrize(
    ("used", "text"),
    [
        (WHOLE[1:], "4 missing: 0 to 3 of epoch 0"),
        ([*WHOLE[:3], (0, Lease(1, 4, 7))], "1 missing: 7 of epoch 1"),
        ([*WHOLE, (2, Lease(1, 3, 5))], "2 used more than once: 3 to 4 of epoch 1 (workers 0, 1, 2)"),
        ([*WHOLE, (2, Lease(1, 7, 9))], "1 used more than once: 7 of epoch 1 (workers 0, 2); 1 not of this run: 8 of"),
        ([*WHOLE, (2, Lease(2, 0, 4))], "4 not of this run: 0 to 3 of epoch 2 (workers 2)"),
        ([(0, Lease(0, 0, 8)), (0, Lease(0, 2, 3))], "8 missing: 0 to 7 of epoch 1; 1 used more than once: 2 of"),
        ([(0, Lease(0, 2 * n, 2 * n + 1)) for n in range(4)], "12 missing: 1 of epoch 0, 3 of epoch 0, 5 of epoch 0"),
        ([], "16 missing: 0 to 7 of epoch 0, 0 to 7 of epoch 1"),
    ],
)
def test_what_is_missing_or_double_is_named(used: list[tuple[int, Lease]], text: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "run", used or [(0, Lease(0, 0, 0))])
    found = audit(folder)
    assert not found.ok
    assert found.text.startswith(f"of the 16 samples (2 epochs of 8): {text}")


def test_a_run_that_is_not_finished_says_what_is_left(tmp_path: Path) -> None:
    found = audit(written(tmp_path / "run", WHOLE[:2], finished=False))
    assert found.ok
    assert found.text == (
        "8 of the 16 samples (2 epochs of 8) were used, none of them twice; the run is not finished; "
        "8 not used yet: 4 to 7 of epoch 0, 4 to 7 of epoch 1"
    )
    twice = audit(written(tmp_path / "twice", [*WHOLE[:2], WHOLE[0]], finished=False))
    assert not twice.ok
    assert "were used, 4 used more than once: 0 to 3 of epoch 0 (workers 0); the run is not finished" in twice.text


def test_a_run_that_a_callback_stopped_has_no_error(tmp_path: Path) -> None:
    found = audit(written(tmp_path / "run", WHOLE[:2], stopped="good enough"))
    assert found.ok
    assert "the run is stopped: good enough; 8 not used yet" in found.text


def test_a_table_that_is_cut_off_is_said(tmp_path: Path) -> None:
    run = Written(tmp_path / "run")
    run.report(*WHOLE[0])
    run.report(*WHOLE[1])
    run.save(Blocks(size=8, block=4, samples=16), finished=False)
    run.close()
    assert audit(run.folder).ok
    path = run.folder / "rounds.csv"
    path.write_bytes(path.read_bytes()[:-7])
    found = audit(run.folder)
    assert not found.ok
    assert "rounds.csv has lost lines that checkpoint 2 counts on: 2 of 3 are whole" in found.text


def test_rows_that_are_of_no_report_are_named(tmp_path: Path) -> None:
    run = Written(tmp_path / "run")
    run.crash(0)
    for worker, lease in WHOLE[:3]:
        run.report(worker, lease)
    run.report(0, WHOLE[3][1], event=0)  # a crash
    run.report(1, Lease(0, 0, 0), event=1)  # of worker 0
    run.report(0, Lease(0, 0, 0), event=1)  # again
    run.save(Blocks(size=8, block=4, samples=16), finished=True)
    run.close()
    with (run.folder / "rounds.csv").open("a") as file:
        file.write("4,0,0,1,x,8,2,3,4,0,ab12,0,0,0\n")
    found = audit(run.folder)
    assert not found.ok
    assert found.disagree == (
        "rounds.csv has 1 line more than the run wrote (sealed by checkpoint 7)",
        "row 6 of rounds.csv is damaged: it does not say which samples were used",
        "row 3 of rounds.csv names event 0, which is not a report of worker 0",
        "row 4 of rounds.csv names event 1, which is not a report of worker 1",
        "row 5 of rounds.csv names event 1, as a row before it does",
    )


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=8),
    end=st.integers(0, 12),
)
def test_pieces_are_what_counting_each_position_gives(rows: list[tuple[int, int]], end: int) -> None:
    columns = {
        "first": np.array([first for first, _ in rows], dtype=np.int64),
        "stop": np.array([first + length for first, length in rows], dtype=np.int64),
    }
    counted: dict[int, int] = {}
    for piece, uses in _pieces(columns, 3, end):
        assert piece.epoch == 3
        assert not piece.first < end < piece.stop
        for position in range(piece.first, piece.stop):
            assert position not in counted
            counted[position] = uses
    expected = {n: sum(first <= n < first + length for first, length in rows) for n in range(20)}
    assert counted == {n: uses for n, uses in expected.items() if n < end or uses}


def test_a_resume_cuts_the_rounds_back_to_the_checkpoint(tmp_path: Path) -> None:
    run = Written(tmp_path / "run")
    run.report(*WHOLE[0])
    blocks = Blocks(size=8, block=4, samples=16)
    run.save(blocks)
    run.report(*WHOLE[1])  # after the checkpoint: computed again
    folder = run.close()
    assert len(Run(folder).rounds["worker"]) == 2
    saved = Run(folder).checkpoint
    assert saved is not None
    again = Written(folder, RunRecorder(folder, 1e9, saved), saved.position)
    assert again.events == 1
    for worker, lease in WHOLE[1:]:
        again.report(worker, lease)
    again.save(blocks, finished=True)
    again.close()
    columns = Run(folder).round_columns
    assert list(columns) == list(LOOP_ROUNDS)
    assert columns["event"].tolist() == [0, 1, 2, 3]
    assert columns["checksum"].tolist() == ["ab12"] * 4
    assert audit(folder).ok


def test_rows_of_a_run_that_begins_again_are_gone(tmp_path: Path) -> None:
    run = Written(tmp_path / "run")
    run.report(*WHOLE[0])
    run.close()  # killed before its first checkpoint
    again = Written(run.folder, RunRecorder(run.folder, 1e9))
    again.close()
    assert len(Run(run.folder).round_columns["worker"]) == 0
    with pytest.raises(RunFolderError, match="no checkpoint yet"):
        audit(run.folder)


def test_lost_rows_are_not_passed_over(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", WHOLE)
    path = folder / "rounds.csv"
    path.write_bytes(path.read_bytes()[:-20])
    warnings: list[str] = []
    with pytest.raises(RunFolderError, match="none of its checkpoints fits: restore it"):
        _ = Run(folder, warnings.append).resumable
    assert "rounds.csv has lost lines that checkpoint 4 counts on" in warnings[0]
    assert not audit(folder).ok


def test_a_run_of_a_task_has_no_rounds(tmp_path: Path) -> None:
    run = Written(tmp_path / "run")
    run.crash(0)
    run.save(None)
    folder = run.close()
    assert not (folder / "rounds.csv").exists()
    assert len(Run(folder).round_columns["worker"]) == 0
    with pytest.raises(RunFolderError, match=r"no rounds\.csv: audit is for runs of `orlomo run`"):
        audit(folder)


def test_a_run_in_which_workers_choose_samples_themselves_cannot_be_audited(tmp_path: Path) -> None:
    run = Written(tmp_path / "run")
    run.report(0, Lease(0, 0, 4))
    run.save(None)
    with pytest.raises(RunFolderError, match="each worker chose itself"):
        audit(run.close())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = written(tmp_path / "good", WHOLE), written(tmp_path / "bad", WHOLE[1:])
    assert main(["audit", str(good)]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "each of the 16 samples (2 epochs of 8) was used exactly once"
    assert "batches" in shown
    assert main(["audit", str(bad), "--json"]) == 1
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert not answer["ok"]
    assert answer["missing"] == [{"epoch": 0, "first": 0, "stop": 4, "workers": []}]
    assert [one["samples"] for one in answer["workers"]] == [4, 8]
    (good / "rounds.csv").unlink()
    assert main(["audit", str(good)]) == 2
    assert "no rounds.csv" in capsys.readouterr().err


def test_a_long_table_is_shortened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Written(tmp_path / "run")
    for worker in range(100):
        run.report(worker, Lease(0, worker, worker + 1))
    run.save(Blocks(size=100, block=1, samples=100), finished=True)
    assert main(["audit", str(run.close())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 60
    assert any("..." in line for line in lines)


def test_rounds_are_exported(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", WHOLE)
    paths = export(Run(folder), "csv", tmp_path / "csv")
    assert [path.name for path in paths] == ["events.csv", "metrics.csv", "rounds.csv"]
    assert paths[2].read_bytes() == (folder / "rounds.csv").read_bytes()


def test_a_range_in_words() -> None:
    assert str(Range(1, 0, 1)) == "0 of epoch 1"
    assert str(Range(1, 0, 3, (2, 5))) == "0 to 2 of epoch 1 (workers 2, 5)"
