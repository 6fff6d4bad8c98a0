"""The workers of a run: what each did and when, and what happened to them."""
