"""What is measured on a GPU, from libraries that were compiled elsewhere: a machine with one needs no compiler."""
