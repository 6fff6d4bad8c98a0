"""orlomo: asynchronous momentum training for PyTorch on machines of unequal speed.

Public names are loaded when they are first used, so that `import orlomo` and `orlomo --help` do not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from orlomo.clusters.cluster import Cluster, Fault, Speed, cluster
    from orlomo.clusters.schedule import trace
    from orlomo.engines.callbacks import Callback, EarlyStopping, KeepBest, RunHandle
    from orlomo.engines.ray.connection import RayOptions
    from orlomo.errors import Diverged, Interrupted, OrlomoError, ReportRefused
    from orlomo.flat import Group
    from orlomo.launching import launch
    from orlomo.loop.rounds import RunFinished
    from orlomo.loop.worker import Worker, worker
    from orlomo.methods.ledger import Fold
    from orlomo.methods.messages import Assignment, Report, WorkerState
    from orlomo.methods.method import Method
    from orlomo.methods.papers.al_sgd import ALSGD
    from orlomo.methods.papers.asgd import ASGD
    from orlomo.methods.papers.local_ormo_da import LocalOrMoDA
    from orlomo.methods.papers.local_sgd import LocalSGD
    from orlomo.methods.papers.msgd import MSGD
    from orlomo.methods.papers.orlomo import OrLoMo
    from orlomo.methods.papers.ormo_da import OrMoDA
    from orlomo.methods.papers.prsgdm import PRSGDm
    from orlomo.methods.registry import method
    from orlomo.methods.server import Server
    from orlomo.methods.state import ServerState
    from orlomo.methods.worker import WorkerRule
    from orlomo.records.audit import audit
    from orlomo.records.changes import Change
    from orlomo.records.run import Run
    from orlomo.resuming import load, replay, resume
    from orlomo.tasks.metrics import Metric, accuracy
    from orlomo.tasks.registry import task
    from orlomo.tasks.shares import PerWorker, Stream
    from orlomo.tasks.task import Task
    from orlomo.training import train
    from orlomo.verifying import verify

_MODULES = {
    "clusters.cluster": ("Cluster", "Fault", "Speed", "cluster"),
    "clusters.schedule": ("trace",),
    "engines.callbacks": ("Callback", "EarlyStopping", "KeepBest", "RunHandle"),
    "engines.ray.connection": ("RayOptions",),
    "errors": ("Diverged", "Interrupted", "OrlomoError", "ReportRefused"),
    "flat": ("Group",),
    "launching": ("launch",),
    "loop.rounds": ("RunFinished",),
    "loop.worker": ("Worker", "worker"),
    "methods.ledger": ("Fold",),
    "methods.messages": ("Assignment", "Report", "WorkerState"),
    "methods.method": ("Method",),
    "methods.papers.al_sgd": ("ALSGD",),
    "methods.papers.asgd": ("ASGD",),
    "methods.papers.local_ormo_da": ("LocalOrMoDA",),
    "methods.papers.local_sgd": ("LocalSGD",),
    "methods.papers.msgd": ("MSGD",),
    "methods.papers.orlomo": ("OrLoMo",),
    "methods.papers.ormo_da": ("OrMoDA",),
    "methods.papers.prsgdm": ("PRSGDm",),
    "methods.registry": ("method",),
    "methods.server": ("Server",),
    "methods.state": ("ServerState",),
    "methods.worker": ("WorkerRule",),
    "records.audit": ("audit",),
    "records.changes": ("Change",),
    "records.run": ("Run",),
    "tasks.metrics": ("Metric", "accuracy"),
    "tasks.registry": ("task",),
    "tasks.shares": ("PerWorker", "Stream"),
    "tasks.task": ("Task",),
    "resuming": ("load", "replay", "resume"),
    "training": ("train",),
    "verifying": ("verify",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ALSGD",
    "ASGD",
    "MSGD",
    "Assignment",
    "Callback",
    "Change",
    "Cluster",
    "Diverged",
    "EarlyStopping",
    "Fault",
    "Fold",
    "Group",
    "Interrupted",
    "KeepBest",
    "LocalOrMoDA",
    "LocalSGD",
    "Method",
    "Metric",
    "OrLoMo",
    "OrMoDA",
    "OrlomoError",
    "PRSGDm",
    "PerWorker",
    "RayOptions",
    "Report",
    "ReportRefused",
    "Run",
    "RunFinished",
    "RunHandle",
    "Server",
    "ServerState",
    "Speed",
    "Stream",
    "Task",
    "Worker",
    "WorkerRule",
    "WorkerState",
    "accuracy",
    "audit",
    "cluster",
    "launch",
    "load",
    "method",
    "replay",
    "resume",
    "task",
    "trace",
    "train",
    "verify",
    "worker",
]


if not TYPE_CHECKING:  # a type checker sees the imports above, and so notices a mistyped name

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'orlomo' has no attribute {name!r}")
        found = getattr(importlib.import_module(f"orlomo.{_MODULE_OF[name]}"), name)
        globals()[name] = found  # the next access does not come here
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
