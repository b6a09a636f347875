import pytest
from bench.summary import Summary, summary


def test_the_median_is_the_middle_round_whatever_the_order() -> None:
    assert summary([5.0, 1.0, 3.0, 100.0, 2.0]) == Summary(median=3.0, least=1.0, most=100.0, count=5)


def test_of_an_even_count_it_lies_between_the_two_in_the_middle() -> None:
    found = summary([1.0, 2.0, 4.0, 100.0])
    assert found is not None
    assert found.median == 3.0


def test_no_rounds_have_no_summary() -> None:
    assert summary([]) is None


def test_spread_is_a_part_of_the_median() -> None:
    found = summary([90.0, 100.0, 120.0])
    assert found is not None
    assert found.spread == pytest.approx(0.3)
