"""Block hashes of a prompt that keep the array they were made in, so that the index need not make it again."""

from __future__ import annotations

from router.prefix.slots import UInt64Array


class HashChain(tuple[int, ...]):
    """The hashes as numbers, equal to the plain tuple of them.

    Attributes:
        array: The same as uint64; not to be written to.
    """

    array: UInt64Array

    @classmethod
    def of(cls, array: UInt64Array) -> HashChain:
        """The chain of an array that nobody will change."""
        chain = cls(array.tolist())
        chain.array = array
        return chain
