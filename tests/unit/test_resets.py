import pytest
import torch
from torch import nn

from paperlib.robustness.resets import canonical, fresh, reinitialise, rerandomise


def build(seed: int) -> nn.Sequential:
    """A network with BatchNorm that draws from the global generator, as foreign ones do."""
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def state(start: int) -> dict[str, torch.Tensor]:
    """A state of the network in which every number occurs once."""
    shapes = {name: t.shape for name, t in build(0).state_dict().items()}
    values, at = {}, start
    for name, shape in shapes.items():
        values[name] = torch.arange(at, at + shape.numel(), dtype=torch.float64).reshape(shape)
        at += shape.numel()
    return values


NORM = ["1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"]


def differing(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> set[str]:
    assert list(a) == list(b)
    return {name for name in a if not torch.equal(a[name], b[name])}


def test_only_the_named_tensors_come_from_the_source():
    final, start = state(0), state(1000)
    reset = reinitialise(final, start, ["0.weight", "3.bias"])
    assert differing(reset, final) == {"0.weight", "3.bias"}
    assert torch.equal(reset["0.weight"], start["0.weight"])
    assert torch.equal(reset["3.bias"], start["3.bias"])


def test_statistics_of_a_batchnorm_are_reset_with_it_or_kept():
    final, start = state(0), state(1000)
    assert differing(reinitialise(final, start, NORM), final) == set(NORM)
    kept = reinitialise(final, start, NORM, buffers="keep")
    assert differing(kept, final) == {"1.weight", "1.bias"}
    with pytest.raises(ValueError, match="did you mean 'keep'"):
        reinitialise(final, start, NORM, buffers="keeps")


def test_results_share_no_memory_with_what_was_given():
    net = build(0)
    final, start = net.state_dict(), build(1).state_dict()
    reset = reinitialise(final, start, ["0.weight"])
    given = {name: t.clone() for name, t in final.items()}, start["0.weight"].clone()
    for tensor in reset.values():
        tensor.add_(1)
    assert not differing(dict(final), given[0])
    assert torch.equal(start["0.weight"], given[1])
    assert not any(tensor.requires_grad for tensor in reset.values())


def test_the_result_keeps_the_precision_of_the_state():
    half = {name: t.to(torch.float16) for name, t in state(1000).items()}
    assert reinitialise(state(0), half, ["0.weight"])["0.weight"].dtype == torch.float64


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "_orig_mod.module.", "module.module."])
def test_prefixes_of_wrappers_are_stripped_from_states_and_names(prefix):
    final, start = state(0), state(1000)
    wrapped = {prefix + name: t for name, t in final.items()}
    expected = reinitialise(final, start, ["0.weight"])
    for given, source, name in [
        (wrapped, start, "0.weight"),
        (final, {prefix + n: t for n, t in start.items()}, "0.weight"),
        (final, start, prefix + "0.weight"),
    ]:
        assert not differing(reinitialise(given, source, [name]), expected)


def test_real_wrappers_are_seen_through():
    net = build(0)
    compiled = torch.compile(nn.Sequential(torch.compile(net), nn.ReLU()))
    assert any(name.startswith("_orig_mod.0._orig_mod.") for name in compiled.state_dict())
    assert list(canonical(compiled.state_dict())) == [f"0.{name}" for name in net.state_dict()]
    assert list(canonical(nn.DataParallel(net).state_dict())) == list(net.state_dict())


def test_a_submodule_called_module_keeps_its_name():
    assert list(canonical({"module.weight": 1, "head.weight": 2})) == [
        "module.weight",
        "head.weight",
    ]


def test_a_name_with_and_without_its_prefix_is_refused():
    with pytest.raises(ValueError, match=r"prefix: a\.weight;"):
        canonical({"a.weight": 1, "_orig_mod.a.weight": 2})


def test_missing_unknown_and_misshapen_tensors_are_named():
    source = state(1000)
    del source["3.bias"]
    source["4.weight"] = torch.zeros(2)
    source["0.bias"] = torch.zeros(7)
    with pytest.raises(ValueError) as error:
        reinitialise(state(0), source, ["0.weight"])
    for part in (
        "missing: 3.bias",
        "unknown: 4.weight",
        "of another shape: 0.bias (7,) for (5,)",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["0.weight", "9.weight"], r"no tensor is named 9\.weight\. There are: 0\.weight"),
        ([], "at least one"),
        ("0.weight", "not the text"),
    ],
)
def test_names_of_no_tensor_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        reinitialise(state(0), state(1000), names)


def test_rerandomised_tensors_are_those_of_a_network_built_anew():
    final = build(0).state_dict()
    drawn = rerandomise(build, ["0.weight", "0.bias"], 3, final, draw=1)
    assert differing(drawn, dict(final)) == {"0.weight", "0.bias"}
    assert torch.equal(drawn["0.weight"], fresh(build, 3, 1)["0.weight"])


def test_a_seed_and_a_draw_fix_the_new_weights():
    first = fresh(build, 3)["0.weight"]
    assert torch.equal(first, fresh(build, 3)["0.weight"])
    assert not torch.equal(first, fresh(build, 4)["0.weight"])
    assert not torch.equal(first, fresh(build, 3, 1)["0.weight"])
    with pytest.raises(ValueError, match="seed"):
        fresh(build, -1)


def test_the_seed_of_training_does_not_give_back_its_own_initialisation():
    def seeded(seed: int) -> nn.Linear:
        torch.manual_seed(seed)
        return nn.Linear(4, 5)

    with torch.random.fork_rng(devices=[]):
        initial = seeded(0).weight
    assert not torch.equal(fresh(seeded, 0)["weight"], initial)


def test_building_anew_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    fresh(build, 3)
    assert torch.equal(before, torch.get_rng_state())


def test_new_weights_follow_the_law_of_the_builder_and_not_of_reset_parameters():
    def scaled(seed: int) -> nn.Linear:
        linear = nn.Linear(100, 200)
        nn.init.normal_(linear.weight, std=3.0)
        return linear

    assert fresh(scaled, 0)["weight"].std().item() == pytest.approx(3.0, rel=0.03)
