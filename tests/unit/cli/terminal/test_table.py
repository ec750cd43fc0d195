from pinnace.cli.terminal import Table


def test_columns_are_as_wide_as_their_widest_cell_and_nothing_trails() -> None:
    text = Table(("NAME", "AGE", "")).render([("a", "5s", ""), ("a-long-name", "3m", "x")])
    assert text == "NAME          AGE\na             5s\na-long-name   3m    x\n"


def test_rows_that_come_later_keep_the_widths_and_have_no_second_header() -> None:
    table = Table(("NAME", "AGE"))
    table.render([("a-long-name", "5s")])
    assert table.render([("b", "6s")]) == "b             6s\n"
    assert table.render([]) == ""


def test_without_headers_their_width_does_not_count() -> None:
    assert Table(("NAME", "AGE"), show_headers=False).render([("a", "5s")]) == "a   5s\n"


def test_cell_never_breaks_its_row() -> None:
    assert Table(("MESSAGE",)).render([("one\ntwo\x1b[31m",)]) == "MESSAGE\none two[31m\n"
