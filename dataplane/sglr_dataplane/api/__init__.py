"""The HTTP front: requests in, OpenAI's answers and events out."""
