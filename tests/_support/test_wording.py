"""Numbers and nouns as people write them."""

from __future__ import annotations

import pytest

from fedhlcr._support.wording import Noun, byte_size, capital, listed, noun, number, percent, printable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.7, "0.7"),
        (-12.345, "−12.3"),
        (999.6, "1,000"),
        (1234.5, "1,234"),
        (1.5e-7, "1.5×10⁻⁷"),
    ],
)
def test_numbers_are_readable(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("movie", "movies"),
        ("city", "cities"),
        ("bus", "buses"),
        ("house", "houses"),
        ("lens", "lenses"),
        ("gas", "gases"),
        ("canvas", "canvases"),
        ("size", "sizes"),
        ("box", "boxes"),
        ("address", "addresses"),
        ("school bus", "school buses"),
    ],
)
def test_singular_and_plural_of_column_names(one, many):
    for column in (one, many):
        assert noun(column, Noun("entity", "entities")) == Noun(one, many)


def test_shares_sizes_and_nouns():
    assert [percent(share) for share in (0.0, 0.004, 0.18, 0.9999, 1.0)] == [
        "0 %",
        "under 1 %",
        "18 %",
        "99.9 %",
        "100 %",
    ]
    assert [byte_size(size) for size in (1, 999, 11_500_000)] == ["1 byte", "999 bytes", "11.5 MB"]
    entity = Noun("entity", "entities")
    counted = [entity.count(n) for n in (1, 1204, 1_234_567.0, 2.5)]
    assert counted == ["1 entity", "1,204 entities", "1,234,567 entities", "2.5 entities"]
    named = [noun(column, entity).many for column in ("store_id", "City", "boxes", "SKU", "id", "号", None)]
    assert named == ["stores", "cities", "boxes", "SKUs", "entities", "entities", "entities"]
    assert noun("day_series", entity) == Noun("day series", "day series")
    assert [capital(text) for text in ("SKUs", "main cluster", "")] == ["SKUs", "Main cluster", ""]
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert printable("a\nb\0\ud800\u202e") == "a b\ufffd\ufffd\ufffd"
