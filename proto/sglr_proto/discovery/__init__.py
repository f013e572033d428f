"""The push stream between the operator and its routers."""
