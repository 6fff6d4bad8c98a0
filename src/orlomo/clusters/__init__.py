"""Clusters: how fast each worker is, which workers fail when, and the schedule that follows from it."""
