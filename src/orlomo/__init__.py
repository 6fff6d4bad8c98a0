"""orlomo: asynchronous momentum training for PyTorch on machines of unequal speed."""

from orlomo.cluster import Cluster, Fault, Speed, cluster
from orlomo.engines.ray_connection import RayOptions
from orlomo.errors import Diverged, Interrupted, OrlomoError, ReportRefused
from orlomo.methods import (
    ALSGD,
    ASGD,
    MSGD,
    Assignment,
    LocalOrMoDA,
    LocalSGD,
    Method,
    OrLoMo,
    OrMoDA,
    PRSGDm,
    Report,
    Server,
    method,
)
from orlomo.records.run import Run
from orlomo.tasks import Task, task
from orlomo.trace import trace
from orlomo.train import load, replay, resume, train

__version__ = "0.1.0"

__all__ = [
    "ALSGD",
    "ASGD",
    "MSGD",
    "Assignment",
    "Cluster",
    "Diverged",
    "Fault",
    "Interrupted",
    "LocalOrMoDA",
    "LocalSGD",
    "Method",
    "OrLoMo",
    "OrMoDA",
    "OrlomoError",
    "PRSGDm",
    "RayOptions",
    "Report",
    "ReportRefused",
    "Run",
    "Server",
    "Speed",
    "Task",
    "cluster",
    "load",
    "method",
    "replay",
    "resume",
    "task",
    "trace",
    "train",
]
