"""What a terminal shows of runs."""
