"""Generated histories of a live run: its real loop, membership, server and checkpoints, with invented workers.

    python tests/histories.py [--histories 10000] [--first 0] [--jobs 2]

Workers join, are lost, raise, report late, twice, or numbers that are not finite; are removed and added by hand; the
server is stopped or killed, and continues from a checkpoint with fewer or more workers. At any moment, and at the end:

- each report is folded in at most once, and a refused one changes nothing;
- the ledger is what the paper says, counted again by hand: iterations, delays and their sum, groups, weights;
- nobody is forgotten: a worker computes, waits at a barrier for one that computes, or waits to be ready;
- with one worker that works, the run comes to its end;
- a resumed run is what was saved, and the record alone gives the same parameters, bit for bit.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import json
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import orlomo
from invented import EPOCH_SAMPLES, INITIAL, NOWHERE, Crew, Disk, InventedRun, Rounds, SmallWork, with_two_decimals
from invented_loop import InventedLoop, LoopCrew, opened
from orlomo.clusters.cluster import cluster
from orlomo.clusters.schedule import KINDS
from orlomo.config import RunConfig
from orlomo.engines.callbacks import Callbacks
from orlomo.engines.engine import Setup
from orlomo.engines.live.crew import Arrived, CrewEvent
from orlomo.engines.live.events import Idle, Left, Lost, NoRoom, Ready
from orlomo.engines.signals import Signals
from orlomo.errors import ConfigError, Interrupted, OrlomoError
from orlomo.methods.messages import Report
from orlomo.methods.server import Server
from small import NAMES, settings

TROUBLES = 30
"""Things that happen in a history before it is left in peace."""


OLD = -1.0
"""When an old report was finished."""


class Killed(BaseException):
    """The server is gone, from one moment to the next."""


@functools.cache
def config_of(name: str, varies: bool, workers: int) -> RunConfig:
    schedule = {"schedule": "step:2,4"} if varies else {}
    method = settings(name, learning_rate=0.05, **schedule)
    workers = min(workers, method.max_workers or workers)
    where = cluster("homogeneous")
    return RunConfig(task="custom", method=method, cluster=where, workers=workers, engine="processes", threads=1)


@functools.cache
def loop_of(config: RunConfig, reports: int) -> RunConfig:
    """The same for the user's own loop, with whole rounds for so many reports."""
    return dataclasses.replace(config, directory=".", epochs=reports * config.method.local_steps / EPOCH_SAMPLES)


