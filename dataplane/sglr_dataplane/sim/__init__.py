"""The simulated SGLang worker: a real gRPC server that behaves like the engine, flaws included."""
