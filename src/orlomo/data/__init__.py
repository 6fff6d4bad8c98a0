"""Image data sets: found, fetched, verified and stored once, then memory-mapped by `images.load`."""
