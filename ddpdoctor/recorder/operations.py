"""The operations of torch.distributed: one row each, which the recorder and everybody else read."""

from dataclasses import dataclass
from enum import Enum

_CORE, _NN, _FUNCTIONAL = "core", "nn", "functional"


class Kind(Enum):
    """Who waits for whom."""

    ALL = "each rank of the group waits for each"
    FROM_ONE = "all wait for the one that gives"
    TO_ONE = "the one that gets waits for all"
    PAIR = "two ranks wait for each other"


@dataclass(frozen=True)
class Operation:
    """One row."""

    name: str
    kind: Kind = Kind.ALL
    places: tuple[str, ...] = (_CORE,)
    """Where it is: in torch.distributed, its ``nn.functional``, its functional collectives."""
    peer: bool = False
    """Whether the second argument is the rank that gives or gets."""
    output_first: bool = False
    """Whether the first argument is the output, and the second what the rank gives."""
    fills: tuple[int, str] | None = None
    """Position and name of the argument that is equal on all ranks afterwards."""
    reduces: bool = False
    """Whether it takes ``op``."""
    one_size: bool = False
    """Whether its tensors have one size on all ranks."""


_EVERYWHERE = (_CORE, _NN, _FUNCTIONAL)
_FROM_ONE, _TO_ONE, _PAIR = Kind.FROM_ONE, Kind.TO_ONE, Kind.PAIR
OPERATIONS = (
    Operation("all_reduce", places=_EVERYWHERE, fills=(0, "tensor"), reduces=True, one_size=True),
    Operation("all_reduce_coalesced", fills=(0, "tensors"), reduces=True),
    Operation("broadcast", _FROM_ONE, places=_EVERYWHERE, peer=True, fills=(0, "tensor"), one_size=True),
    Operation("reduce", _TO_ONE, places=(_CORE, _NN), peer=True, reduces=True, one_size=True),
    Operation("barrier"),
    Operation("monitored_barrier"),
    Operation("all_gather", places=(_CORE, _NN), output_first=True, fills=(0, "tensor_list"), one_size=True),
    Operation("all_gather_into_tensor", output_first=True, fills=(0, "output_tensor"), one_size=True),
    Operation("_all_gather_base", places=(_CORE, _NN), output_first=True, one_size=True),
    Operation("all_gather_coalesced", output_first=True, fills=(0, "output_tensor_lists")),
    Operation("all_gather_single", output_first=True),
    Operation("all_gather_tensor", places=(_FUNCTIONAL,), output_first=True),
    Operation("gather", _TO_ONE, places=(_CORE, _NN), one_size=True),
    Operation("scatter", _FROM_ONE, places=(_CORE, _NN)),
    Operation("all_to_all", places=(_CORE, _NN), output_first=True),
    Operation("all_to_all_single", places=_EVERYWHERE, output_first=True),
    Operation("reduce_scatter", places=(_CORE, _NN), output_first=True, reduces=True, one_size=True),
    Operation(
        "reduce_scatter_tensor", places=(_CORE, _FUNCTIONAL), output_first=True, reduces=True, one_size=True
    ),
    Operation("_reduce_scatter_base", output_first=True, reduces=True),
    Operation("reduce_scatter_single", output_first=True, reduces=True),
    *(Operation(name, _PAIR, peer=True) for name in ("send", "recv", "isend", "irecv")),
    *(Operation(name, _PAIR) for name in ("batch_isend_irecv", "send_object_list", "recv_object_list")),
    Operation("all_gather_object", output_first=True, fills=(0, "object_list")),
    Operation("gather_object", _TO_ONE),
    Operation("broadcast_object_list", _FROM_ONE, peer=True, fills=(0, "object_list")),
    Operation("scatter_object_list", _FROM_ONE),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}


def kind_of(name: str) -> Kind | None:
    """Who waits for whom in an operation; None of one that is not known."""
    known = BY_NAME.get(name)
    return known.kind if known else None


def gives_all(name: str) -> bool:
    """Whether an operation gives a value to each rank of its group, as far as it is known."""
    return kind_of(name) not in (Kind.TO_ONE, Kind.PAIR) and not name.endswith("barrier")


def names(place: str) -> tuple[str, ...]:
    """The operations of ``core``, ``nn`` or ``functional``."""
    return tuple(operation.name for operation in OPERATIONS if place in operation.places)
