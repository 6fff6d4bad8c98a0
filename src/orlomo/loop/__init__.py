"""The user's own training loop as a worker: what runs in the process in which that loop is."""
