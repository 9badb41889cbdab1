"""Measures DISC against other engines; see README.md."""
