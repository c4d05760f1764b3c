"""Kernels that find texts and numbers among many: a hash table of positions, and exact comparison.

Texts are bytes one after the other, with offsets: text i is data[offsets[i]:offsets[i + 1]].
"""

from __future__ import annotations

import numpy as np

from fedhlcr.kernels.compiling import kernel

# The constants of the hash FNV-1a for 64 bits, and a multiplier that spreads its bits over the table.
FNV_START = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)
SPREAD = np.uint64(0x9E3779B97F4A7C15)
HALF = np.uint64(32)


@kernel
def _slot(data, first, last, n_slots):
    """The first slot of a text in a table of n_slots, a power of two."""
    key = FNV_START
    for b in range(first, last):
        key = (key ^ np.uint64(data[b])) * FNV_PRIME
    return np.int64(((key * SPREAD) >> HALF) & np.uint64(n_slots - 1))


@kernel
def _are_equal(data, first, last, other, other_first, other_last):
    if last - first != other_last - other_first:
        return False
    n_equal = 0
    while n_equal < last - first and data[first + n_equal] == other[other_first + n_equal]:
        n_equal += 1
    return n_equal == last - first


@kernel
def enter_texts(data, offsets, table):
    """Enter the position of each text into an empty table: slots of −1, a power of two, more than there are texts."""
    n_slots = table.shape[0]
    for i in range(offsets.shape[0] - 1):
        slot = _slot(data, offsets[i], offsets[i + 1], n_slots)
        while table[slot] >= 0:
            slot = (slot + 1) & (n_slots - 1)
        table[slot] = i


@kernel
def find_texts(data, offsets, table, wanted, wanted_offsets, out):
    """The position of each wanted text among the texts that `enter_texts` has entered, or −1."""
    n_slots = table.shape[0]
    for i in range(wanted_offsets.shape[0] - 1):
        first = wanted_offsets[i]
        last = wanted_offsets[i + 1]
        slot = _slot(wanted, first, last, n_slots)
        out[i] = -1
        while table[slot] >= 0:
            place = table[slot]
            if _are_equal(data, offsets[place], offsets[place + 1], wanted, first, last):
                out[i] = place
                break
            slot = (slot + 1) & (n_slots - 1)


@kernel
def add_texts(data, offsets, n_known, table, wanted, wanted_offsets, out):
    """The position of each wanted text among the n_known texts; unknown ones are appended. Returns their new number.

    `data` and `offsets` must have room for all wanted texts, and the table more slots than there can be texts.
    """
    n_slots = table.shape[0]
    for i in range(wanted_offsets.shape[0] - 1):
        first = wanted_offsets[i]
        last = wanted_offsets[i + 1]
        slot = _slot(wanted, first, last, n_slots)
        while table[slot] >= 0:
            place = table[slot]
            if _are_equal(data, offsets[place], offsets[place + 1], wanted, first, last):
                break
            slot = (slot + 1) & (n_slots - 1)
        if table[slot] < 0:
            start = offsets[n_known]
            for b in range(last - first):
                data[start + b] = wanted[first + b]
            offsets[n_known + 1] = start + last - first
            table[slot] = n_known
            n_known += 1
        out[i] = table[slot]
    return n_known


@kernel
def _number_slot(number, n_slots):
    """The first slot of a whole number (the finaliser of splitmix64)."""
    key = np.uint64(number)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((key ^ (key >> np.uint64(31))) & np.uint64(n_slots - 1))


@kernel
def enter_numbers(numbers, n_known, table):
    """Enter the positions of distinct numbers into an empty table, as `enter_texts` does for texts."""
    n_slots = table.shape[0]
    for i in range(n_known):
        slot = _number_slot(numbers[i], n_slots)
        while table[slot] >= 0:
            slot = (slot + 1) & (n_slots - 1)
        table[slot] = i


@kernel
def add_numbers(numbers, n_known, table, wanted, out):
    """As `add_texts`, for whole numbers."""
    n_slots = table.shape[0]
    for i in range(wanted.shape[0]):
        slot = _number_slot(wanted[i], n_slots)
        while table[slot] >= 0 and numbers[table[slot]] != wanted[i]:
            slot = (slot + 1) & (n_slots - 1)
        if table[slot] < 0:
            numbers[n_known] = wanted[i]
            table[slot] = n_known
            n_known += 1
        out[i] = table[slot]
    return n_known
