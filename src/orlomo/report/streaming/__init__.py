"""What is shown of a run's events, added up block by block: memory for what is shown, not for what is read."""
