"""The id arrives, as far as can be seen, and does not decide: the hash is over something else."""

from __future__ import annotations

from homing.core.verify.diagnosis import id_lost
from homing.core.verify.diagnosis.finding import Finding, fault
from homing.core.verify.evidence import Evidence

ENOUGH = 4
"""Probes whose replica is known; of fewer, going to one replica may be chance."""


def diagnose(evidence: Evidence) -> Finding | None:
    probes, header = evidence.probes, evidence.header
    if id_lost.diagnose(evidence) is not None or _known(probes.same) < ENOUGH:
        return None
    if len(probes.homes) > 1:
        seen = f"{len(probes.same)} requests with one id in {header} went to {len(probes.homes)} replicas."
        return fault("wrong_key", seen, _scattered(evidence))
    others = set(evidence.engines()) - probes.spread
    if _known(probes.fresh) >= ENOUGH and len(probes.spread) == 1 and others:
        (only,) = probes.spread
        return fault(
            "wrong_key",
            f"{_known(probes.fresh)} requests with an id of their own each in {header} all went to {only}, and none"
            f" to {', '.join(sorted(others))}.",
            "The gateway decides by something that is the same for all sessions (the client's address, a key, a"
            f" tenant), or thinks that the other replicas are down. Hash {header}: Envoy `hash_policy:"
            f" [{{header: {{header_name: {header}}}}}]`, NGINX `hash $http_{header.replace('-', '_')} consistent`.",
        )
    return None


def _known(told: tuple[str | None, ...]) -> int:
    return sum(name is not None for name in told)


def _scattered(evidence: Evidence) -> str:
    header, sticking = evidence.header, evidence.probes.sticking()
    hashing = (
        f"Envoy: `hash_policy: [{{header: {{header_name: {header}}}}}]` with RING_HASH or MAGLEV; NGINX: `hash"
        f" $http_{header.replace('-', '_')} consistent`; homing does it with any configuration that it renders."
    )
    if sticking is not None:
        return f"The gateway hashes {sticking}: requests with one value there all went to one replica. {hashing}"
    if evidence.issues:
        return (
            "The gateway answers with the id, so it has it, and does not decide by it: is its hash over another"
            f" header, or is the pool's `mode` off or observe? {hashing}"
        )
    return (
        f"The gateway's hash is over something else or there is none, or a hop before it drops {header} (measure at"
        f" the gateway's own port to tell). {hashing}"
    )
