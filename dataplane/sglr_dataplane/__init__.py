"""The data plane: the router, its engines' clients and the simulated worker."""
