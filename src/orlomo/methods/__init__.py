"""Methods: a server rule and a worker rule each, one paper per file in `papers/`; `registry` has their names."""