class History:
    """A run, and what happens to it."""

    def __init__(self, seed: int, name: str | None = None):
        self.source = source = random.Random(seed)
        self.config = config_of(name or source.choice(NAMES), source.random() < 0.3, source.randint(1, 5))
        self.by_slots = source.random() < 0.5
        self.keeps = self.config.method.keeps_worker_state
        self.is_loop = source.random() < 0.4 and not self.keeps  # the user's own loop
        self.ahead = source.choice([0, 0, 2, 5])
        self.failing_starts = source.choice([0.0, 0.0, 0.3, 0.9])
        self.lonely = source.random() < 0.5  # in the end only one worker works
        self.planned = source.randint(20, 40) if self.is_loop else source.randint(4, 30)
        if self.is_loop:  # whose learning rate is its optimizer's
            without = dataclasses.replace(self.config.method, schedule="constant")
            self.config = loop_of(dataclasses.replace(self.config, method=without), self.planned)
            self.by_slots = False
        self.troubles, self.peace, self.waits = 0, False, 0
        self.hero: int | None = None
        self.now = 0.0
        self.seen: Counter[str] = Counter()
        self.disk = Disk()
        self.past: list[Report] = []  # reports that have arrived, for those that come again
        self.reports = 0

    # Lives of the server

    def run(self) -> None:
        """To its end, whatever happens, and then the books."""
        saved, workers = None, None
        while True:
            self.live = self.open(saved, workers)
            how = self.live_on()
            self.seen[how] += 1
            if how == "end":
                self.live.save()
                if not self.peace and not self.is_loop and self.source.random() < 0.7:  # it continues with more epochs
                    done = -(-self.live.server.ledger.samples // self.config.method.local_steps)
                    self.planned = max(self.planned, done) + self.source.randint(2, 15)
                    saved = self.disk.saved[-1]
                    saved = dataclasses.replace(saved, values={**saved.values, "stopped": None, "finished": False})
                    self.disk.saved = [saved]
                    continue
                break
            if self.disk.saved:
                first = max(0, len(self.disk.saved) - 3)  # of those that are kept
                number = self.source.randrange(first, len(self.disk.saved)) if how == "kill" else -1
                saved = self.disk.saved[number]
                del self.disk.saved[number + 1 or len(self.disk.saved) :]
                self.disk.cut(saved.position)
            else:
                saved = None
                self.disk.cut(0)
            if how == "kill":
                self.past = []  # of rounds that are still to come
            workers = self.source.choice([None, None, self.source.randint(1, 5)])
            if self.config.method.max_workers:
                workers = None
        self.check_books()

    def open(self, saved: Any, workers: int | None) -> Any:
        """The run as it is begun, or resumed."""
        self.disk.off = False
        if self.is_loop:
            self.crew = LoopCrew(self.config.method, self.look, self.source)
        else:
            self.crew = Crew(self.config.method, self.by_slots, self.look)
        self.crew.may_start = self.may_start
        self.signals = Signals()
        live = self.make(saved, workers, self.disk, lambda: self.now)
        if saved is not None:
            again, then = Disk(), saved.values["real_seconds"]
            self.make(saved, None, again, lambda: then).save()
            [copied] = again.saved
            one, other = with_two_decimals(copied), with_two_decimals(saved)
            differ = [(name, value, other.get(name)) for name, value in one.items() if value != other.get(name)]
            assert not differ, f"what is resumed is what was saved: {differ}"
            assert copied.tensors.keys() == saved.tensors.keys()
            assert all(tensor.equal(saved.tensors[name]) for name, tensor in copied.tensors.items())
        return live

    def make(self, saved: Any, workers: int | None, disk: Disk, clock: Callable[[], float]) -> Any:
        if isinstance(self.crew, LoopCrew):
            work = opened(self.crew, self.ahead)
            setup = Setup(self.config, work, disk, NOWHERE, Callbacks(), saved, workers)
            return InventedLoop(setup, clock, self.receive)
        setup = Setup(self.config, SmallWork(self.planned), disk, NOWHERE, Callbacks(), saved, workers)
        return InventedRun(setup, self.crew, clock, self.receive)

    def live_on(self) -> str:
        """One life of the server; how it ended."""
        try:
            self.live.run(self.signals)
        except Interrupted:
            return "stop"
        except Killed:
            return "kill"
        except ConfigError as error:  # a worker that could not be started when the run began or continued
            if self.live._has_begun or "cannot start" not in str(error):
                raise
            self.failing_starts = 0.0
            return "no start"
        except OrlomoError as error:
            known = ("diverged", "every worker failed", "no worker is left")
            if self.peace or not any(text in str(error) for text in known):
                raise
            return "given up"
        return "end"

    def may_start(self) -> bool:
        if self.peace:
            return not (self.lonely and self.hero is not None and self.by_slots)
        return self.source.random() >= self.failing_starts

    # What the server sees when it looks

    def look(self, seconds: float) -> list[CrewEvent]:
        self.check()
        self.disk.due = self.source.random() < 0.1
        if self.peace:
            return self.in_peace()
        self.troubles += 1
        if self.troubles > TROUBLES:
            self.peace, self.waits = True, 0
            return []
        crew, source = self.crew, self.source
        options: list[tuple[Callable[[], list[CrewEvent]], float]] = [(self.time_passes, 3), (self.by_hand, 2)]
        options += [(self.stop, 0.4), (self.kill, 0.4), (self.enough, 0.1), (self.leave, 0.3), (self.idle, 0.6)]
        if crew.able:
            options += [(self.report, 12), (self.bad_report, 2)]
        if self.past:
            options.append((self.old_report, 2))
        if crew.workers:
            options.append((self.lose, 2))
        if not self.by_slots:
            options += [(self.room, 6), (self.gather, 2)]
        acts, weights = zip(*options, strict=True)
        act = source.choices(acts, weights)[0]
        happened = act()
        self.seen[act.__name__] += 1
        self.seen.update(type(event).__name__ for event in happened)
        return happened

    def time_passes(self) -> list[CrewEvent]:
        self.now += self.source.choice([0.0, 0.1, 1.0, 40.0])
        return []

    def by_hand(self) -> list[CrewEvent]:
        """`orlomo workers`."""
        source = self.source
        some = source.randrange(self.live.membership.next_worker + 1)
        requests: list[dict[str, Any]] = [{"action": "list"}, {"action": "add", "count": source.randint(1, 2)}]
        requests += [{"action": "remove", "worker": some}] * 2
        try:
            self.live._obey(source.choice(requests))
        except ConfigError:
            self.seen["denied"] += 1
        return []

    def stop(self) -> list[CrewEvent]:
        self.signals._handle(signal.SIGTERM, None)
        return []

    def kill(self) -> list[CrewEvent]:
        self.disk.off = True
        raise Killed

    def enough(self) -> list[CrewEvent]:
        """A callback asks for the end."""
        self.live.session.callbacks.stop_reason = "enough"
        return []

    def report(self) -> list[CrewEvent]:
        """One or several at once, and perhaps a loss among them."""
        able = self.crew.able
        some = self.source.sample(able, min(len(able), self.source.choice([1, 1, 1, 2, 3])))
        happened: list[CrewEvent] = [self.arrive(worker) for worker in some]
        if self.source.random() < 0.1:
            happened.insert(self.source.randrange(len(happened) + 1), self.lose()[0])
        return happened

    def arrive(self, worker: int) -> Arrived:
        arrived = self.crew.compute(worker)
        copied = {name: vector.clone() for name, vector in arrived.report.vectors.items()}
        self.reports += 1
        self.past.append(arrived.report.with_vectors(copied))
        return arrived

    def bad_report(self) -> list[CrewEvent]:
        """Not finite, or not what the method reports."""
        worker = self.source.choice(self.crew.able)
        arrived = self.crew.compute(worker)
        report = arrived.report
        name = self.source.choice(sorted(report.vectors))
        kind = self.source.choice(["nan", "nan", "shape", "missing", "index"])
        if kind == "nan":
            report.vectors[name][self.source.randrange(3)] = self.source.choice([float("nan"), float("inf")])
        elif kind == "shape":
            report = report.with_vectors({**report.vectors, name: torch.zeros(5)})
        elif kind == "missing":
            report = report.with_vectors({other: v for other, v in report.vectors.items() if other != name})
        else:
            report.index += 1
        return [arrived._replace(report=report)]

    def old_report(self) -> list[CrewEvent]:
        """One that has arrived before: sent twice, or late, by a worker that may be gone or may hold another round."""
        report = self.source.choice(self.past[-12:])
        held = self.live.server.ledger.outstanding.get(report.worker)
        if held is not None and (held.index, held.round) == (report.index, report.round):
            return []  # after a resume it is owed once more, and would be right
        return [Arrived(report, time.monotonic(), OLD, 0.0)]

    def lose(self) -> list[CrewEvent]:
        worker = self.source.choice(sorted(self.crew.workers))
        reason = self.source.choice(["ValueError: no", "ValueError: no", "killed by SIGKILL"])
        return [Lost(worker, reason, "Traceback" if reason.startswith("Value") else "")]

    def leave(self) -> list[CrewEvent]:
        """A worker leaves by itself, and is not the last one."""
        staying = [rank.worker for rank in self.live.membership.ranks if rank.takes_part and not rank.is_leaving]
        return [Left(self.source.choice(staying))] if len(staying) > 1 else []  # type: ignore[arg-type]

    def idle(self) -> list[CrewEvent]:
        """There is nothing to do for a worker for a while; only those that keep nothing can be left out."""
        ranks = [rank for rank in self.live.membership.ranks if rank.takes_part and not rank.is_leaving]
        ready = [rank.worker for rank in ranks if rank.worker is not None and self.crew.workers[rank.worker].ready]
        if len(ready) < 2 or self.keeps or self.is_loop or not self.crew.anyone_ready:
            return []
        worker = self.source.choice(ready)
        member = self.crew.workers[worker]
        member.ready, member.assignment = False, None
        self.live._tell(Idle((worker,), frozenset(self.live._held)))
        return []

    def room(self) -> list[CrewEvent]:
        """There is room for a worker on the cluster."""
        late = sorted(worker for worker, member in self.crew.workers.items() if not member.ready)
        return [self.make_ready(self.source.choice(late))] if late else []

    def make_ready(self, worker: int) -> Ready:
        self.crew.workers[worker].ready = True
        return Ready(worker)

    def gather(self) -> list[CrewEvent]:
        """Those that are there begin, and the others are late; once, as on Ray."""
        crew = self.crew
        late = tuple(worker for worker, member in crew.workers.items() if not member.ready)
        if crew.anyone_ready or len(late) == len(crew.workers):
            return []
        crew.anyone_ready = True
        for worker in late:
            crew.workers[worker].assignment = None
        return [NoRoom(late)] if late else []

    def in_peace(self) -> list[CrewEvent]:
        """Nothing happens any more; or nothing but that all workers except one are lost, and none can follow."""
        self.waits += 1
        assert self.waits < 300, f"no end: {self.live.membership}, {self.live.server.ledger.state_dict()}"
        self.now += 10.0
        crew = self.crew
        if not crew.anyone_ready and any(member.ready for member in crew.workers.values()):
            return self.gather()
        able = [worker for worker in crew.able if not self.live.membership.is_leaving(worker)]
        if self.lonely and self.hero not in crew.workers and able:
            self.hero = self.source.choice(able)
        alone = self.lonely and self.hero in crew.workers
        others = sorted(worker for worker in crew.workers if worker != self.hero)
        if alone and others:
            return [Lost(self.source.choice(others), "killed by SIGKILL")]
        happened: list[CrewEvent] = [self.arrive(worker) for worker in crew.able]
        late = [] if alone else [worker for worker, member in crew.workers.items() if not member.ready]
        return happened + [self.make_ready(worker) for worker in late]

    # What must be so

    def state(self) -> object:
        """Of the server and of what is in flight."""
        server = self.live.server
        vectors = {name: vector.clone().numpy().tobytes() for name, vector in server.state.vectors.items()}
        return vectors, dict(server.state.numbers), json.dumps(server.ledger.state_dict()), sorted(self.live._held)

    def receive(self, arrived: Arrived, receive: Callable[[], None]) -> None:
        """The run receives a report: one that is not recorded has changed nothing."""
        before, events, sends = self.state(), self.live.session.events, self.crew.sends
        receive()
        worker = arrived.report.worker
        if arrived.finished == OLD:
            assert (self.state(), self.crew.sends) == (before, sends), "an old report changes nothing for anybody"
        elif self.live.session.events == events:
            assert self.state() == before, "a refused report changes nothing"
            assert self.crew.sends == sends + (worker in self.crew.workers), "it is computed again"

    @property
    def without_samples(self) -> list[int]:
        """Workers of a loop for which no samples are left now."""
        live = self.live
        if not isinstance(live, InventedLoop):
            return []
        assert not live._without
        assert live.books.blocks is not None
        found = [*live._parked, *live._idle]
        assert not (found and live.books.blocks.available), "who waits for samples gets those that there are"
        return found

    def check(self) -> None:
        """At any moment."""
        live, crew = self.live, self.crew
        ledger, ranks = live.server.ledger, live.membership.ranks
        there = {rank.worker for rank in ranks if rank.worker is not None}
        counted = {rank.worker for rank in ranks if rank.takes_part}
        waiting = getattr(ledger, "waiting", set())
        assert live.session.whole
        assert there == set(crew.workers)
        assert set(ledger.outstanding) | waiting == counted
        assert ledger.present == len(counted)
        assert set(live._held) == set(ledger.outstanding)
        assert bool(ledger.outstanding) or not waiting, "at a barrier somebody is waited for"
        assert len({rank.number for rank in ranks}) == len(ranks)
        assert any(not rank.is_leaving for rank in ranks), "a worker stays"
        for rank in ranks:
            assert rank.worker is not None or rank.due is not None, "an empty rank gets a worker"
        for worker, member in crew.workers.items():
            held, found = ledger.outstanding.get(worker), member.assignment
            if worker in self.without_samples:
                assert found is None
                continue
            if worker not in counted:
                assert not member.ready, "who is ready takes part"
                continue
            if held is None:
                assert found is None
                continue
            assert found is not None, "who takes part has something to do"
            assert (held.index, held.round, held.local_steps) == (found.index, found.round, found.local_steps)
        assert len(self.disk.events) == live.session.events

    def check_books(self) -> None:
        """At the end: the record, counted again and computed again."""
        events, server, method = self.disk.events, self.live.server, self.config.method
        rows = [row for row in events if KINDS[row["kind"]] in ("report", "drop")]
        folded = [(row["worker"], row["round"]) for row in rows]
        assert len(set(folded)) == len(folded), "each report is folded in at most once"
        if self.is_loop:
            used = Counter((row["epoch"], n) for row in self.disk.rounds for n in range(row["first"], row["stop"]))
            assert set(used.values()) <= {1}, "no sample is used twice"
            done = not self.live.session.callbacks.stop_reason
            assert not done or len(used) == self.live.books.blocks.samples, "each sample is used"
            assert len(used) == server.ledger.samples
            assert all(events[row["event"]]["worker"] == row["worker"] for row in self.disk.rounds)
            assert len(self.disk.rounds) == len(rows)
        else:
            assert sum(row["local_steps"] for row in rows) == server.ledger.samples
        (count_barriers if method.synchronous else count_delays)(events, method, self.config.workers, server)
        steps = {row["event"]: row["steps"] for row in self.disk.rounds}
        again = replayed(events, method, self.config.workers, steps)
        for name, vector in server.state.vectors.items():
            assert vector.equal(again.state.vectors[name]), "the record alone gives the same parameters"
        assert plain(again) == plain(server)


def plain(server: Server) -> object:
    """A server's numbers and ledger, without the order in which workers came."""
    ledger = {k: sorted(v) if isinstance(v, list) else v for k, v in server.ledger.state_dict().items()}
    return json.dumps([ledger, server.state.numbers])


def count_delays(events: list[dict[str, Any]], method: orlomo.Method, workers: int, server: Server) -> None:
    """The asynchronous ledger by hand: t, ite, tau, groups, eta; and the sum of the delays."""
    t, group, assigned = 0, 0, workers
    index, label, rounds = dict.fromkeys(range(workers), 0), dict.fromkeys(range(workers), 0), Counter[int]()
    delays = lost = passed = 0
    for row in events:
        kind, worker = KINDS[row["kind"]], row["worker"]
        assert row["iteration"] == t
        if kind in ("crash", "leave"):
            lost += t - index.pop(worker)
            del label[worker]
            rounds[worker] += 1
            continue
        if kind == "join":
            assert worker not in index
        else:
            delay, eta = t - index[worker], method.eta(t - index[worker], len(index))
            found = (row["round"], row["index"], row["delay"], row["group"], row["behind"], row["eta"])
            assert found == (rounds[worker], index[worker], delay, label[worker], group - label[worker], eta)
            rounds[worker] += 1
            if kind == "report":
                delays, passed, t = delays + delay, passed + len(index) - 1, t + 1
            else:
                lost += delay
        index[worker] = t
        if assigned >= len(index):
            group, assigned = group + 1, 0
        assigned, label[worker] = assigned + 1, group
    assert server.iteration == t
    assert {worker: held.index for worker, held in server.ledger.outstanding.items()} == index
    # Each report that is folded in makes all others that are out one iteration older.
    assert delays + lost + sum(t - last for last in index.values()) == passed


def count_barriers(events: list[dict[str, Any]], method: orlomo.Method, workers: int, server: Server) -> None:
    """The ledger of barriers by hand."""
    t, received, owing, waiting, rounds = 0, 0, set(range(workers)), set[int](), Counter[int]()
    for row in events:
        kind, worker = KINDS[row["kind"]], row["worker"]
        assert row["iteration"] == t
        if kind == "report":
            eta = method.eta(0, len(owing) + len(waiting))
            assert (row["round"], row["index"], row["delay"], row["eta"]) == (rounds[worker], t, 0, eta)
            received += 1
        rounds[worker] += worker in owing
        if kind == "join":
            assert worker not in owing | waiting
        else:
            assert worker in owing if kind == "report" else worker in owing | waiting
        owing.discard(worker)
        waiting.discard(worker)
        if kind in ("report", "join"):
            waiting.add(worker)
        if not owing:
            t, received = t + (received > 0), 0
            owing, waiting = waiting, set()
    assert (server.iteration, set(server.ledger.outstanding), received) == (
        t,
        owing,
        0 if server.ledger.settled else received,
    )


def replayed(events: list[dict[str, Any]], method: orlomo.Method, workers: int, steps: dict[int, int]) -> Server:
    """A server after these events, and nothing else; `steps`: of the rounds of a loop, by event."""
    server, rounds = method.server(INITIAL, workers, EPOCH_SAMPLES), Rounds(method)
    held = {assignment.worker: assignment for assignment in server.start()}
    kept = {}
    for number, row in enumerate(events):
        kind, worker = KINDS[row["kind"]], row["worker"]
        if kind in ("report", "drop"):
            state = kept.setdefault(worker, rounds.new_state())
            memory = {name: torch.empty_like(INITIAL) for name in method.report_vectors}
            given = held.pop(worker)
            assert row["learning_rate"] == given.learning_rate
            answers = server.receive(rounds(given, state, memory, steps.get(number)), row["finish"] - row["start"])
        elif kind == "join":
            answers = server.join(worker)
        else:
            held.pop(worker, None)
            kept.pop(worker, None)
            answers = server.leave(worker)
        held |= {assignment.worker: assignment for assignment in answers}
    return server


def run_all(seeds: Iterable[int]) -> Counter[str]:
    """How often each thing has happened."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        history = History(seed)
        try:
            history.run()
        except BaseException:
            print(f"\nfailing history: python {Path(__file__).name} --first {seed} --histories 1")
            raise
        seen += history.seen
        seen[history.config.method.name] += 1
        seen["loops"] += history.is_loop
        seen["reports"] += history.reports
    return seen


def _job(seeds: range) -> Counter[str]:
    torch.set_num_threads(1)
    return run_all(seeds)


def main() -> int:
    """So many of them, on so many processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    ends = options.first + options.histories
    pieces = [range(first, min(ends, first + 100)) for first in range(options.first, ends, 100)]
    seen: Counter[str] = Counter()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        try:
            for done, one in enumerate(pool.map(_job, pieces), start=1):
                seen += one
                if done % 10 == 0:
                    print(f"{100 * done} histories", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            traceback.print_exc()
            return 1
    print(dict(sorted(seen.items())))
    resumed, bad = sum(seen[how] for how in ("stop", "kill", "given up")), seen["bad_report"] + seen["old_report"]
    counts = f"{seen['reports']:,} reports, {seen['Lost']:,} losses, {bad:,} bad, late or double reports"
    print(f"{options.histories:,} histories on {len(NAMES)} methods, {counts}, {resumed:,} resumes: all as it must be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
