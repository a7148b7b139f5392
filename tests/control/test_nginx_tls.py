"""What NGINX cannot do with TLS is refused when its configuration is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing.control.nginx_tls import NginxTls, NginxTlsError, nginx_tls
from homing.core.config import parse

BESIDE = Path("/etc/homing.yaml")


def tls(text: str) -> NginxTls:
    config = parse(f"pools: {{{text}}}", "f")
    return nginx_tls(config, config.fleet(), BESIDE)


def pool(name: str, engine: str, *addresses: str) -> str:
    replicas = ", ".join(f"{{id: r{i}, address: '{address}'}}" for i, address in enumerate(addresses))
    return f"{name}: {{engine: {{{engine}}}, replicas: [{replicas}]}}"


def test_without_tls_there_is_nothing():
    assert tls(pool("p", "", "h:1")) == NginxTls()


def test_one_name_for_a_pool_and_one_set_of_authorities():
    made = tls(f"{pool('p', 'ca: file:ca.pem', 'https://h:1')}, {pool('plain', '', 'h:2')}")
    assert (made.names, made.authorities) == ({"p": "h"}, "/etc/ca.pem")
    made = tls(pool("p", "server_name: x.internal", "https://h:1", "https://g:1"))
    assert (made.names, made.authorities) == ({"p": "x.internal"}, "/etc/ssl/certs/ca-certificates.crt")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (pool("p", "", "https://h:1", "https://g:1"), r"known by several names \(g, h\)"),
        (pool("p", "", "https://h:1", "g:1"), r"known by several names \(plain HTTP, h\)"),
        (
            f"{pool('p', 'ca: file:a', 'https://h:1')}, {pool('q', 'ca: file:b', 'https://h:2')}",
            "pools p and q have other certificates or authorities",
        ),
    ],
)
def test_what_nginx_cannot_do_is_refused(text, why):
    with pytest.raises(NginxTlsError, match=why):
        tls(text)
