"""The simulated engine: the whole cluster on this machine, on virtual time; and replay."""
