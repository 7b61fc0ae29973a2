import pytest

from paperlib.benchmarks.memory import peak_growth

MIB = 2**20


@pytest.mark.slow
def test_peak_memory_depends_on_the_cap_and_not_on_the_number_of_networks():
    widths = [5, *[100] * 50, 5]
    cap = 600 * MIB
    few, many = peak_growth(widths, 20, cap), peak_growth(widths, 80, cap)
    assert abs(many - few) < 16 * MIB
    assert max(few, many) < cap
