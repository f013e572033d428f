"""The router as a gRPC service: inference.v1, for clients that speak gRPC instead of HTTP."""
