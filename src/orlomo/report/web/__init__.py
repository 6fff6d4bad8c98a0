"""Runs as HTML: the page, the server of `orlomo watch`, the cell of a notebook."""
