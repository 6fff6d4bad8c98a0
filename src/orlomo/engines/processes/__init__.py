"""The processes engine: each worker a process of this machine."""
