"""Random models that keep state in all places that Python has, compiled and compared with eager PyTorch."""
