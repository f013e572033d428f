"""The APIs that generate: how each asks and is answered; the walk between is the same."""
