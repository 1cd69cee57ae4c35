"""Cuts: a network as two or three parts, which parties of split learning run one after the other.

A network is traced once (torch.fx), which every network without branches that depend on its input allows. A
part ends where a single tensor carries all that follows: at the last such place before the next layer, so what
follows a layer without weights of its own (activation, pooling) stays with it. Layers are modules that own
weights, in the order in which they run; a normalisation belongs to the layer before it.

The parts share the network's own weights and are called with whatever is bound to them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast
from weakref import WeakKeyDictionary

from torch import Tensor, fx, nn

from fedaudit.fl.families.layers import NORMALISATION
from fedaudit.fl.model import Net, State, unwrap
from fedaudit.fl.runtime.errors import UserError, quote_error


@dataclass(frozen=True)
class Part:
    """What one party runs: a module of one input and one output, and the names of its weights and buffers."""

    module: nn.Module
    names: frozenset[str]

    def pick(self, state: Mapping[str, Tensor]) -> State:
        """The part of a state that is this part's, in the state's order."""
        return {k: v for k, v in state.items() if k in self.names}


@dataclass(frozen=True)
class Cut:
    """A network in parts, input side first; without a `head` the middle goes on to the end."""

    body: Part
    middle: Part
    head: Part | None


_CUTS: WeakKeyDictionary[nn.Module, dict[tuple[int, bool], Cut]] = WeakKeyDictionary()


def cut_network(net: Net, layers: int, keeps_head: bool = False) -> Cut:
    """Cut after so many layers and, with `keeps_head`, once more before the last layer.

    Raises UserError where the network has too few layers, cannot be traced, or no single tensor passes there.
    """
    known = _CUTS.setdefault(net, {})
    if (layers, keeps_head) not in known:
        known[layers, keeps_head] = _cut(net, layers, keeps_head)
    return known[layers, keeps_head]


def _cut(net: Net, layers: int, keeps_head: bool) -> Cut:
    whole = unwrap(net)
    if any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in whole.modules()):
        raise UserError(
            f"{type(whole).__name__} cannot be cut: a party runs its part twice, and dropout would draw anew",
            hint="use a network without dropout",
        )
    try:
        traced = fx.symbolic_trace(whole)
    except Exception as error:  # whatever a user's own forward() does with a value that is none
        raise UserError(
            f"{type(whole).__name__} cannot be cut: {quote_error(error)}",
            hint="split learning takes networks whose forward() has no branch that depends on its input",
        ) from error
    nodes = [n for n in traced.graph.nodes if n.op not in ("get_attr", "output")]
    places = [i for i, n in enumerate(nodes) if _is_layer(whole, n)]
    most = len(places) - (2 if keeps_head else 1)
    if not 1 <= layers <= most:
        raise UserError(
            f"method.cut: {layers}, and clients can hold 1 to {most} of the {len(places)} layers of "
            f"{type(whole).__name__}" + (" that keep the head" if keeps_head else ""),
            hint="choose another cut, or a deeper model",
            key="method.cut",
        )
    output = next(n for n in traced.graph.nodes if n.op == "output")
    ends = [_find_end(nodes, places[layers - 1], places[layers], output, whole)]
    if keeps_head:
        ends.append(_find_end(nodes, places[-2], places[-1], output, whole))
        if ends[0] >= ends[1]:
            raise UserError(
                f"method.cut: {layers} leaves no layer to the server", hint="choose a lower cut", key="method.cut"
            )
    last = nodes.index(cast(fx.Node, output.args[0]))
    bounds = [0, *ends, last]
    parts = [_take(traced, nodes, a, b) for a, b in pairwise(bounds)]
    rest = frozenset(whole.state_dict()) - frozenset().union(*(p.names for p in parts))
    parts[1] = Part(parts[1].module, parts[1].names | rest)  # what no example passes
    return Cut(parts[0], parts[1], parts[2] if keeps_head else None)


def _is_layer(whole: nn.Module, node: fx.Node) -> bool:
    """Whether weights are used there."""
    if node.op != "call_module":
        return any(a.op == "get_attr" for a in node.all_input_nodes)
    module = whole.get_submodule(str(node.target))
    return not isinstance(module, NORMALISATION) and any(True for _ in module.parameters())


def _find_end(nodes: Sequence[fx.Node], layer: int, following: int, output: fx.Node, whole: nn.Module) -> int:  # noqa: ARG001
    """The last place from a layer to before the next one, after which everything comes of that one tensor."""
    order = {n: i for i, n in enumerate(nodes)}
    for i in range(following - 1, layer - 1, -1):
        crossing = {n for n in nodes[: i + 1] if any(order.get(u, len(nodes)) > i for u in n.users)}
        if crossing == {nodes[i]}:
            return i
    raise UserError(
        f"method.cut: more than one tensor passes between {nodes[layer].name} and {nodes[following].name} of "
        f"{type(whole).__name__}",
        hint="cut after another layer, such as the last of a block",
        key="method.cut",
    )


def _take(traced: fx.GraphModule, nodes: Sequence[fx.Node], first: int, last: int) -> Part:
    """The nodes after `first`, whose value is the input, up to `last`, whose value is the output."""
    graph, names = fx.Graph(), set[str]()
    copies: dict[fx.Node, fx.Node] = {nodes[first]: graph.placeholder("x")}

    def copy(node: fx.Node) -> fx.Node:
        if node not in copies and node.op == "get_attr":
            names.add(str(node.target))
            copies[node] = graph.node_copy(node)
        return copies[node]

    own = traced.state_dict()
    for node in nodes[first + 1 : last + 1]:
        if node.op == "call_module":
            names |= {k for k in own if k.startswith(f"{node.target}.")}
        copies[node] = graph.node_copy(node, copy)
    graph.output(copies[nodes[last]])
    return Part(fx.GraphModule(traced, graph), frozenset(names))
