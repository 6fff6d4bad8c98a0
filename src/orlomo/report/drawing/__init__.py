"""What is drawn of a run's reports, and how matplotlib draws it."""
