"""A user's own loop whose reports are folded in in a given order: by a cluster's clock, or as they were recorded."""
