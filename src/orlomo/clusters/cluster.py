"""A cluster: how fast each worker is, what its link costs, and which workers crash or join when."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orlomo.clusters.laws import LONGEST_SECONDS, law, recorded
from orlomo.errors import require, require_at_most, shown, unknown_name
from orlomo.methods.ledger import MOST_WORKERS
from orlomo.methods.rates import number
from orlomo.seeds import Rekeyed
from orlomo.values import path_of, settle

PRESETS = ("homogeneous", "heterogeneous", "heterogeneous:FACTOR", "slow-worker:FACTOR")
FAULTS = ("crash", "return", "join", "leave")
BLOCK = 16
"""Rounds whose times are drawn at once for a worker."""


MOST_REPORTS = 20_000_000
"""In a simulated run, whose whole schedule is made before its first step: 240 bytes each while it is made."""


def check_reports(planned: int) -> None:
    """Raise a `ConfigError` where a simulated run is to have more reports than a schedule can hold."""
    many = f"{planned:,} reports are planned, but the simulator makes at most {MOST_REPORTS:,} in a run"
    require(planned <= MOST_REPORTS, f"{many}: lower epochs")


def _check_range(value: float, what: str, least: float, most: float) -> None:
    wanted = "0 or more" if least == 0 else f"above 0: at least {least:g}"
    require(value >= least, f"{what} must be {wanted}, not {value}")
    require_at_most(value, most, what)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One kind of worker: `count` of them, or this `share` of those without a count.

    >>> Cluster(speeds=(Speed(share=3), Speed(share=1, factor=2.5))).factors(8)
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.5, 2.5]
    """

    share: float = 1.0
    count: int | None = None
    factor: float = 1.0  # mean time, as a multiple of a fast worker's
    law: str = "gamma:0.25"

    def __post_init__(self) -> None:
        settle(self)
        _check_range(self.share, "a speed's share", 0, 1e9)
        _check_range(self.count or 0, "a speed's count", 0, MOST_WORKERS)
        _check_range(self.factor, "a speed's factor", 1e-9, 1e9)
        if self.law.startswith("file:"):
            path = str(path_of(self.law.removeprefix("file:"), "the file of a law of time").absolute())
            recorded(path)
            object.__setattr__(self, "law", f"file:{path}")  # so that the run can be resumed from any folder
        else:
            law(self.law)
        stalls = self.law.startswith("stall")
        require(
            self.factor >= 1 or not stalls, f"a worker that stalls takes longer: factor 1 or more, not {self.factor}"
        )


@dataclass(frozen=True, kw_only=True)
class Fault:
    """At `time`, worker `worker` does `kind`: crash (its round is lost), return, join, or leave (after its round).

    >>> import orlomo
    >>> crash = Fault(time=100.0, worker=1, kind="crash")
    >>> events = orlomo.trace("orlomo", workers=2, iterations=20, cluster=Cluster(faults=(crash,)))
    >>> int((events["worker"][events.reports] == 1).sum()) < 10
    True
    """

    time: float
    worker: int
    kind: str

    def __post_init__(self) -> None:
        settle(self)
        _check_range(self.time, "a fault's time", 0, LONGEST_SECONDS)
        _check_range(self.worker, "a fault's worker", 0, MOST_WORKERS)
        if self.kind not in FAULTS:
            raise unknown_name("fault", self.kind, FAULTS)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """How fast the workers are, how long messages take, and which workers fail when.


    Args:
        name: for tables and plots.
        speeds: the kinds of workers, in the order of their ids; workers that join later are of the first kind.
        per: whether a law draws the time of a whole `round` or of each local `step`.
        step_seconds: mean (virtual) time of one local step of a fast worker.
        latency_seconds: of each message, one way.
        bytes_per_second: of each worker's link; 0: transfers are free.
        faults: which workers crash, return, join or leave, and when.

    >>> cluster("heterogeneous").factors(4)
    [1.0, 1.0, 1.0, 2.0]
    """

    name: str = "custom"
    speeds: tuple[Speed, ...] = (Speed(),)
    per: str = "round"
    step_seconds: float = 1.0
    latency_seconds: float = 0.0
    bytes_per_second: float = 0.0
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        settle(self)
        require(len(self.speeds) > 0, "a cluster needs at least one entry in speeds")
        if self.per not in ("round", "step"):
            raise unknown_name("value of per", self.per, ("round", "step"))
        _check_range(self.step_seconds, "step_seconds", 1e-12, LONGEST_SECONDS)
        _check_range(self.latency_seconds, "latency_seconds", 0, LONGEST_SECONDS)
        link = self.bytes_per_second
        require(link == 0 or link >= 1e-3, f"bytes_per_second must be 0 (free), or 0.001 or more, not {link}")

    def kinds(self, workers: int) -> list[Speed]:
        """The speed of each worker from 0 on."""
        fixed = sum(speed.count or 0 for speed in self.speeds)
        total = sum(speed.share for speed in self.speeds if speed.count is None)
        result: list[Speed] = []
        cumulated, given = 0.0, 0
        for speed in self.speeds:
            size = speed.count
            if size is None:
                cumulated += speed.share / total if total else 0.0
                upto = math.ceil(max(0, workers - fixed) * cumulated - 0.5)
                size, given = upto - given, upto
            result += [speed] * min(size, workers - len(result))
        return result + [self.speeds[0]] * (workers - len(result))

    def factors(self, workers: int) -> list[float]:
        """Mean time of each worker, as a multiple of a fast worker's."""
        return [speed.factor for speed in self.kinds(workers)]

    def transfer_seconds(self, round_bytes: int) -> float:
        """Transfer time of one round, both ways."""
        link = round_bytes / self.bytes_per_second if self.bytes_per_second else 0.0
        return 2 * self.latency_seconds + link


