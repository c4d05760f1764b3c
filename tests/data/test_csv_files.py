"""CSV files: ids stay texts, numbers are read in any notation, and errors show no value."""

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from fedhlcr.data.table_files import open_table, read_columns
from fedhlcr.exceptions import FileError

SECRET = "867.5309"


def test_ids_are_texts(csv):
    assert read_columns(csv, ["id"], texts=["id"])["id"].to_pylist() == ["007", "08", ""]


@pytest.mark.parametrize("text", ["NA", "null", "nan"])
def test_ids_may_look_like_missing_values(text, tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(f"id,x\n{text},1\n")
    assert read_columns(path, ["id", "x"], texts=["id"])["id"].to_pylist() == [text]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["1.0", "", "20.0", "-3.00"], ["1", "", "20", "-3"]),
        (["1.0", "1.5", "2.0"], ["1", "1.5", "2"]),
        (["1.0", "2"], ["1.0", "2"]),
        (["1.0", "a"], ["1.0", "a"]),
        (["007.0", "1.0"], ["007.0", "1"]),
        (["", ""], ["", ""]),
    ],
)
def test_decimal_points_of_whole_number_ids_are_removed(written, expected, tmp_path):
    (tmp_path / "t.csv").write_text("id,x\n" + "".join(f"{text},1\n" for text in written))
    table = open_table(tmp_path / "t.csv")
    assert table.read(["id"], ["id"])["id"].to_pylist() == expected
    assert table.read_as_is(["id"])["id"].to_pylist() == written
    pa.parquet.write_table(pa.table({"id": written}), tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet").read(["id"], ["id"])["id"].to_pylist() == written


def test_quoted_names_and_line_breaks_are_read(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text('"a, b","c","d\ne"\r\n1,2,3\r\n4,"some\ntext",6\r\n')
    assert read_columns(path, ["a, b"])["a, b"].to_pylist() == [1, 4]
    table = read_columns(path, ["c", "d\ne"], texts=["c"])
    assert table.to_pydict() == {"c": ["2", "some\ntext"], "d\ne": [3.0, 6.0]}


def test_missing_and_infinite_numbers(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("x\n1\nNA\n-inf\nnan\nNULL\n#N/A\ninf\nNaN\n \n2\n")
    values = read_columns(path, ["x"])["x"].to_pylist()
    inf = float("inf")
    assert values == [1.0, None, -inf, None, None, None, inf, None, None, 2.0]


@pytest.mark.parametrize("words", ["true false", "True False", "TRUE FALSE"])
def test_booleans_are_one_and_zero(words, tmp_path):
    true, false = words.split()
    path = tmp_path / "events.csv"
    path.write_text(f"x,y\n{true},1\nNA,2\n{false},3\n")
    assert read_columns(path, ["x"])["x"].to_pylist() == [1.0, None, 0.0]


@pytest.mark.parametrize("beside", [{}, {"flag": [1, 0]}, {"plus": [1.5, -2.0]}])
def test_decimal_commas_beside_columns_that_are_read_as_texts(beside, tmp_path):
    written = {"flag": ["true", "false"], "plus": ["+1,5", "-2,0"]}
    columns = {"g": ["a", "b"], "x": ["1,5", "1234,25"]} | {name: written[name] for name in beside}
    path = tmp_path / "events.csv"
    path.write_text("\n".join(";".join(line) for line in [list(columns), *zip(*columns.values(), strict=True)]))
    table = read_columns(path, list(columns), texts=["g"])
    assert table.to_pydict() == {"g": ["a", "b"], "x": [1.5, 1234.25], **beside}


@pytest.mark.parametrize("bad", ["oops", "1.5", "1,2,3"])
def test_only_the_bad_cell_among_decimal_commas_is_reported(bad, tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(f"g;x\na;1,5\nb;2,5\nc;{bad}\nd;\n")
    with pytest.raises(FileError, match=r"column 'x' of 'events.csv' .* 1 of its 4 rows holds text \(first: row 3\)"):
        read_columns(path, ["g", "x"], texts=["g"])


def test_decimal_points_and_decimal_commas_in_one_table_are_refused(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("x;y\n1,234;1.5\n2,345;2.5\n")
    with pytest.raises(FileError, match=r"column 'x' of 'events.csv' must hold numbers, but 2 of its 2 rows hold"):
        read_columns(path, ["x", "y"])


def test_types_do_not_depend_on_the_first_rows(tmp_path):
    """Whole numbers and no text for a megabyte, then others."""
    path = tmp_path / "events.csv"
    n = 250_000
    path.write_text("id,x\n" + "1,2\n" * n + "a,0.5\n")
    table = read_columns(path, ["id", "x"], texts=["id"])
    assert table["x"][-1].as_py() == 0.5
    assert (table["id"][0].as_py(), table["id"][-1].as_py()) == ("1", "a")
    path.write_text("id,x\n" + "1,2\n" * n + f"1,{SECRET}z\n")
    with pytest.raises(FileError, match=r"but 1 of its 250,001 rows holds text \(first: row 250,001\)") as caught:
        read_columns(path, ["id", "x"], texts=["id"])
    assert SECRET not in str(caught.value)


def test_rows_with_too_many_or_too_few_fields_are_counted(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(f"x,y\n1,2\n{SECRET}\n3,4\n1,2,3\n")
    with pytest.raises(FileError, match=r"has 2 rows with more or fewer fields .* \(first: row 2\)"):
        read_columns(path, ["x"])


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (["1,234", "12,345.6"], "numbers with thousands separators (first: row 2); remove the separators."),
        (["1 234", "1'234.5"], "numbers with thousands separators (first: row 2); remove the separators."),
        (["1,5", "1,234"], "numbers with a decimal comma (first: row 2); write a decimal point."),
        (["2024-03-01", "2024-03-01 12:30"], "dates or times (first: row 2); turn them into numbers first"),
        (["01/03/2024", "12:30"], "dates or times (first: row 2); turn them into numbers first"),
        (["5 %", "$7.50"], "numbers with a percent or currency sign (first: row 2); remove the sign."),
        (["2024-03-01", "about 5"], "text (first: row 2); correct them, or, if it is a feature, name it as a category"),
    ],
)
def test_numbers_in_other_notations_are_named(texts, what, tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("x\n" + "".join(f'"{text}"\n' for text in ["1", *texts]))
    with pytest.raises(FileError) as caught:
        read_columns(path, ["x"])
    assert f"'x' of 'events.csv' must hold numbers, but 2 of its 3 rows hold {what}" in str(caught.value)
