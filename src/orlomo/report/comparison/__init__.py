"""Runs compared with one another: grouped by method, in rows of a table."""
