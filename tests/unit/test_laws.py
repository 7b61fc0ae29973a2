import numpy as np
import pytest
import torch

from paperlib.networks import laws

KURTOSIS = {
    "gaussian": 3.0,
    "uniform": 1.8,
    "rademacher": 1.0,
    "laplace": 6.0,
    "sparse": 30.0,  # 3 / density
    "torch-default": 1.8,
}


@pytest.mark.parametrize("law", laws.LAWS)
def test_every_law_has_its_variance_and_shape(law):
    drawn = laws.draw(laws.generator(3), law, (1000, 400), 0.7)
    assert drawn.shape == (1000, 400) and drawn.dtype == torch.float32
    x = drawn.double().numpy()
    assert abs(x.mean()) < 5 * np.sqrt(0.7 / x.size)
    assert np.mean(x**2) == pytest.approx(0.7, rel=0.03)
    assert np.mean(x**4) / np.mean(x**2) ** 2 == pytest.approx(KURTOSIS[law], rel=0.03)
    assert np.mean(x**3) / 0.7**1.5 == pytest.approx(0, abs=0.2)


@pytest.mark.parametrize("law", laws.LAWS)
def test_a_seed_fixes_the_draw_and_another_changes_it(law):
    first, again, other = (laws.draw(laws.generator(seed), law, (100,), 1.0) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_generators_are_keyed_by_all_of_their_numbers():
    keys = [(1,), (2,), (1, 0), (1, 1), (0, 1), (1, 0, 0)]
    firsts = {torch.rand(1, generator=laws.generator(*key)).item() for key in keys}
    assert len(firsts) == len(keys)


def test_sparse_keeps_a_tenth_of_the_entries():
    x = laws.draw(laws.generator(0), "sparse", (100_000,), 1.0)
    assert x.ne(0).float().mean().item() == pytest.approx(0.1, abs=0.005)


def test_uniform_stays_within_the_range_of_pytorch():
    x = laws.draw(laws.generator(0), "torch-default", (100_000,), 1 / (3 * 25))
    assert 0.1999 < x.abs().max().item() <= 0.2000001


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [2 / 5, 2 / 20, 1 / 10]),
        ({"output": "linear-he"}, [2 / 5, 2 / 20, 2 / 10]),
        ({"output": "relu"}, [2 / 5, 2 / 20, 2 / 10]),
        ({"slope": 1.0}, [1 / 5, 1 / 20, 1 / 10]),
        ({"slope": 0.5, "output": "relu"}, [1.6 / 5, 1.6 / 20, 1.6 / 10]),
        ({"scale": 3.0}, [18 / 5, 18 / 20, 9 / 10]),
        ({"law": "torch-default", "slope": 0.5}, [1 / 15, 1 / 60, 1 / 30]),
    ],
)
def test_weight_variances_by_layer(options, expected):
    assert laws.layer_variances([5, 20, 10, 3], **options) == pytest.approx(expected)


def test_bias_variances_by_layer():
    assert laws.bias_variances([5, 20, 3], bias_var=0.5, scale=2.0) == [2.0, 2.0]
    assert laws.bias_variances([5, 20, 3], law="torch-default") == pytest.approx([1 / 15, 1 / 60])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laws.draw(laws.generator(0), "gausian", (3,), 1.0), "did you mean 'gaussian'"),
        (lambda: laws.layer_variances([5, 5], output="linear_he"), "did you mean 'linear-he'"),
        (lambda: laws.layer_variances([5, 5], law=None), "unknown weight law None"),
        (lambda: laws.layer_variances([5]), "at least two"),
        (lambda: laws.layer_variances(5), "sequence"),
        (lambda: laws.layer_variances([5, 0]), "at least 1"),
        (lambda: laws.layer_variances([5, 2.0]), "integer"),
        (lambda: laws.layer_variances([5, True]), "integer"),
        (lambda: laws.layer_variances([5, 5], scale=-1.0), "at least 0"),
        (lambda: laws.layer_variances([5, 5], slope=float("nan")), "finite"),
        (lambda: laws.generator(-1), "seed must be an integer of at least 0"),
        (lambda: laws.bias_variances([5, 5], bias_var=-0.1), "at least 0"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(call, message):
    with pytest.raises(ValueError, match=message):
        call()