class ComputeTimes:
    """How long round n of worker k computes: a function of (seed, k, n) and its local steps, drawn in blocks.

    A law is drawn for rounds of the method's usual length. A round of another length takes its share of that, or, where
    a law draws each step, the time of its own steps (of more than usual, in proportion).
    """

    def __init__(self, cluster: Cluster, workers: int, local_steps: int, seed: int):
        self._cluster = cluster
        self._kinds = cluster.kinds(workers)
        self._local_steps = local_steps
        self._seed = seed
        self._blocks: dict[int, tuple[int, list[float]]] = {}
        self._draws = {s.law: law(s.law) for s in cluster.speeds if not s.law.startswith("file:")}
        self._source = Rekeyed()

    def __call__(self, worker: int, round: int, steps: int | None = None) -> float:
        held = self._blocks.get(worker)
        if held is None or held[0] != round // BLOCK:
            held = self._blocks[worker] = (round // BLOCK, self._block(worker, round // BLOCK))
        usual = held[1][round % BLOCK]
        if steps is None or steps == self._local_steps:
            return usual
        return self._other_length(worker, round, steps, usual)

    def _speed(self, worker: int) -> Speed:
        return self._kinds[worker] if worker < len(self._kinds) else self._cluster.speeds[0]

    def _block(self, worker: int, block: int) -> list[float]:
        speed = self._speed(worker)
        if speed.law.startswith("file:"):
            return self._recorded(speed, worker, block)
        draw = self._draws[speed.law]
        source = self._source(self._seed, "times", worker, block)
        if self._cluster.per == "step":
            steps = draw(source, BLOCK * self._local_steps, speed.factor)
            rounds = steps.reshape(BLOCK, self._local_steps).sum(axis=1) * self._cluster.step_seconds
        else:
            rounds = draw(source, BLOCK, speed.factor) * (self._local_steps * self._cluster.step_seconds)
        times: list[float] = rounds.tolist()
        return times

    def _other_length(self, worker: int, round: int, steps: int, usual: float) -> float:
        """The time of a round that is not of the usual length."""
        speed = self._speed(worker)
        if self._cluster.per == "round" or steps > self._local_steps or speed.law.startswith("file:"):
            return usual * steps / self._local_steps
        block, position = divmod(round, BLOCK)
        source = self._source(self._seed, "times", worker, block)
        drawn = self._draws[speed.law](source, BLOCK * self._local_steps, speed.factor)
        first = position * self._local_steps
        return float(drawn[first : first + steps].sum()) * self._cluster.step_seconds

    def _recorded(self, speed: Speed, worker: int, block: int) -> list[float]:
        """Recorded seconds, from the beginning again where they run out."""
        rows = recorded(speed.law.removeprefix("file:"))
        row = rows[worker % len(rows)]
        size = self._local_steps if self._cluster.per == "step" else 1
        first = block * BLOCK
        return [
            speed.factor * sum(row[(n * size + step) % len(row)] for step in range(size))
            for n in range(first, first + BLOCK)
        ]


def cluster(spec: Cluster | str) -> Cluster:
    """A cluster by the name of its preset; a `Cluster` is returned as it is.

    `homogeneous`; `heterogeneous` (a quarter of the workers takes twice the time; `heterogeneous:4`: four times);
    `slow-worker:R` (the last worker takes R times as long on average, by stalling in 8% of its rounds).

    >>> cluster("slow-worker:10").factors(4)
    [1.0, 1.0, 1.0, 10.0]
    """
    if isinstance(spec, Cluster):
        return spec
    require(isinstance(spec, str), f"cluster must be an orlomo.Cluster or a preset's name, not {shown(spec)}")
    name, _, text = spec.partition(":")
    if name == "homogeneous" and not text:
        return Cluster(name=spec)
    if name == "heterogeneous":
        factor = number(text, f"the factor in {shown(spec)}") if text else 2.0
        require(factor >= 1, f"the factor in {shown(spec)} must be at least 1")
        return Cluster(name=spec, speeds=(Speed(share=0.75), Speed(share=0.25, factor=factor)))
    if name == "slow-worker" and text:
        factor = number(text, f"the factor in {shown(spec)}")
        require(factor >= 1, f"the factor in {shown(spec)} must be at least 1")
        return Cluster(name=spec, speeds=(Speed(), Speed(count=1, factor=factor, law="stall:0.08")))
    raise unknown_name("cluster", spec, PRESETS)
