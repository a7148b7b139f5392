"""Receipts by the API and from the command line: what each picker says of one session."""

import httpx
import msgspec
import pytest

from homing.cli.explain import Receipts, said
from homing.control.api_explain import OfferView, ReceiptView
from homing.core.config import parse
from homing.core.placement.decision import Reason
from homing.core.placement.explain import Offer, Receipt

OFFERS = (
    Offer("gpu-b", 120.0, {"waiting": 0.0, "prefill": 120.0, "leaving": 0.0}, 0.0, 1, 3, 9000.0, 0.0, 1.0),
    Offer("gpu-a", 5120.0, {"waiting": 5000.0, "prefill": 120.0, "leaving": 0.0}, 5000.0, 4, 9, 70_000.0, 0.0, 1.0),
)
RECEIPT = Receipt("p", "5f0c", "gpu-a", None, False, None, 120.0, 8.0, Reason.PLACED, "gpu-b", "gpu-a", True, OFFERS)


@pytest.fixture
async def client(homing_yaml, http_replies, make_service):
    pickers = {"picker": await http_replies(msgspec.json.encode([RECEIPT])), "away": "127.0.0.1:1"}
    made = make_service(parse(homing_yaml("10.0.0.1:80"), "homing.yaml"), pickers)
    transport = httpx.ASGITransport(app=made.app)
    async with made.sessions, httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8600") as client:
        yield client
    await made.state.close()


async def test_each_pickers_receipt_is_told_and_whether_all_answered(client):
    answer = (await client.get("/api/explain", params={"session": "s", "tenant": "t", "model": "m"})).json()
    assert answer["complete"] is False
    (receipt,) = answer["receipts"]
    assert receipt == msgspec.json.decode(msgspec.json.encode({"picker": "picker", **msgspec.to_builtins(RECEIPT)}))


async def test_a_receipt_is_of_one_session(client):
    assert (await client.get("/api/explain")).status_code == 422


def test_the_api_shows_all_that_a_receipt_has():
    assert set(ReceiptView.model_fields) == {"picker", *Receipt.__struct_fields__}
    assert set(OfferView.model_fields) == set(Offer.__struct_fields__)


def test_for_people_it_is_a_few_lines_and_a_table_of_the_terms_that_count():
    found = msgspec.convert(
        {"receipts": [{"picker": "one", **msgspec.to_builtins(RECEIPT)}], "complete": True}, Receipts
    )
    assert said(found.receipts[0]).splitlines() == [
        "pool p, picker one, session 5f0c",
        "  hash's owner  gpu-a",
        "  home          not known",
        "  next turn     gpu-b (placed, by cost), about 120 tokens; runner-up gpu-a",
        "  replica  cost  waiting  prefill",
        "  gpu-b     120        0      120",
        "  gpu-a    5120     5000      120",
    ]
