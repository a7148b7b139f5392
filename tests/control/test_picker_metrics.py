"""Scraping pickers over both kinds of addresses."""

import asyncio
import contextlib

import pytest
from prometheus_client import CollectorRegistry, Counter

from homing.control.picker_metrics import MAX_BYTES, PickerMetrics, Scraped, exposition

TEXT = b'# TYPE homing_picks_total counter\nhoming_picks_total{pool="p"} 3\n'


@pytest.fixture
async def picker(tmp_path):
    """Starts a server that answers any request with `body`, on a Unix socket or on TCP; None: never."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(body, *, unix=False, status=b"200 OK"):
            async def serve(reader, writer):
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    await reader.readuntil(b"\r\n\r\n")
                    if body is None:
                        await asyncio.sleep(3600)
                    writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)
                    await writer.drain()
                writer.close()

            if unix:
                path = tmp_path / "picker.sock"
                await stack.enter_async_context(await asyncio.start_unix_server(serve, path))
                return f"unix:{path}"
            server = await stack.enter_async_context(await asyncio.start_server(serve, "127.0.0.1", 0))
            return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        yield start


async def scrape(*addresses, timeout_s=5):
    """Each address under itself as its name."""
    async with PickerMetrics({address: address for address in addresses}, timeout_s) as pickers:
        return await pickers.scrape()


@pytest.mark.parametrize("unix", [False, True])
async def test_a_picker_is_asked_over_tcp_or_a_unix_socket(picker, unix):
    address = await picker(TEXT, unix=unix)
    assert await scrape(address) == (Scraped(address, TEXT.decode()),)


async def test_one_that_hangs_costs_its_time_limit_and_not_the_others(picker):
    hung, fine = await picker(None), await picker(TEXT)
    async with asyncio.timeout(3):
        assert [s.text for s in await scrape(hung, fine, timeout_s=0.3)] == [None, TEXT.decode()]


async def test_one_that_is_away_fails_or_answers_nonsense_has_no_text(picker, tmp_path):
    away, sick = f"unix:{tmp_path}/none.sock", await picker(b"", status=b"500 Oh")
    endless, binary = await picker(b"x" * (MAX_BYTES + 1)), await picker(b"\xff")
    assert [s.text for s in await scrape(away, sick, endless, binary)] == [None] * 4


def lines(registry, *scraped):
    return [line for line in exposition(registry, scraped).decode().splitlines() if not line.startswith("#")]


def test_each_sample_gets_the_label_picker():
    assert lines(CollectorRegistry(), Scraped("unix:/a", TEXT.decode()), Scraped("unix:/b", TEXT.decode())) == [
        'homing_picks_total{picker="unix:/a",pool="p"} 3.0',
        'homing_picks_total{picker="unix:/b",pool="p"} 3.0',
        'homing_picker_up{picker="unix:/a"} 1.0',
        'homing_picker_up{picker="unix:/b"} 1.0',
    ]


def test_a_family_of_the_same_name_is_written_once_and_a_foreign_type_not_at_all():
    registry = CollectorRegistry()
    Counter("homing_picks", "Picks.", registry=registry)
    text = exposition(
        registry,
        [
            Scraped("unix:/a", TEXT.decode()),
            Scraped("unix:/b", "# TYPE homing_picks gauge\nhoming_picks 7\n"),
        ],
    ).decode()
    assert text.count("# TYPE homing_picks_total counter") == 1
    assert "homing_picks_total 0.0" in text
    assert 'homing_picks_total{picker="unix:/a",pool="p"} 3.0' in text
    assert " 7.0" not in text


@pytest.mark.parametrize("text", [None, "homing_picks{pool= 3\n", "homing_picks three\n", "{}\n"])
def test_a_picker_without_readable_metrics_is_down_and_breaks_nothing(text):
    assert lines(CollectorRegistry(), Scraped("unix:/a", text)) == ['homing_picker_up{picker="unix:/a"} 0.0']
