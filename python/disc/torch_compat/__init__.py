"""What DISC uses of PyTorch beyond its public interface.

``patches`` lists the functions that DISC replaces while it traces; ``patching`` replaces them, for the tracing thread
only; ``quiet`` silences messages of that thread. ``lasting`` replaces what must be replaced for the whole process. The
other modules import the private names that the front end and the ``torch.compile`` backend read.

Nothing here depends on the rest of DISC. The unit test compares all places and names with the installed PyTorch.
"""
