"""Models that each engine quantises to 8 bits with its own tool: weights, and activations with observed ranges.

Engines without such a tool do not take part, but for eager PyTorch, which computes in f32 and is the reference.
"""
