"""The sizes that tests run at: ends of ranges, primes, and the edges of tiles and vectors plus and minus one."""

import itertools
import random

# all-MiniLM-L6-v2: batch 1 to 64, length 2 to 512.
MINILM_BATCHES = (1, 2, 3, 7, 8, 16, 33, 64)
MINILM_LENGTHS = (2, 3, 8, 15, 16, 17, 31, 64, 127, 128, 200, 511, 512)

# One dim of a small model.
SMALL_SIZES = (1, 2, 3, 5, 8, 13, 14, 15, 16, 17, 31, 32, 33, 64, 65)


def shuffled_pairs(first, second, seed=0):
    """All pairs, in a random but fixed order: no result may depend on the sizes of the calls before it."""
    pairs = list(itertools.product(first, second))
    random.Random(seed).shuffle(pairs)
    return pairs
