"""Networks by name, and the layers that they are made of."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import nn

from paperlib.choices import check_choice
from paperlib.networks import resnet, vgg
from paperlib.networks.classifier import mlp
from paperlib.networks.fcn import fcn
from paperlib.networks.layer import Layer

__all__ = ["build", "fcn", "layers", "mlp", "resnet", "vgg"]

_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "fcn": fcn,
    "mlp": mlp,
    **{name: partial(vgg.vgg, convolutions=numbers) for name, numbers in vgg.VGGS.items()},
    **{name: partial(resnet.resnet, **shape) for name, shape in resnet.RESNETS.items()},
}


def build(name: str, **options: object) -> nn.Module:
    """A fresh network: "fcn", "mlp", or one that `vgg.VGGS` or `resnet.RESNETS` name.

    `options` are those of `fcn`, `mlp`, `vgg.vgg` and `resnet.resnet`, e.g. "resnet50" with
    `blocks=resnet.REMOVED`. Raises ValueError for an unknown name, with the nearest one.
    """
    return _BUILDERS[check_choice("network", name, _BUILDERS)](**options)


def layers(
    model: nn.Module, grouping: Mapping[str, Sequence[str]] | None = None
) -> dict[str, list[str]]:
    """The layers of a network, in order: name to the parameters and buffers that it owns.

    Tensor names are those of `model.state_dict()`. By default the layers are the modules marked as
    `layer.Layer`, under their paths in the network, e.g. `stage2.resblk1`; in a network without
    any, `layer1`, `layer2`, … are the leaf modules that have parameters. `grouping` maps a layer's
    name to the prefixes of module names that it consists of, e.g. `{"stem": ["conv1", "bn1"], …}`.

    Raises ValueError if a prefix matches nothing, or if a tensor has two owners or none.
    """
    tensors = model.state_dict(keep_vars=True)
    if grouping is None:
        marked = [name for name, module in model.named_modules() if isinstance(module, Layer)]
        leaves = [
            name
            for name, module in model.named_modules()
            if not any(module.children()) and any(True for _ in module.parameters())
        ]
        grouping = {name: [name] for name in marked} or {
            f"layer{i}": [name] for i, name in enumerate(leaves, start=1)
        }

    owner: dict[str, str] = {}  # tensor's name -> layer
    holder: dict[int, str] = {}  # tensor's identity -> layer; finds weights tied across layers
    for layer, prefixes in grouping.items():
        if isinstance(prefixes, str):
            raise ValueError(
                f"layer {layer!r}: give a list of prefixes, not the text {prefixes!r}."
            )
        for prefix in prefixes:
            owned = [n for n in tensors if not prefix or n == prefix or n.startswith(prefix + ".")]
            if not owned:
                top = sorted({n.rpartition(".")[0] or n for n in tensors})
                raise ValueError(
                    f"layer {layer!r}: no tensor's name starts with {prefix!r}. "
                    f"Modules with tensors: {', '.join(top)}."
                )
            for name in owned:
                other = owner.get(name) or holder.get(id(tensors[name]), layer)
                if name in owner or other != layer:
                    raise ValueError(
                        f"tensor {name!r} belongs to both {other!r} and {layer!r}: "
                        "give each tensor one layer."
                    )
                owner[name] = layer
                holder[id(tensors[name])] = layer

    orphans = [name for name in tensors if name not in owner]
    if orphans:
        raise ValueError(
            f"no layer owns {', '.join(orphans)}: give a grouping that covers every tensor."
        )
    return {layer: [name for name in tensors if owner[name] == layer] for layer in grouping}
