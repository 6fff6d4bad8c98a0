"""Before there is a run folder: the task is tried on one batch, and what would go wrong is said."""
