"""Quantised models against PyTorch's: ``python -m bench.quantised``."""
