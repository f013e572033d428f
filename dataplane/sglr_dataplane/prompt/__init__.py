"""From messages and parameters to token ids and sampling."""
