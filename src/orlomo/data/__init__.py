"""Image data sets: found, fetched, verified and stored once, then memory-mapped."""

from orlomo.data.catalog import DATASETS
from orlomo.data.images import Images, load

__all__ = ["DATASETS", "Images", "load"]
