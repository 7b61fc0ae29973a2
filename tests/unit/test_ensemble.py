import math
from dataclasses import astuple

import numpy as np
import pytest
import torch

from paperlib import devices
from paperlib.length import curves, ensemble, exact, kernel, theory
from paperlib.networks import laws

WIDTHS = [4, 9, 7, 3]
POLYGON = curves.circle(4, sides=7) + 0.3
OPTIONS = [
    {},
    {"curve": POLYGON},
    {"curve": curves.segment(4), "bias_var": 1.0},
    {"output": "linear-he"},
    {"output": "relu", "curve": POLYGON},
    {"slope": 0.2},
    {"slope": -0.5, "output": "relu"},
    {"slope": 1.0, "scale": 0.7},
    {"scale": 1.5, "bias_var": 0.0},
    *({"weight_law": law, "curve": POLYGON} for law in laws.LAWS),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("PAPERLIB_PROGRESS", "off")


def same(left, right):
    return all(map(torch.equal, astuple(left), astuple(right)))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_sample_measures_what_exact_finds_for_its_members(options):
    sample = ensemble.sample_images(WIDTHS, 12, 5, **options)
    for index in range(12):
        net, curve = ensemble.member(WIDTHS, 5, index, **options)
        image = exact.trace(net, curve)
        unit = image.positions[-1]
        steps, gaps = exact.polygon_steps(image.outputs), image.positions.diff()
        energy = (steps**2 / gaps)[gaps > 0].sum() / unit
        first = image.outputs[:, 0]
        got = [values[index].item() for values in astuple(sample)]
        expected = [image.distortion, energy, image.pieces, (first.max() - first.min()) / unit]
        assert got == pytest.approx([float(value) for value in expected], rel=1e-10, abs=1e-13)


def test_members_beyond_the_first_block_are_found():
    nets = 300  # a block holds 256
    lengths = ensemble.sample_lengths([2, 3, 2], nets, 1)
    net, curve = ensemble.member([2, 3, 2], 1, nets - 1)
    assert exact.trace(net, curve).distortion.item() == pytest.approx(lengths[-1].item(), rel=1e-10)
    assert len(lengths.unique()) > 200


def test_the_result_is_float64_on_the_cpu_with_one_number_a_network():
    for values in astuple(ensemble.sample_images(WIDTHS, 3, 0, precision="single")):
        assert values.shape == (3,)
        assert values.dtype == torch.float64
        assert values.device.type == "cpu"


def test_single_precision_draws_the_same_networks():
    single = ensemble.sample_lengths(WIDTHS, 50, 5, precision="single")
    double = ensemble.sample_lengths(WIDTHS, 50, 5)
    torch.testing.assert_close(single, double, rtol=1e-5, atol=1e-7)
    assert not torch.equal(single, double)


def test_same_seed_same_sample():
    assert same(ensemble.sample_images(WIDTHS, 20, 7), ensemble.sample_images(WIDTHS, 20, 7))


def test_another_seed_gives_other_networks_and_other_curves():
    first, second = (ensemble.sample_images(WIDTHS, 20, seed) for seed in (7, 8))
    assert not (first.lengths == second.lengths).any()
    (_, left), (_, right) = (ensemble.member(WIDTHS, seed, 0) for seed in (7, 8))
    assert not (left == right).any()


def test_a_longer_sample_begins_with_the_shorter_one():
    short, long = (ensemble.sample_lengths([2, 3, 2], nets, 7) for nets in (10, 600))
    assert torch.equal(long[:10], short)


def test_neither_threads_nor_the_memory_cap_change_the_sample():
    widths, nets = [5, 100, 100, 5], 200  # several blocks
    default = ensemble.sample_images(widths, nets, 3)
    assert same(ensemble.sample_images(widths, nets, 3, threads=1), default)
    assert same(ensemble.sample_images(widths, nets, 3, threads=2), default)
    assert same(ensemble.sample_images(widths, nets, 3, max_bytes=15_000_000), default)


def test_a_wide_layer_fits_into_the_default_cap():
    plan = ensemble._Plan.make([5, 1500, 5], 0, torch.device("cpu"), "gaussian", {})
    assert plan.block_bytes < 2**28


def test_a_curve_of_many_vertices_is_held_once_and_counted():
    # a block holds 256 networks, whose copies of such a curve would take 120 MB
    polygon, widths, cap = curves.circle(3, sides=20_000), [3, 4, 2], 2**24
    plan = ensemble._Plan.make(widths, 0, torch.device("cpu"), polygon, {})
    assert plan.curves(0).shape == (1, 20_001, 3)
    assert 20_001 * (2 * 3 * 8 + 8) < plan.block_bytes < cap
    lengths = ensemble.sample_lengths(widths, 2, 0, curve=polygon, max_bytes=cap)
    for index in range(2):
        net, points = ensemble.member(widths, 0, index, curve=polygon)
        assert lengths[index].item() == pytest.approx(exact.trace(net, points).distortion.item())


def test_torch_keeps_its_own_thread_count():
    before = torch.get_num_threads()
    ensemble.sample_lengths(WIDTHS, 20, 3, threads=2)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("options", OPTIONS[:7], ids=str)
def test_the_gpu_s_batched_operations_agree_with_the_kernel(options, monkeypatch):
    on_cpu = ensemble.sample_images(WIDTHS, 12, 5, **options)

    def on_device(plan, block, dtype):
        return ensemble._on_device(plan, block, dtype, max_bytes=2**18)

    monkeypatch.setattr(ensemble, "_on_cpu", on_device)
    batched = ensemble.sample_images(WIDTHS, 12, 5, **options)
    for left, right in zip(astuple(batched), astuple(on_cpu), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-13)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_measures_what_exact_finds_for_its_members():
    lengths = ensemble.sample_lengths(WIDTHS, 12, 5, device="cuda")
    for index in range(12):
        net, curve = ensemble.member(WIDTHS, 5, index, device="cuda")
        expected = exact.trace(net, curve).distortion.item()
        assert lengths[index].item() == pytest.approx(expected, rel=1e-10, abs=1e-13)


# ---- the mean and its mutations -------------------------------------------------------------

CELLS = [[5, 20, 5], [5, *[20] * 5, 5], [5, *[5] * 5, 5], [10, 30, 12, 30, 2], [3, 8, 1]]


def off_by(lengths, widths, mean):
    """Distance from the mean in standard errors, by the ceiling of the standard deviation."""
    ceiling = math.sqrt(theory.variance_bound(widths).sharp / len(lengths))
    return (lengths.mean().item() - mean) / ceiling


def mean_is_confirmed(widths, nets=4000, seed=11, **options):
    lengths = ensemble.sample_lengths(widths, nets, seed, **options)
    return abs(off_by(lengths, widths, theory.mean_length(widths))) < 3.5


@pytest.mark.parametrize("widths", CELLS, ids=str)
@pytest.mark.parametrize("curve", ["gaussian", "closed"])
def test_mean_is_the_exact_product(widths, curve):
    points = curves.circle(widths[0], sides=16) if curve == "closed" else curve
    assert mean_is_confirmed(widths, curve=points)


@pytest.mark.parametrize("output", laws.OUTPUTS)
def test_mean_follows_the_convention_of_the_last_layer(output):
    widths = [5, 10, 10, 3]
    lengths = ensemble.sample_lengths(widths, 4000, 3, output=output)
    z = off_by(lengths, widths, theory.mean_length(widths, output=output))
    assert abs(z) < 3.5 * math.sqrt(2)  # a He layer doubles the ceiling of the variance


@pytest.mark.parametrize("options", [{"slope": 0.3}, {"scale": 0.8}, {"bias_var": 25.0}], ids=str)
def test_mean_follows_slope_and_scale_and_not_the_biases(options):
    widths = [5, 10, 10, 3]
    lengths = ensemble.sample_lengths(widths, 4000, 3, **options)
    mean = theory.mean_length(widths, **{k: v for k, v in options.items() if k != "bias_var"})
    assert abs(off_by(lengths, widths, mean)) < 3.5


@pytest.mark.parametrize("widths", CELLS, ids=str)
def test_mean_energy_is_the_ratio_of_the_dimensions(widths):
    sample = ensemble.sample_images(widths, 4000, 13)
    spread = sample.energies.std().item() / math.sqrt(4000)
    assert abs(sample.energies.mean().item() - widths[-1] / widths[0]) < 3.5 * spread
    assert (sample.lengths**2 <= sample.energies * (1 + 1e-12)).all()
    assert (sample.spans <= sample.lengths * (1 + 1e-12)).all()


def test_mutation_a_kernel_that_skips_breakpoints_is_found(monkeypatch):
    widths = [5, *[20] * 3, 5]
    # not compiled, so that a part of it can be replaced
    monkeypatch.setattr(kernel, "trace_block", kernel.trace_block.py_func)
    assert mean_is_confirmed(widths, nets=1000)
    monkeypatch.setattr(kernel, "_count_zeros", lambda left, right: 0)
    assert not mean_is_confirmed(widths, nets=1000)


@pytest.mark.parametrize("widths", CELLS[:2], ids=str)
def test_mutation_an_output_layer_times_root_two_is_found(widths, monkeypatch):
    variances = laws.layer_variances

    def doubled_output(*arguments, **options):
        *hidden, last = variances(*arguments, **options)
        return [*hidden, 2 * last]

    monkeypatch.setattr(laws, "layer_variances", doubled_output)
    assert not mean_is_confirmed(widths)


def test_mutation_a_biased_sampler_is_found(monkeypatch):
    widths, draw = [5, *[20] * 5, 5], laws.draw

    def shifted(rng, law, shape, variance):
        return draw(rng, law, shape, variance) + 0.1 * math.sqrt(variance)

    def too_wide(rng, law, shape, variance):
        return draw(rng, law, shape, 1.05 * variance)

    def one_for_all(rng, law, shape, variance):
        return draw(rng, law, (1, *shape[1:]), variance).expand(shape).contiguous()

    for mutant in (shifted, too_wide, one_for_all):
        monkeypatch.setattr(laws, "draw", mutant)
        assert not all(mean_is_confirmed(widths, seed=seed) for seed in (11, 12, 13))


# ---- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"widths": [5]}, "at least two integers"),
        ({"widths": [5, 0, 5]}, "integer of at least 1"),
        ({"nets": 0}, "nets must be an integer of at least 1"),
        ({"nets": 2.5}, "nets must be an integer of at least 1"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"curve": "gausian"}, "did you mean 'gaussian'"),
        ({"curve": np.zeros((3, 4))}, "length 0"),
        ({"curve": np.ones((3, 2))}, r"shape \(K, 4\)"),
        ({"bias_var": -1.0}, "at least 0"),
        ({"weight_law": "normal"}, "Allowed: 'gaussian'"),
        ({"output": "he"}, "Allowed: 'linear'"),
        ({"slope": math.nan}, "finite"),
        ({"slope": 1e200}, "slope must be .* at most 1e\\+75"),
        ({"scale": -1.0}, "at least 0"),
        ({"scale": 1e200}, "at most 1e\\+75"),
        ({"scale": 1e50}, "beyond the range of float32"),
        ({"scale": 1e29, "precision": "single"}, "not finite numbers"),
        ({"scale": 1e-43}, "beyond the range of float32"),
        ({"curve": np.array([[0.0] * 4, [1e-200] * 4])}, "too short for float64"),
        ({"precision": "half"}, "Allowed: 'double', 'single'"),
        ({"threads": 0}, "threads must be an integer of at least 1"),
        ({"max_bytes": 1000}, "max_bytes = 1000 is below the"),
        ({"max_bytes": 1e9}, "max_bytes must be an integer"),
        ({"max_bytes": 2**20, "curve": curves.circle(4, sides=20_000)}, "along such a curve"),
        ({"device": "gpu"}, "allowed: cpu, cuda"),
        ({"device": "cuda:99"}, "not available"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_values_are_refused(changed, message):
    arguments = {"widths": WIDTHS, "nets": 2, "seed": 0} | changed
    with pytest.raises(ValueError, match=message):
        ensemble.sample_lengths(**arguments)


def test_a_device_without_float64_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "resolve", torch.device)
    with pytest.raises(ValueError, match="float64, which 'mps' lacks: use 'cpu'"):
        ensemble.sample_lengths(WIDTHS, 2, 0, device="mps")


def test_a_member_refuses_what_a_sample_refuses():
    with pytest.raises(TypeError, match="unknown option 'slopes'; did you mean 'slope'"):
        ensemble.member(WIDTHS, 0, 0, slopes=0.3)
    with pytest.raises(ValueError, match="Allowed: 'double', 'single'"):
        ensemble.member(WIDTHS, 0, 0, precision="half")


def test_a_member_needs_an_index_that_is_there():
    with pytest.raises(ValueError, match="index must be an integer of at least 0"):
        ensemble.member(WIDTHS, 0, -1)
