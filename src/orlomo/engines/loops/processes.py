"""The processes that are one worker: one, or a group of them that train one model together, as torchrun starts them."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing.connection
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from orlomo.engines.loops.port import Ended, Memory
from orlomo.engines.loops.process import serve_loop
from orlomo.engines.processes.crew import cause_of
from orlomo.engines.processes.starter import Failed, Starter
from orlomo.loop.messages import LoopSettings
from orlomo.loop.program import Program

HOST = "127.0.0.1"
SETTLE_SECONDS = 0.5
"""What raised in one process of a group may be due to the end of another, which is seen a moment later."""


@dataclass
class _Started:
    """One process."""

    process: BaseProcess
    pipe: Connection
    failure: Failed | None = None  # what its program raised
    ended: bool = False  # its program has come to its end
    over: bool = False  # it will say no more

    def receive(self) -> object | None:
        """What it says next, other than that it ends; None: nothing now."""
        if self.over:
            return None
        alive = self.process.is_alive()  # before its pipe is looked at: the last it said is to be heard
        try:
            if not self.pipe.poll():
                self.over = not alive
                return None
            message: object = self.pipe.recv()
        except (EOFError, OSError):
            self.over = True
            return None
        if isinstance(message, Failed):
            self.failure = message
        elif isinstance(message, Ended):
            self.ended = True
        else:
            return message
        return None

    def end(self) -> None:
        """End it and the processes that it has started."""
        pid = self.process.pid
        if pid is not None and hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


class LoopProcesses:
    """The processes of one worker, on this machine. The first speaks for all; where one of them ends, all are ended."""

    def __init__(
        self,
        starter: Starter,
        program: Program | tuple[object, ...],
        settings: LoopSettings,
        serve: Callable[..., None] = serve_loop,
    ):
        """`serve`: the main function of each, which is given the program and what it needs besides."""
        self.memory = Memory()
        self._store: object = None  # through which the processes of a group find one another
        self._started: list[_Started] = []
        try:
            for one in self._ranks(settings):
                started = starter.start(serve, program, one, self.memory, daemon=False)
                self._started.append(_Started(*started))
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int | None:
        """Of the first process."""
        return self._started[0].process.pid

    @property
    def alive(self) -> bool:
        """Whether one of them is."""
        return any(one.process.is_alive() for one in self._started)

    @property
    def ended(self) -> bool:
        """Whether the program has come to its end in all of them."""
        return all(one.ended for one in self._started)

    @property
    def handles(self) -> list[Connection | int]:
        """What to wait for before `receive`, with `multiprocessing.connection.wait`."""
        # A killed process's pipe stays open as long as the processes that it has started live: so its end counts too.
        return [handle for one in self._started if not one.over for handle in (one.pipe, one.process.sentinel)]

    def send(self, message: object) -> None:
        """To the first process; if it is gone, `receive` will say so."""
        with contextlib.suppress(OSError):
            self._started[0].pipe.send(message)

    def receive(self) -> object | None:
        """What the worker says next; None: nothing now. EOFError: it is over, in one of its processes or in all."""
        message, *_ = [one.receive() for one in self._started]
        broken = any(one.over and not one.ended for one in self._started)
        if len(self._started) > 1:
            broken = broken or any(one.failure for one in self._started)
        if broken or all(one.over for one in self._started):
            raise EOFError
        return message

    def failure(self) -> Failed:
        """Why it is over: what its program raised, or how its process ended; in a group, where that came first."""
        if len(self._started) == 1:
            one = self._started[0]
            return one.failure or Failed(cause_of(one.process), "")
        silent = [one for one in self._started if one.failure is None and not one.ended]
        if silent:  # one whose pipe is closed ends at once; of the others one may have ended first
            ends = [one.process.sentinel for one in silent if one.over] or [one.process.sentinel for one in silent]
            multiprocessing.connection.wait(ends, SETTLE_SECONDS)
        for one in self._started:
            one.receive()
        raised = [(one.failure.at, rank) for rank, one in enumerate(self._started) if one.failure is not None]
        for rank, one in enumerate(self._started):
            code = None if one.ended or one.failure is not None else one.process.exitcode
            # Aborted is what a process may be in which torch's own threads raised, when another one ended.
            if code is not None and (code != -signal.SIGABRT or not raised):
                return Failed(f"{_of(rank)}: {cause_of(one.process)}", "")
        if raised:
            rank = min(raised)[1]
            found = self._started[rank].failure
            assert found is not None
            return Failed(f"{_of(rank)}: {found.error}", found.traceback)
        rank = next((rank for rank, one in enumerate(self._started) if one.over and not one.ended), 0)
        return Failed(f"{_of(rank)}: {cause_of(self._started[rank].process)}", "")

    def wait(self, seconds: float) -> None:
        """Until a process ends, at most so long."""
        ends = [one.process.sentinel for one in self._started if one.process.is_alive()]
        multiprocessing.connection.wait(ends, seconds)

    def end(self) -> None:
        """End them, and give back the memory once the last view of it is gone."""
        for one in self._started:
            one.end()
        self.memory.close()
        self._store = None

    def _ranks(self, settings: LoopSettings) -> list[LoopSettings]:
        if settings.group == 1:
            return [settings]
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        store = self._store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        return [
            dataclasses.replace(
                settings,
                group_rank=rank,
                environment={**settings.environment, **variables(rank, settings.group, store.port)},
            )
            for rank in range(settings.group)
        ]


def variables(rank: int, processes: int, port: int) -> Mapping[str, str]:
    """What torchrun sets for `init_process_group`; with port 0 the only process of a group chooses one itself.

    >>> variables(1, 2, 29500)["RANK"]
    '1'
    """
    found = {
        "RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(processes),
        "GROUP_RANK": "0",
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
    }
    if port:
        found["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the store is in the process that starts them
    return found


def _of(rank: int) -> str:
    return f"rank {rank} of its group"
