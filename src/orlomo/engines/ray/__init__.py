"""The Ray engine: each worker an actor on a Ray cluster."""
