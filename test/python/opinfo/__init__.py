"""PyTorch's OpInfo database through the whole compiler: each op's samples, exported with dynamic dims, against eager.

``python -m opinfo --help`` is the command; ``failing.txt`` names every op and dtype that does not pass, and why.
"""
