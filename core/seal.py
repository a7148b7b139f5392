"""Ids that only we can have issued: a payload with the time of its end and a MAC over both, and over whose it is.

`PAYLOAD-ENDS-MAC`, the last two in hexadecimal: letters, digits and hyphens only, as SageMaker wants its ids.
MAC: keyed BLAKE2b (RFC 7693), 128 bits. HMAC-SHA256 costs four times as much, and minting pays it with every try.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest

MAC_BYTES = 16
_SEALED = re.compile(rb"(.+)-([0-9a-f]{1,12})-([0-9a-f]{32})", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Seal:
    """Signs with the first of `keys` (up to 64 bytes each), takes what any of them signed: so keys are changed without
    a break. `purpose` keeps apart what different seals with the same key sign. Times are seconds since 1970."""

    keys: tuple[bytes, ...]
    purpose: bytes
    lifetime_s: float

    def sign(self, payload: bytes, tenant: bytes, now_s: float) -> bytes:
        ends = b"%x" % int(now_s + self.lifetime_s)
        return b"%s-%s-%s" % (payload, ends, self._mac(self.keys[0], payload, tenant, ends))

    def open(self, sealed: bytes, tenant: bytes, now_s: float) -> Opened | None:
        """None for what was not signed with one of the keys, for this tenant, or has ended."""
        parts = _SEALED.fullmatch(sealed)
        if parts is None:
            return None
        payload, ends, mac = parts.groups()
        left_s = int(ends, 16) - now_s
        if left_s <= 0 or not any(compare_digest(mac, self._mac(key, payload, tenant, ends)) for key in self.keys):
            return None
        return Opened(payload, left_s)

    def _mac(self, key: bytes, payload: bytes, tenant: bytes, ends: bytes) -> bytes:
        # lengths first: no two (tenant, payload) are signed as one
        signed = b"%s\0%d\0%s\0%s\0%s" % (self.purpose, len(tenant), tenant, ends, payload)
        return blake2b(signed, key=key, digest_size=MAC_BYTES).hexdigest().encode()


@dataclass(frozen=True, slots=True)
class Opened:
    payload: bytes
    left_s: float
