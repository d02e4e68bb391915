"""Chunks of samples: how copies of an input that does not fit into bounded memory are divided."""

from __future__ import annotations

import itertools

# Bytes of the copies of a chunk, unless a single sample has more. The number of chunks is bounded,
# too: each has launches of its own.
_CHUNK_BYTES, _MOST_CHUNKS = 2**26, 64


def chunks(batch: int, sample_bytes: int, copies: int = 1) -> list[slice]:
    """Return the samples of each copy; the sizes of any two chunks differ by 1 at most.

    A call may have several `copies` at a time, which have equal shares of the memory.
    """
    most = max(1, _CHUNK_BYTES // (copies * sample_bytes), -(-batch // _MOST_CHUNKS))
    count = -(-batch // most)
    return [
        slice(*ends) for ends in itertools.pairwise(i * batch // count for i in range(count + 1))
    ]
