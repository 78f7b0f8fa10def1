"""Proof that the asker of an enrolment holds the private half of the key.

The daemon seals a challenge for the public key, and enrols the key when the nonce within comes
back. The challenge names the uid it was made for, and a client answers none that names another's:
so a false daemon cannot pass on the true one's challenge, and have the key enrolled as its own.
"""

from __future__ import annotations

import json
import secrets

from zmq.utils import z85

from coalloc.wire.curve import KeyPair

PURPOSE = "coalloc-enrolment/1"
NONCE_BYTES = 32


class ProofError(Exception):
    """A challenge cannot be made or answered; the message is one line for the user."""


def new_challenge(public: str, uid: int) -> tuple[str, str]:
    """A challenge for the holder of a key who is this user, and the nonce in it."""
    nonce = secrets.token_hex(NONCE_BYTES)
    text = json.dumps({"purpose": PURPOSE, "uid": uid, "nonce": nonce})
    return sealed(public, text.encode()), nonce


def sealed(public: str, text: bytes) -> str:
    """Encrypt a text for the holder of a key's private half alone; in base64."""
    from nacl.encoding import Base64Encoder
    from nacl.exceptions import CryptoError
    from nacl.public import PublicKey, SealedBox

    try:
        box = SealedBox(PublicKey(z85.decode(public)))
        return box.encrypt(text, encoder=Base64Encoder).decode()
    except (CryptoError, ValueError) as error:
        raise ProofError("key: is no key") from error


def nonce_of(challenge: object, pair: KeyPair, uid: int) -> str:
    """Read the nonce of a challenge that was made for this key and this user."""
    from nacl.encoding import Base64Encoder
    from nacl.exceptions import CryptoError
    from nacl.public import PrivateKey, SealedBox

    try:
        box = SealedBox(PrivateKey(z85.decode(pair.secret)))
        body = json.loads(box.decrypt(str(challenge).encode(), encoder=Base64Encoder))
        purpose, meant, nonce = body["purpose"], body["uid"], body["nonce"]
    except (CryptoError, ValueError, KeyError, TypeError) as error:
        raise ProofError("the daemon's challenge is not made for this key") from error
    if purpose != PURPOSE or meant != uid or not isinstance(nonce, str):
        raise ProofError("the daemon's challenge is made for another user")
    return nonce
