import pytest

from homing.core.config import Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.1.11:8000", "10.0.1.11", 8000),
        ("vllm-b.internal:1", "vllm-b.internal", 1),
        ("vllm_b:65535", "vllm_b", 65535),
        ("Vllm.Internal.:80", "Vllm.Internal.", 80),
        ("[::1]:80", "::1", 80),
        ("[FD00:0:0::11]:80", "fd00::11", 80),
        ("h:0080", "h", 80),
    ],
)
def test_host_and_port_are_taken_apart(text, host, port):
    assert Address.parse(text) == Address(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "h", "h:", ":80", "h:0", "h:65536", "h:-1", "h:8 0", "h:８０", "h:80/", "http://h:80", "h:80:80",
        "::1:80",
        "[::1]", "[::1:80", "[h]:80", "[::1%eth0]:80", "256.1.1.1:80", "10.1:80", "010.0.0.1:80", "1:80", "a.1:80",
        "-h:80", "h-:80", "a..b:80", ".h:80", "h h:80", "h\n:80", "ü:80", f"{'a' * 64}:80", f"{'a.' * 127}aa:80",
        "1.2.3.4.:80", "u@h:80", "²:80", "a.²:80",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the words are the caller's
        Address.parse(text)


@pytest.mark.parametrize("text", ["10.0.1.11:8000", "[::1]:80", "vllm-b.internal:1"])
def test_str_is_what_was_parsed(text):
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:1", True), ("127.9.9.9:1", True), ("[::1]:1", True), ("0.0.0.0:1", False), ("10.0.0.1:1", False),
        ("[::]:1", False), ("[::ffff:127.0.0.1]:1", False), ("localhost:1", False),
    ],
)  # fmt: skip
def test_loopback_is_told_from_wider_addresses(text, expected):
    assert Address.parse(text).is_loopback is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True), ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "127.0.0.2:1", False), ("0.0.0.0:1", "127.0.0.1:1", True), ("127.0.0.1:1", "[::]:1", True),
        ("H:1", "h:1", True), ("h:1", "i:1", False),
    ],
)  # fmt: skip
def test_overlap_is_the_same_port_on_a_shared_interface(one, other, expected):
    assert Address.parse(one).overlaps(Address.parse(other)) is expected
