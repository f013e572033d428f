"""A lean HTTP/1.1 client for workers: calls, the connections that carry them, and their pool."""
