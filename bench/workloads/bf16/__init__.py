"""Models in which engines may multiply in bf16: weights and activations are rounded, sums are f32.

Eager PyTorch in f32 is the reference; it also takes part under autocast.
"""
