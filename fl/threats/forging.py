"""Forging: which kinds carry an update, what each is a change from, and a message with another change."""

from collections.abc import Mapping

from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import Message, Payload

# what carries an update -> what it is a change from; None: it is a change itself
BASES: dict[Kind, Kind | None] = {
    Kind.LOCAL_MODEL: Kind.GLOBAL_MODEL,
    Kind.ADAPTER: Kind.GLOBAL_MODEL,
    Kind.RELAY_MODEL: Kind.RELAY_MODEL,
    Kind.MODEL_DELTA: None,
    Kind.ADAPTER_DELTA: None,
    Kind.NORMALIZED_DELTA: None,
    Kind.GRADIENT: None,
    Kind.GAN_G: Kind.GAN_G,
}


def check_layout(title: str, honest: Message, forged: Message) -> None:
    """Raise UserError where updates are forged with other arrays than a server expects, which rejects them."""
    for kind in (k for k in BASES if k in honest and k in forged):
        known, sent = ({n: (v.shape, v.dtype) for n, v in m[kind].items()} for m in (honest, forged))
        if odd := next((n for n in {**known, **sent} if known.get(n) != sent.get(n)), None):
            say = {n: f"{str(dtype).removeprefix('torch.')} {list(shape)}" for n, (shape, dtype) in sent.items()}
            shape, dtype = known.get(odd, (None, None))
            expected = "no such array" if shape is None else f"{str(dtype).removeprefix('torch.')} {list(shape)}"
            raise UserError(
                f"{title} sends {say.get(odd, 'nothing')} as {odd} of {kind}; the server expects {expected}",
                hint="forge the numbers of an update, and keep its names, shapes and precision",
            )


def find_base(kind: Kind, received: Message) -> Payload:
    """What an update of this kind is a change from; empty where it is a change itself."""
    base = BASES[kind]
    return received.get(base, {}) if base is not None else {}


def forge_message(message: Message, received: Message, change: Mapping[str, Tensor], kind: Kind) -> Message:
    """The message with another change."""
    base, payload = find_base(kind, received), message[kind]
    new = {
        k: (base[k].double() + v if k in base else v).to(payload[k].dtype).reshape(payload[k].shape)
        for k, v in change.items()
    }
    return message | {kind: payload | new}
