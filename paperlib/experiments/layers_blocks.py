"""Fig. 10 of `layers`: the residual blocks, drawn from the modules that the library runs (App. A).

A block is traced, so boxes and arrows are those of its own `forward`; nothing is drawn by hand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import fx, nn

from paperlib.networks.resnet import ResidualBlock, residual_blocks, resnet
from paperlib.report import style

IDENTITY, DOWNSAMPLE = "identity skip", "downsample skip"
KINDS = {IDENTITY: "stage2.resblk2", DOWNSAMPLE: "stage2.resblk1"}
SHAPES = {"basic": False, "bottleneck": True}

INPUT, SUM = "x", "+"
# In steps of the column: a box's width and half its height, the radius of the sum's circle, and
# where the skip's column is.
WIDTH, HALF, SUM_RADIUS, SIDE = 0.9, 0.3, 0.16, 1.12
_COLOURS = {nn.Conv2d: "#D6E6F2", nn.ReLU: "#FBE9C8", nn.BatchNorm2d: "#D5EDE5"}


@dataclass(frozen=True)
class Node:
    """One step of a block: a module, its input ("x"), or the sum ("+").

    `sources` are the names of the nodes that it takes its inputs from.
    """

    name: str
    label: str
    sources: tuple[str, ...] = ()
    module: nn.Module | None = field(default=None, compare=False)


def nodes(block: nn.Module) -> list[Node]:
    """The steps of a block in the order in which they run; identities are left out."""
    traced = fx.symbolic_trace(block)
    found: dict[fx.Node, Node] = {}
    alias: dict[fx.Node, fx.Node] = {}  # an identity's output is its input

    def sources(step: fx.Node) -> tuple[str, ...]:
        return tuple(found[alias.get(one, one)].name for one in step.all_input_nodes)

    for step in traced.graph.nodes:
        if step.op == "placeholder":
            found[step] = Node(INPUT, "input")
        elif step.op == "call_module":
            module = traced.get_submodule(step.target)
            if isinstance(module, nn.Identity):
                (before,) = step.all_input_nodes
                alias[step] = alias.get(before, before)
            else:
                found[step] = Node(str(step.target), label(module), sources(step), module)
        elif step.op == "call_function":
            found[step] = Node(SUM, SUM, sources(step))
    return list(found.values())


def label(module: nn.Module) -> str:
    """What is written into a module's box."""
    if isinstance(module, nn.Conv2d):
        height, width = module.kernel_size
        stride = f", /{module.stride[0]}" if module.stride[0] > 1 else ""
        return f"{height}×{width} conv{stride}\n{module.in_channels} → {module.out_channels}"
    if isinstance(module, nn.BatchNorm2d):
        return f"batch norm\n{module.num_features}"
    return type(module).__name__


def blocks(base_width: int, batch_norm: bool) -> dict[tuple[int, str, str], ResidualBlock]:
    """The blocks of the figure by version (2, 1), shape (of SHAPES) and kind of skip (of KINDS)."""
    found = {}
    for version in (2, 1):
        for shape, bottleneck in SHAPES.items():
            net = resnet(
                (2, 2),
                bottleneck=bottleneck,
                base_width=base_width,
                batch_norm=batch_norm,
                version=version,
            )
            of_net = residual_blocks(net)
            found |= {(version, shape, kind): of_net[name] for kind, name in KINDS.items()}
    return found


def table(drawn: Mapping[tuple[int, str, str], nn.Module]) -> pd.DataFrame:
    """The steps of all blocks, a row each: where its inputs come from, and its parameters."""
    rows = [
        {
            "version": version,
            "shape": shape,
            "skip": kind,
            "step": node.name,
            "what": node.label.replace("\n", ", "),
            "sources": " ".join(node.sources),
            "parameters": _parameters(node.module),
        }
        for (version, shape, kind), block in drawn.items()
        for node in nodes(block)
    ]
    return pd.DataFrame(rows)


def _parameters(module: nn.Module | None) -> int:
    return 0 if module is None else sum(p.numel() for p in module.parameters())


