"""Against a real name server on loopback: dnspython's wire format over UDP."""

import asyncio

import dns.asyncresolver
import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from homing.control.discovery.dns import DnsSource
from homing.control.discovery.source import Found, SourceError


class NameServer(asyncio.DatagramProtocol):
    """Answers from `zone`: (name, kind) -> records. A name that is in no entry does not exist."""

    def __init__(self):
        self.zone = {}
        self.mood = dns.rcode.NOERROR
        self.silent = False
        self.ttl = 0
        self.asked = []

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        query = dns.message.from_wire(data)
        (question,) = query.question
        name, kind = question.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        if self.silent:
            return
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        records = self.zone.get((name, kind))
        if self.mood != dns.rcode.NOERROR:
            answer.set_rcode(self.mood)
        elif records:
            answer.answer.append(dns.rrset.from_text(question.name, self.ttl, "IN", kind, *records))
        elif not any(known == name for known, _ in self.zone):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        self.transport.sendto(answer.to_wire(), address)


@pytest.fixture
async def server():
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        NameServer, local_addr=("127.0.0.1", 0)
    )
    yield server
    transport.close()


@pytest.fixture
def source(server):
    def made(name):
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers = ["127.0.0.1"]
        resolver.port = server.transport.get_extra_info("sockname")[1]
        return DnsSource(name, resolver, min_ttl_s=0.02)

    return made


async def test_addresses_are_replicas_in_an_order_of_their_own(server, source, follow):
    server.zone["vllm.internal", "A"] = ["10.0.0.2", "10.0.0.1"]
    assert await follow(source("vllm.internal:8000")).next() == (
        Found("10.0.0.1:8000", "10.0.0.1:8000"),
        Found("10.0.0.2:8000", "10.0.0.2:8000"),
    )
    assert server.asked == [("vllm.internal", "A")]


async def test_ipv6_where_there_is_no_ipv4(server, source, follow):
    server.zone["vllm.internal", "AAAA"] = ["fd00::1"]
    assert await follow(source("vllm.internal:8000")).next() == (Found("fd00::1:8000", "[fd00::1]:8000"),)


async def test_services_name_their_targets_and_weights(server, source, follow):
    server.zone["_vllm._tcp.internal", "SRV"] = [
        "0 2 8000 vllm-1.internal.",
        "0 0 8001 vllm-0.internal.",
        "5 1 8000 spare.internal.",
        "0 1000 8000 vllm-2.internal.",
    ]
    for i in range(3):
        server.zone[f"vllm-{i}.internal", "A"] = [f"10.0.0.{i + 1}"]
    assert await follow(source("_vllm._tcp.internal")).next() == (
        Found("vllm-0.internal:8001", "10.0.0.1:8001", 1),
        Found("vllm-1.internal:8000", "10.0.0.2:8000", 2),
        Found("vllm-2.internal:8000", "10.0.0.3:8000", 128),
    )


async def test_a_target_that_gets_another_address_keeps_its_id(server, source, follow):
    server.zone["_vllm._tcp.internal", "SRV"] = ["0 1 8000 vllm-0.internal."]
    server.zone["vllm-0.internal", "A"] = ["10.0.0.1"]
    said = follow(source("_vllm._tcp.internal"))
    assert await said.next() == (Found("vllm-0.internal:8000", "10.0.0.1:8000"),)
    server.zone["vllm-0.internal", "A"] = ["10.0.0.9"]
    assert await said.next() == (Found("vllm-0.internal:8000", "10.0.0.9:8000"),)


async def test_a_name_that_does_not_exist_is_nobody_not_a_failure(source, follow):
    assert await follow(source("gone.internal:8000")).next() == ()
    assert await follow(source("_vllm._tcp.gone")).next() == ()


async def test_a_server_that_fails_is_a_failure(server, source, follow):
    server.mood = dns.rcode.SERVFAIL
    with pytest.raises(SourceError, match=r"A of vllm\.internal"):
        await follow(source("vllm.internal:8000")).next()


async def test_a_server_that_is_silent_is_a_failure(server, source, follow, monkeypatch):
    monkeypatch.setattr("homing.control.discovery.dns.TIMEOUT_S", 0.2)
    server.silent = True
    with pytest.raises(SourceError, match=r"A of vllm\.internal"):
        await follow(source("vllm.internal:8000")).next()


async def test_it_does_not_ask_again_before_the_ttl_is_over(server, source, follow):
    server.zone["vllm.internal", "A"] = ["10.0.0.1"]
    server.ttl = 1
    said = follow(source("vllm.internal:8000"))
    await said.next()
    began = asyncio.get_running_loop().time()
    await said.next()
    assert asyncio.get_running_loop().time() - began >= 0.9
