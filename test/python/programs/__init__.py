"""Random programs, compiled and compared with eager PyTorch at many shapes: `make fuzz-programs`."""
