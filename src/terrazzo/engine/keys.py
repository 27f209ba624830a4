"""Encryption keys as users give them."""

import secrets
from typing import Any

from terrazzo.errors import InvalidRequestError
from terrazzo.format.filters.aes import Aes256Gcm

_KEY_SIZE = 32
_NONCE_SIZE = 12


def as_cipher(key: Any) -> Aes256Gcm | None:
    """32 bytes, 32 ASCII characters, or 64 hexadecimal digits; None for an array in the clear."""
    if key is None:
        return None
    raw = key
    if isinstance(key, str):
        try:
            raw = bytes.fromhex(key) if len(key) == 2 * _KEY_SIZE else key.encode("ascii")
        except (ValueError, UnicodeEncodeError):
            raw = b""
    if not isinstance(raw, (bytes, bytearray)) or len(raw) != _KEY_SIZE:
        # The key itself never appears in a message.
        raise InvalidRequestError(
            "an encryption key is 32 bytes, 32 ASCII characters, or 64 hexadecimal digits"
        )
    return Aes256Gcm(bytes(raw), new_nonce)


def new_nonce() -> bytes:
    return secrets.token_bytes(_NONCE_SIZE)
