"""How fast each worker is, who fails when, and the schedule that follows from it."""

from orlomo.cluster.cluster import Cluster, Fault, Speed, cluster
from orlomo.cluster.schedule import Schedule, lay_down

__all__ = ["Cluster", "Fault", "Schedule", "Speed", "cluster", "lay_down"]
