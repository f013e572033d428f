"""The gRPC service ``inference.v1``: another way in to the walk that HTTP requests take."""

from __future__ import annotations

from sglr_dataplane.inference.server import serving_inference

__all__ = ["serving_inference"]
