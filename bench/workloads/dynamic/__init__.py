"""The networks of examples/dynamic, one file each: what their course depends on is in their inputs.

A row of the results is an input, which has a number; shapes vary with it. A file may have the network as one has to
write it for `torch.export`, with `torch.cond` and `torch.while_loop` by hand: that is what exporters get.
"""
