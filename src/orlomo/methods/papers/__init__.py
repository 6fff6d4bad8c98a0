"""The built-in methods, one paper per file."""
