"""Training under a memory budget: DISC's plans against eager PyTorch, checkpoints and `torch.compile`."""
