"""What runs the workers: the simulated engine, and replay."""
