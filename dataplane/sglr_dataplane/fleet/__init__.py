"""The fleet: which workers there are, how they are, and which of them takes a job."""
