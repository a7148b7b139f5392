import pytest

from homing.core.hashing import Maglev
from homing.core.placement.minting import mint
from homing.ext_proc.sharding import shard

PICKERS = ("unix:/run/picker-0.sock", "unix:/run/picker-1.sock", "127.0.0.1:9002")


@pytest.mark.parametrize("own", range(3))
def test_new_ids_come_back_to_the_picker_that_made_them(own: int):
    """Envoy's hash is over the addresses as it writes them: a socket's path without a scheme."""
    made = shard(PICKERS, PICKERS[own])
    envoy = Maglev([("/run/picker-0.sock", 1), ("/run/picker-1.sock", 1), ("127.0.0.1:9002", 1)])
    replicas = Maglev([("gpu-0", 1), ("gpu-1", 1)])
    minted = mint(b"base", b"tenant/", replicas, 1, shard=made)
    assert minted is not None
    assert envoy.owner(b"tenant/" + minted) == own


@pytest.mark.parametrize(("pickers", "own"), [((), "a:1"), (("a:1",), "a:1"), (PICKERS, "unix:/run/standby.sock")])
def test_who_is_alone_or_a_standby_shares_nothing_out(pickers: tuple[str, ...], own: str):
    assert shard(pickers, own) is None
