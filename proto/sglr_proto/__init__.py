"""The contract: all that the two planes and a worker share."""

__version__ = "0.1.0"
