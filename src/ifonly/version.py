"""The version, in a place that every module may read."""

__version__ = "0.1.0"
