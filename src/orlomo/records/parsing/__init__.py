"""Large CSV files: read in blocks, each field by its column's type."""
