"""vLLM's `cache_salt`: requests with different salts share no block of the prefix cache."""

from __future__ import annotations

from hashlib import blake2b


def salt(tenant: bytes, pool_id: str, secret: bytes) -> str:
    """The tenant's salt in a pool: 32 hex digits, the same in every process that has the secret (up to 64 bytes).
    Nobody can tell the tenant from it, nor make another's."""
    return blake2b(b"\0".join((pool_id.encode(), tenant)), key=secret, digest_size=16, person=b"cache_salt").hexdigest()
