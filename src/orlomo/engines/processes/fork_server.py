"""The server from which processes come, started so that a killed run leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orlomo.temporary import TemporaryFolder

DESCRIPTORS = "/proc/self/fd"

SAFE_PATH, OURS = "PYTHONSAFEPATH", "orlomo"
"""Set for the server of processes alone: it would look for modules in the working directory, maybe a run folder."""

_places: dict[int, TemporaryFolder] = {}


def start_server() -> None:
    """Start the server from which processes come, if it does not run.

    It listens on a socket that has a name, which would stay in the temporary folder where everything is killed. So the
    name is removed at once: this process finds the socket by a file descriptor.
    """
    from multiprocessing import forkserver, process  # not on every system

    server: Any = forkserver._forkserver
    config = process.current_process()._config  # type: ignore[attr-defined]
    if _is_running(server._forkserver_pid):
        return
    before = config.get("tempdir")
    with contextlib.ExitStack() as stack:
        nameless = hasattr(os, "O_PATH") and Path(DESCRIPTORS).is_dir()
        place = stack.enter_context(TemporaryFolder()).path if nameless else own_place()
        if nameless:
            inside = os.open(place, os.O_PATH)
            stack.callback(os.close, inside)
            place = Path(f"{DESCRIPTORS}/{inside}")  # the path of a socket must be short
        config["tempdir"] = str(place)
        try:
            with _environment(SAFE_PATH, os.environ.get(SAFE_PATH) or OURS), _signals_blocked():
                forkserver.ensure_running()
        finally:
            config["tempdir"] = before
        if nameless:
            handle = os.open(server._forkserver_address, os.O_PATH)
            server._forkserver_address = f"{DESCRIPTORS}/{handle}"


def _is_running(pid: int | None) -> bool:
    """Whether this child process runs; without taking note of its end, which is multiprocessing's to do."""
    with contextlib.suppress(ChildProcessError):
        return pid is not None and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    return True  # it is the parent's, which this process was forked from


def own_place() -> Path:
    """The temporary folder of this process, for what the processes that it starts put there."""
    process = os.getpid()
    if process not in _places:  # a forked process makes its own
        _places[process] = TemporaryFolder()
    return _places[process].path


def remove_place() -> None:
    """All processes that this one has started have ended: remove its temporary folder."""
    if (found := _places.pop(os.getpid(), None)) is not None:
        found.close()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """What is started within ignores Ctrl-C: a terminal sends it to all processes, but the parent handles it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    # Here, or it would be started within, and unblock signals when it is. It removes what killed processes leave, such
    # as the semaphores of their data loaders, and need not warn of that.
    with _environment("PYTHONWARNINGS", "ignore:resource_tracker"):
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Within, this variable of the environment has this value."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
