"""One module of declarations for each model family."""
