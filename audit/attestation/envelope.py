"""A DSSE envelope: a payload with its type and Ed25519 signatures over both, by keys that lie in files.

Dead Simple Signing Envelope, protocol 1.0.2 (secure-systems-lab/dsse): what is signed is

    PAE(type, body) = "DSSEv1" + SP + LEN(type) + SP + type + SP + LEN(body) + SP + body

so that a signature for one type of payload is none for another. A key's id is the SHA-256 of its public part.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field

from fedaudit.audit.case.schemas import Form
from fedaudit.fl.runtime.errors import UserError

HOW = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out key.pub.pem"
LARGEST_KEY = 1 << 16
K = TypeVar("K", Ed25519PrivateKey, Ed25519PublicKey)


class Signature(Form):
    sig: str  # base64
    keyid: str = ""


class Envelope(Form):
    payload: str  # base64
    payloadType: str
    signatures: list[Signature] = Field(min_length=1)


def pae(payload_type: str, body: bytes) -> bytes:
    """What is signed."""
    name = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(body), body)


def sign(payload_type: str, body: bytes, key: Ed25519PrivateKey) -> Envelope:
    signature = base64.b64encode(key.sign(pae(payload_type, body))).decode()
    return Envelope(
        payload=base64.b64encode(body).decode(),
        payloadType=payload_type,
        signatures=[Signature(sig=signature, keyid=key_id(key.public_key()))],
    )


def payload(envelope: Envelope) -> bytes:
    """What an envelope holds, whoever signed it; raises UserError where that is no base64."""
    try:
        return _decode_base64(envelope.payload)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"the seal is damaged: {error}", hint="ask for the one that was made") from error


def open_envelope(envelope: Envelope, payload_type: str, key: Ed25519PublicKey) -> bytes:
    """The payload, of this type and signed by this key; raises UserError where it is not."""
    if envelope.payloadType != payload_type:
        raise UserError(
            f"the seal is of type {envelope.payloadType!r}, not {payload_type!r}",
            hint="it is no seal of an audit",
        )
    body = payload(envelope)
    try:
        candidates = [_decode_base64(s.sig) for s in envelope.signatures]
    except (binascii.Error, ValueError) as error:
        raise UserError(f"the seal is damaged: {error}", hint="ask for the one that was made") from error
    for candidate in candidates:
        try:
            key.verify(candidate, pae(payload_type, body))
        except InvalidSignature:
            continue
        return body
    raise UserError(
        f"the seal is not signed by the key that was given, {key_id(key)}",
        hint=f"it names {envelope.signatures[0].keyid or 'no key'}; ask its owner for the public key",
    )


def private_key(path: Path) -> Ed25519PrivateKey:
    load = partial(serialization.load_pem_private_key, password=None)
    return _load_key(path, Ed25519PrivateKey, load, "private")


def public_key(path: Path) -> Ed25519PublicKey:
    return _load_key(path, Ed25519PublicKey, serialization.load_pem_public_key, "public")


def key_id(key: Ed25519PublicKey) -> str:
    """SHA-256 of the key's SubjectPublicKeyInfo."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def _load_key(path: Path, kind: type[K], load: Callable[[bytes], object], word: str) -> K:
    if not path.is_file() or path.stat().st_size > LARGEST_KEY:
        raise UserError(f"no key file {path}", hint=f"make one: {HOW}")
    try:
        key = load(path.read_bytes())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path} is no {word} key in PEM: {error}", hint=f"make one: {HOW}") from error
    if not isinstance(key, kind):
        raise UserError(f"{path} is no {word} Ed25519 key", hint=f"make one: {HOW}")
    return key


def _decode_base64(text: str) -> bytes:
    """Either alphabet of base64, as verifiers must."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
