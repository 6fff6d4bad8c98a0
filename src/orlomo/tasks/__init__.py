"""Tasks: what is to be learnt. `registry` has the built-in ones by name."""
