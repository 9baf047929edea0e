import gc

import pytest

from topologies.process import SELDOM, few_searches


@pytest.fixture(autouse=True)
def _as_before():
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def test_searches_are_few_inside_and_as_many_as_before_after_it():
    gc.set_threshold(700, 10, 10)
    with few_searches():
        assert gc.get_threshold() == SELDOM
    assert gc.get_threshold() == (700, 10, 10)


def test_after_an_error_too():
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ZeroDivisionError), few_searches():
        raise ZeroDivisionError
    assert gc.get_threshold() == (700, 10, 10)


def test_what_is_switched_off_stays_off_and_fewer_searches_stay_fewer():
    gc.set_threshold(0, 10, 5_000)
    with few_searches():
        assert gc.get_threshold() == (0, SELDOM[1], 5_000)
