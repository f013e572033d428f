"""Vocabulary tables: id to bytes, special ids, incremental decoding."""
