"""The URLs that the file may name, and that nothing of them is shown."""

from __future__ import annotations

import pytest

from homing.core.config.kinds import PinStore
from homing.core.config.secret import NotShownError, SecretRef
from homing.ext_proc.pins.redis_url import RedisUrlError, client

GOOD = [
    "redis://10.0.0.1:6379/0",
    "redis://cache",
    "rediss://user@cache:6380/1?ssl_ca_certs=/etc/ca.pem",
    "unix:///run/redis.sock",
    "redis+sentinel://a:26379,b,[::1]:26379/pins",
    "rediss+sentinel://a/pins/2",
    "redis+cluster://a:7000,b:7001",
    "rediss+cluster://a",
]


@pytest.mark.parametrize("url", GOOD)
async def test_urls_that_the_file_takes_make_a_client(url: str):
    assert PinStore()(url) == url
    await client(url).aclose()


@pytest.mark.parametrize("url", ["redis+sentinel://a:26379", "redis://host:port", "redis+cluster://a:b", "http://x"])
def test_what_makes_no_client_is_told_without_the_url(url: str):
    with pytest.raises(RedisUrlError, match=r"^not a URL of a Redis$"):
        client(url)


@pytest.mark.parametrize(
    "value",
    [
        "redis://:word@host", "redis://user:word@host/0", "redis+sentinel://u:word@a,b/pins", "redis://host?password=word",
        "redis://ho st", "http://host", "redis:", "disk", 7, None, "env:", ["memory"],
    ],
)  # fmt: skip
def test_passwords_and_other_things_are_refused_and_not_shown(value: object):
    with pytest.raises(NotShownError) as refused:
        PinStore()(value)
    assert "word@" not in str(refused.value)


def test_where_the_url_stands_may_be_told():
    assert PinStore()("env:REDIS_URL") == SecretRef("env", "REDIS_URL")
    assert PinStore()("memory") == "memory"
