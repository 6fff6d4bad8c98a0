"""What is shown of runs: tables, charts, pages, progress."""
