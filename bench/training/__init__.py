"""Training steps: the time of a whole step, from a batch to updated parameters."""
