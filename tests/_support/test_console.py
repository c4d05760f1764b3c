"""Consoles that cannot show every character."""

from __future__ import annotations

import io
import sys

import pytest

from fedhlcr._support.console import make_printable


@pytest.fixture
def printed(monkeypatch):
    """Prints a text to a console with an encoding and returns its bytes."""

    def show(text, encoding):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        make_printable()
        print(text, end="")
        sys.stdout.flush()
        return raw.getvalue()

    return show


def test_what_a_console_cannot_show_is_replaced_by_something_similar(printed):
    assert printed("R² −1.5 ─── a → b ≤ 3", "cp1252") == "R² -1.5 --- a -> b <= 3".encode("cp1252")
    assert printed("R² −1.5 ×10⁻⁵ “x”", "ascii") == b'R2 -1.5 x10-5 "x"'
    assert printed("名", "cp1252") == b"?"


def test_unicode_consoles_show_everything(printed):
    assert printed("R² −1.5 → 名", "utf-8") == "R² −1.5 → 名".encode()


def test_a_stream_without_an_encoding_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    make_printable()
    print("−")
    assert sys.stdout.getvalue() == "−\n"
