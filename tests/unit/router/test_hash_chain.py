"""Block hashes that keep their array: a tuple to everybody else, and what the index reads."""

from __future__ import annotations

import pickle

import numpy as np

from router.prefix.hash_chain import HashChain
from router.prefix.index import PrefixIndex, as_hashes

HASHES = np.array([3, 2**64 - 1, 17, 1 << 63], dtype=np.uint64)


def test_it_is_the_tuple_of_its_numbers() -> None:
    chain = HashChain.of(HASHES)
    plain = tuple(HASHES.tolist())
    assert chain == plain
    assert hash(chain) == hash(plain)
    assert not HashChain.of(HASHES[:0])
    assert pickle.loads(pickle.dumps(chain)) == plain


def test_the_index_reads_the_array_and_finds_what_the_plain_tuple_finds() -> None:
    chain, index = HashChain.of(HASHES), PrefixIndex(3)
    assert as_hashes(chain) is HASHES
    assert as_hashes(tuple(chain)).tolist() == HASHES.tolist()
    index.stored(1, chain[:2])
    index.stored(2, chain)
    assert index.matched_blocks(chain).tolist() == [0, 2, 4]
    assert index.matched_blocks(tuple(chain)).tolist() == [0, 2, 4]
