import torch
from hypothesis import given
from hypothesis import strategies as st

from paperlib.robustness.resets import canonical, reinitialise

NAMES = ("stem.weight", "stem.bias", "norm.running_mean", "module.weight", "head.weight")
subsets = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)
prefixes = st.lists(st.sampled_from(["module.", "_orig_mod."]), max_size=3).map("".join)


@st.composite
def states(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    """A state dict with the names NAMES, of shape (2,) each."""
    numbers = st.lists(st.floats(-9, 9), min_size=2, max_size=2)
    return {name: torch.tensor(draw(numbers), dtype=torch.float64) for name in NAMES}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


@given(states(), states(), subsets)
def test_each_tensor_comes_from_where_it_should_and_nothing_is_written(final, start, names):
    before = [{n: t.clone() for n, t in state.items()} for state in (final, start)]
    reset = reinitialise(final, start, names)
    assert equal(reset, {n: (start if n in names else final)[n] for n in NAMES})
    assert equal(final, before[0])
    assert equal(start, before[1])


@given(states(), subsets)
def test_a_reset_to_itself_changes_nothing(final, names):
    assert equal(reinitialise(final, final, names), final)


@given(states(), states(), subsets)
def test_a_second_reset_changes_nothing_more_and_a_third_undoes_it(final, start, names):
    once = reinitialise(final, start, names)
    assert equal(reinitialise(once, start, names), once)
    assert equal(reinitialise(once, final, names), final)


@given(states(), states(), subsets, subsets)
def test_resets_of_two_layers_make_the_joint_reset_in_either_order(final, start, a, b):
    joint = reinitialise(final, start, [*a, *b])
    assert equal(reinitialise(reinitialise(final, start, a), start, b), joint)
    assert equal(reinitialise(reinitialise(final, start, b), start, a), joint)


@given(states(), states(), subsets, prefixes)
def test_prefixes_make_no_difference(final, start, names, prefix):
    wrapped = {prefix + name: tensor for name, tensor in final.items()}
    assert equal(canonical(wrapped), final)
    expected = reinitialise(final, start, names)
    assert equal(reinitialise(wrapped, start, [prefix + n for n in names]), expected)
