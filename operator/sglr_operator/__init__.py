"""The control plane: from SGLangBackend objects to endpoint lists that routers acknowledge."""
