"""Tables as spreadsheets and other programs write them."""

import gzip

import numpy as np
import polars as pl
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.data import text_tables
from ifonly.data.store import read_frame, read_frame_and_form
from ifonly.errors import InputError, StoreError

ROWS = ["Größe;Stück;Ort", "1,5;2;Höhe", "-0,25;3;Öl, kalt", "2,0;4;Maß"]
TEXT = "\n".join(ROWS) + "\n"


def write(tmp_path, data, name="log.csv"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (TEXT.encode(), "UTF-8"),
        (TEXT.encode("utf-8-sig"), "UTF-8"),
        (TEXT.encode("utf-16"), "UTF-16"),
        (TEXT.encode("utf-16-le"), "UTF-16"),
        (TEXT.encode("utf-16-be"), "UTF-16"),
        (TEXT.encode("latin-1"), "Latin-1"),
        (TEXT.replace("\n", "\r\n").encode("cp1252"), "Latin-1"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_encodings_separators_and_decimal_commas_are_recognised(tmp_path, data, encoding, packed):
    path = write(tmp_path, gzip.compress(data) if packed else data, "log.csv.gz" if packed else "log.csv")
    frame, form = read_frame_and_form(path)
    assert frame.columns == ["Größe", "Stück", "Ort"]
    assert frame["Größe"].to_list() == ["1.5", "-0.25", "2.0"]
    assert frame["Ort"].to_list() == ["Höhe", "Öl, kalt", "Maß"]  # text keeps its commas
    assert form is not None
    assert str(form) == f"{encoding}, separated by semicolons, with decimal commas"


@pytest.mark.parametrize(("sign", "word"), [(",", "commas"), (";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
@pytest.mark.parametrize("quoted", [False, True])
def test_every_separator_gives_the_same_table(tmp_path, sign, word, quoted):
    frame = pl.DataFrame({"run": ["a", "b"], "x, max": ["1.5", "2"], "note": ["so; so", "on|off"]})
    path = tmp_path / "log.csv"
    frame.write_csv(path, separator=sign, quote_style="always" if quoted else "necessary")
    found, form = read_frame_and_form(path)
    assert found.equals(frame)
    assert form is not None
    assert word in str(form)
    assert form.is_usual == (sign == ",")


@given(st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=8))
@settings(deadline=None, derandomize=True, max_examples=some(60))
def test_decimal_commas_are_the_same_numbers(tmp_path_factory, numbers):
    folder = tmp_path_factory.mktemp("commas")
    rows = "\n".join(f"{index};{number:.2f}".replace(".", ",") for index, number in enumerate(numbers))
    found = read_frame(write(folder, f"i;x\n{rows}\n".encode()))["x"].cast(pl.Float64).to_numpy()
    np.testing.assert_array_equal(found, np.array([float(f"{number:.2f}") for number in numbers]))


def test_what_a_spreadsheet_says_of_its_separator_counts(tmp_path):
    frame = read_frame(write(tmp_path, b"sep=;\na, b;c\n1;2\n"))
    assert frame.columns == ["a, b", "c"]


def test_plain_cells_are_left_alone(tmp_path):
    frame, form = read_frame_and_form(write(tmp_path, b"id,x\n007,1e5\n7,.5\n"))
    assert frame.rows() == [("007", "1e5"), ("7", ".5")]
    assert form is not None
    assert form.is_usual


@pytest.mark.parametrize(
    ("data", "error", "expected"),
    [
        (b"a;b\n1,5;2\n3.5;4\n", InputError, r"column 'a', row 1 \(line 2\).*decimal point; write all"),
        (
            b"a;b\n1,5;2\n3.5;4\n2,5;4\n",
            InputError,
            r"row 2 .*with a point, while most .* decimal comma; write all with",
        ),
        (
            b"a;b\n1.5;2\n3,5;4\n2.5;4\n",
            InputError,
            r"row 2 .*with a comma, while most .* decimal point; write all with",
        ),
        (b"a;b\n1;2\n1,500;4\n", InputError, r"column 'a', row 2 \(line 3\).*may be a decimal comma or part"),
        (b"a;b\n1.234,5;2\n2;4\n", InputError, r"column 'a', row 1.*thousands are parted"),
        (b'a,b\n"1,234,567",2\n2,4\n', InputError, r"column 'a', row 1.*thousands are parted"),
        (b"a,b;c\n1,2;3\n", InputError, "line 1: .* commas or by semicolons"),
        ("a;b\nä;ü\n".encode() + b"x\xfc;y\n", StoreError, "line 3: .* not UTF-8, while others of the file are"),
        (b"a;b\n1;2\nx\x81;y\n", StoreError, "line 3: is neither UTF-8"),
        (b"a,b\n1,2\n1\0,2\n", StoreError, "line 3: holds zero bytes"),
        ("a,b\n1,2\n".encode("utf-16")[:-1], StoreError, "line 2: is not valid UTF-16"),
        ("a,b\n1,2\n".encode("utf-32"), StoreError, "line 1: holds zero bytes"),
        (b"sep=;\na;b\n1;2;3\n", StoreError, "line 3: has 3 cells"),
        (b"sep=;\na;b\n1,5;2\n3.5;4\n", InputError, r"column 'a', row 1 \(line 3\)"),
        (b"a;b\n1;2\n\n", None, ""),
        (b"a,b\n1,2\n\n3,4\n", InputError, r"row 2 \(line 3\): is empty; take it out"),
        (b"\n\na,b\n1,2\n,\n3,4\n", InputError, r"row 2 \(line 5\): is empty; take it out"),
        (b"the ward's log\na,b\n1,2\n", StoreError, "line 1: has a single cell, unlike those after it; the first"),
        (b"the ward's log,,\na,b,c\n1,2,3\n", InputError, "line 1: columns 2 and 3 have no name; the first line"),
        (b"a,b,c\n1,2,3\n4,5\n", InputError, "line 3: has 2 cells, fewer than the header .3.; which"),
        (b'\n\na,b,c\n"1\n1",2,3\n4,5,\n4,5\n', InputError, "line 7: has 2 cells, fewer"),
        (b"a,b,c\n1,2,3\nend of file\n", InputError, "line 3: has 1 cells, fewer"),
        (b"a,b,,\n1,2\n3,\n", None, ""),
        (b"PAR1\0\0", StoreError, r"is a Parquet file and no text; end its name in \.parquet"),
        (b"PK\x03\x04\0", StoreError, "is a spreadsheet or a packed folder and no text; save the sheet as CSV"),
        (b"\xd0\xcf\x11\xe0\0", StoreError, "is a spreadsheet and no text; save the sheet as CSV"),
    ],
)
def test_what_cannot_be_told_is_refused_with_line_and_remedy(tmp_path, data, error, expected):
    path = write(tmp_path, data)
    if error is None:
        read_frame(path)
        return
    with pytest.raises(error, match=expected):
        read_frame(path)


@pytest.mark.parametrize(
    "text",
    [
        "run,x\na,1\nb,2\n\n\n",
        "run,x\na,1\nb,2\n,\n , \n",
        "\n \r\nrun,x\na,1\nb,2",
        "run,x\ra,1\rb,2\r",
        " run , x\na, 1\n b,2 \n",
        "run,x,,\na,1,,\nb,2,,\n",
        "\n\nsep=;\nrun;x\na;1\nb;2\n;\n",
    ],
)
def test_what_surrounds_a_table_is_no_part_of_it(tmp_path, text):
    frame = read_frame(write(tmp_path, text.encode()))
    assert (frame.columns, frame.rows()) == (["run", "x"], [("a", "1"), ("b", "2")])


def test_names_with_line_breaks_and_spaces_that_do_not_show_are_plain(tmp_path):
    frame = read_frame(write(tmp_path, 'run,"heart\r\nrate",heart\xa0sound,x\u200b,a  b\n1,2,3,4,5\n'.encode()))
    assert frame.columns == ["run", "heart rate", "heart sound", "x", "a  b"]


@pytest.mark.parametrize("name", ["log.TXT", "log.tsv.gz"])
def test_text_of_spreadsheets_has_other_names(tmp_path, name):
    data = "run\tx\na\t1\n".encode("utf-16")
    assert read_frame(write(tmp_path, gzip.compress(data) if name.endswith("gz") else data, name)).rows() == [
        ("a", "1")
    ]


def test_a_nameless_column_of_row_numbers_is_kept(tmp_path):
    frame = read_frame(write(tmp_path, b",run,x\n0,a,1\n1,b,2\n"))
    assert (frame.columns, frame.rows()) == (["", "run", "x"], [("0", "a", "1"), ("1", "b", "2")])


def test_packed_tables_that_are_damaged_are_refused(tmp_path):
    packed = gzip.compress(TEXT.encode())
    with pytest.raises(StoreError, match="cut off or damaged"):
        read_frame(write(tmp_path, packed[:-9], "log.csv.gz"))
    with pytest.raises(StoreError, match=r"take \.gz off its name"):
        read_frame(write(tmp_path, TEXT.encode(), "plain.csv.gz"))


@pytest.mark.parametrize("letters", range(12, 60, 7))
def test_a_row_that_the_sample_cuts_off_does_not_count(tmp_path, monkeypatch, letters):
    monkeypatch.setattr(text_tables, "LETTERS_TRIED", letters)
    path = write(tmp_path, b"a;b, c;d\n" + b"1;2;3\n" * 10)
    assert read_frame(path).shape == (10, 3)


def test_a_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ifonly.data.text_tables.MOST_UNPACKED", 1000)
    path = tmp_path / "long.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 1_000_000))
    with pytest.raises(StoreError, match="unpacks to more than 100 times its size"):
        read_frame(path)


@given(st.lists(st.sampled_from(["", "x"]), max_size=9))
@settings(deadline=None, derandomize=True, max_examples=some(60))
def test_empty_rows_are_left_out_at_the_end_and_refused_elsewhere(tmp_path_factory, cells):
    path = write(tmp_path_factory.mktemp("rows"), ("a,b\n" + "".join(f"{cell},{cell}\n" for cell in cells)).encode())
    kept = cells[: max((place + 1 for place, cell in enumerate(cells) if cell), default=0)]
    if "" in kept:
        with pytest.raises(InputError, match=rf"row {kept.index('') + 1} \(line {kept.index('') + 2}\): is empty"):
            read_frame(path)
    else:
        assert read_frame(path)["a"].to_list() == kept