def draw(drawn: Mapping[tuple[int, str, str], nn.Module]) -> Figure:
    """A diagram a block: a row a version, a column a shape and kind of skip."""
    versions = list(dict.fromkeys(version for version, _, _ in drawn))
    columns = list(dict.fromkeys(key[1:] for key in drawn))
    tallest = [max(len(_path(nodes(b))) for k, b in drawn.items() if k[0] == v) for v in versions]
    heights = [0.42 * steps + 0.4 for steps in tallest]
    fig = Figure(figsize=(style.PAGE, sum(heights)))
    axes = fig.subplots(len(versions), len(columns), squeeze=False, height_ratios=heights)
    for row, version, steps in zip(axes, versions, tallest, strict=True):
        for ax, (shape, kind) in zip(row, columns, strict=True):
            _draw_block(ax, nodes(drawn[version, shape, kind]), steps)
            ax.set_title(f"{shape}, {kind}", fontsize=style.SMALL, loc="left")
        row[0].text(-0.72, -(steps - 1) / 2, f"version {version}", rotation=90, va="center")
    return fig


def _path(steps: Sequence[Node]) -> list[Node]:
    """The longest way from the input to the output: all steps but those of the skip."""
    longest: dict[str, list[Node]] = {}
    for node in steps:
        ways = [longest[source] for source in node.sources]
        longest[node.name] = [*max(ways, key=len, default=[]), node]
    return longest[steps[-1].name]


def _draw_block(ax: Axes, steps: Sequence[Node], height: int) -> None:
    """The longest way as a column, what leaves it to the right of it."""
    path = _path(steps)
    at = {node.name: (0.0, -float(i)) for i, node in enumerate(path)}
    aside = [node for node in steps if node.name not in at]
    for i, node in enumerate(aside, start=1):
        top, bottom = at[path[0].name][1], at[SUM][1]
        at[node.name] = (SIDE, top + (bottom - top) * i / (len(aside) + 1))
    down = set(pairwise(node.name for node in path))
    for node in steps:
        gap = SUM_RADIUS if node.name == SUM else HALF
        for source in node.sources:
            _arrow(ax, at[source], at[node.name], (source, node.name) in down, gap)
    for node in steps:
        _box(ax, at[node.name], node)
    x, y = at[steps[-1].name]
    _line(ax, [(x, y), (x, y - 0.75)])
    ax.set(xlim=(-0.75, 1.7), ylim=(-height + 0.1, 0.35))
    ax.axis("off")


def _arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], adjacent: bool, gap: float
) -> None:
    """An arrow down a column, or out to the side, down, and back to the sum.

    It ends `gap` before the middle of its target, or SUM_RADIUS before that of the sum.
    """
    fork = [(0.0, start[1] - 0.5), (SIDE, start[1] - 0.5)]  # below the box that it starts from
    if adjacent or start[0] == end[0] == SIDE:
        ways = [start, (end[0], end[1] + gap)]
    elif end[0] == SIDE:
        ways = [*fork, (SIDE, end[1] + gap)]
    else:
        out = [start] if start[0] == SIDE else fork
        ways = [*out, (SIDE, end[1]), (SUM_RADIUS, end[1])]
    _line(ax, ways)


def _line(ax: Axes, points: Sequence[tuple[float, float]]) -> None:
    """A line through `points` whose last piece is an arrow."""
    look = {"color": style.GREY, "linewidth": 0.9}
    if len(points) > 2:
        ax.plot(*zip(*points[:-1], strict=True), zorder=1, **look)
    head = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7, **look}
    ax.annotate("", points[-1], points[-2], arrowprops=head, zorder=1)


def _box(ax: Axes, at: tuple[float, float], node: Node) -> None:
    x, y = at
    text = {"ha": "center", "va": "center", "fontsize": style.SMALL - 1.5, "zorder": 3}
    if node.name == SUM:
        ax.plot(x, y, "o", markersize=12, color="white", markeredgecolor=style.BLACK, zorder=2)
        ax.text(x, y, SUM, **(text | {"fontsize": style.SMALL + 1}))
        return
    if node.name == INPUT:
        ax.text(x, y + 0.15, node.label, **text)
        return
    colour = next((c for kind, c in _COLOURS.items() if isinstance(node.module, kind)), "#EDEDED")
    ax.add_patch(
        FancyBboxPatch(
            (x - WIDTH / 2, y - HALF),
            WIDTH,
            2 * HALF,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=colour,
            edgecolor=style.GREY,
            linewidth=0.7,
            zorder=2,
        )
    )
    ax.text(x, y, node.label, linespacing=1.15, **text)
