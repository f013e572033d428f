"""The router process: builds its parts, joins them, and runs them until it is told to stop."""

from sglr_dataplane.app.router import FleetEndedError, Inherited, Router
from sglr_dataplane.app.serving import serve

__all__ = ["FleetEndedError", "Inherited", "Router", "serve"]
