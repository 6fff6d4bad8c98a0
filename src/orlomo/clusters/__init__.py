"""Clusters: how fast each worker is, who fails when, and the schedule that follows from it."""
