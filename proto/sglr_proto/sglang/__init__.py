"""The gRPC contract of an SGLang worker: our own proto text and the stubs made from it."""
