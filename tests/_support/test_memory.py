"""Giving freed memory back."""

from __future__ import annotations

import ctypes

from fedhlcr._support.memory import give_back, keep_little


def test_freed_memory_can_be_given_back_anywhere(monkeypatch):
    give_back()
    keep_little()

    def no_library(_):
        raise OSError

    # a system without this library
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    give_back()
    keep_little()
