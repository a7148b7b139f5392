"""How many files and connections a process of this user may have open."""

from __future__ import annotations

import resource

DESCRIPTORS_MAX = 1_048_576


def raise_limit() -> None:
    """As far as this user may: each stream through Envoy takes two in Envoy and more elsewhere."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
