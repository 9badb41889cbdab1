"""Training steps as programs: the gradients of a loss and an optimizer's update."""
