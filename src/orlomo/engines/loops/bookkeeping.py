"""What the server of a user's loop keeps besides vectors: which worker may use which samples, and the run's clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orlomo.engines.loops.blocks import Blocks
from orlomo.engines.loops.facts import End, Present
from orlomo.engines.loops.work import LoopWork, to_json
from orlomo.engines.session import Session, checksum
from orlomo.loop.messages import SHARED, Order, RoundFacts, Welcome
from orlomo.methods.messages import Assignment, Report
from orlomo.records.checkpoint import Checkpoint
from orlomo.records.shapes import restoring


class Bookkeeping:
    """The leases and the clock of a run; `chief`: the worker that saves and prints."""

    def __init__(self, session: Session, work: LoopWork, resumed: Checkpoint | None):
        self.session, self.work = session, work
        self.chief = 0
        self.clock = 0  # optimizer steps folded in
        self.initial = checksum(session.server.params)  # the parameters with which the run began
        self.blocks: Blocks | None = work.blocks(session.config) if work.data.sampling == SHARED else None
        self._ahead = work.ahead(session.config)
        if resumed is not None:
            with restoring(resumed.position):
                self.clock, self.initial = resumed.values["clock"], resumed.values["initial"]
                if self.blocks is not None:
                    self.blocks = Blocks.from_json(resumed.values["blocks"], session.config.workers)

    @property
    def complete(self) -> bool:
        """Whether all there was to do is folded in."""
        return self.session.complete if self.blocks is None else self.blocks.complete

    @property
    def has_samples(self) -> bool:
        """Whether a worker that asks for samples would get some."""
        return not self.session.complete if self.blocks is None else self.blocks.available > 0

    @property
    def epoch(self) -> int:
        """Of the run."""
        return int(self.session.server.ledger.samples / self.work.size) if self.blocks is None else self.blocks.epoch

    def order(self, assignment: Assignment) -> Order | None:
        """What goes out with an assignment; None where no samples are left."""
        leases = () if self.blocks is None else self.blocks.lease(assignment.worker, self._ahead)
        if self.blocks is not None and not leases:
            return None
        return Order(self.clock, self.epoch, assignment.worker == self.chief, leases)

    def accept(self, report: Report) -> None:
        """A report has been folded in, or dropped by the method, and is not recorded yet."""
        facts = report.facts
        assert isinstance(facts, RoundFacts)
        if self.blocks is not None:
            self.blocks.fold(report.worker, facts.used)
        used = facts.used
        self.session.recorder.round(
            {
                "event": self.session.events,
                "worker": report.worker,
                "round": report.round,
                "epoch": -1 if used is None else used.epoch,
                "first": -1 if used is None else used.first,
                "stop": -1 if used is None else used.stop,
                "steps": facts.steps,
                "batches": facts.batches,
                "samples": report.samples,
                "clock": self.clock,
                "checksum": facts.checksum,
                "rank": facts.rank,
                "chief": int(facts.chief),
                "welcomed": facts.welcomed,
            }
        )
        self.clock += facts.steps

    def give_back(self, worker: int) -> None:
        """A worker is gone: its samples are for others."""
        if self.blocks is not None:
            self.blocks.give_back(worker)

    def present(self) -> Present:
        """What a worker that says hello is given."""
        server = self.session.server
        vectors = {name: server.state.vectors[source] for name, source in server.method.sent_vectors().items()}
        return Present(vectors, Welcome(server.iteration, self.clock, self.epoch, False, self.session.events))

    def end(self) -> End:
        """What every worker is given at the end."""
        params, buffers = self.session.server.params, self.session.combined_buffers()
        return End(params, buffers, self.clock, self.epoch)

    def to_json(self) -> Mapping[str, Any]:
        """For a checkpoint."""
        blocks = None if self.blocks is None else self.blocks.to_json()
        loop = to_json(self.work.model, self.work.data)
        return {"clock": self.clock, "blocks": blocks, "initial": self.initial, "loop": loop}
