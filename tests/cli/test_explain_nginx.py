"""`homing explain --data-plane nginx`. That real NGINX chooses the same: tests/e2e/test_nginx_alone.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from homing.cli.main import main
from homing.core.hashing import Ketama

FILE = """
pools:
  a: {served_name: m, hash: ketama, replicas: [{id: r1, address: 10.0.0.1:8000}, {id: r2, address: 10.0.0.2:8000, weight: 3}]}
  b: {served_name: n, aliases: [chat], replicas: [{id: r3, address: 10.0.0.3:8000}]}
  c: {served_name: elsewhere, discovery: {dns: vllm.internal:8000}}
"""  # noqa: E501


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "homing.yaml"
    path.write_text(FILE)
    return path


def explain(file: Path, *flags: str) -> Result:
    return CliRunner().invoke(main, ["explain", "-c", str(file), "--data-plane", "nginx", *flags])


def test_the_choice_of_every_pool_and_who_comes_next(file: Path) -> None:
    table = Ketama([("10.0.0.1:8000", 1), ("10.0.0.2:8000", 3)])
    for number in range(20):
        owner = table.owner(f"/s{number}".encode())
        ids = ["r1", "r2"]
        assert owner is not None
        found = json.loads(explain(file, "--session", f"s{number}", "--json").stdout)["choices"]
        first = {"pool": "a", "choice": ids[owner], "address": f"10.0.0.{owner + 1}:8000", "then": [ids[1 - owner]],
                 "minted": True}  # fmt: skip
        assert found == [first, {"pool": "b", "choice": "r3", "address": "10.0.0.3:8000", "then": [], "minted": False}]


def test_for_people_in_the_pool_of_a_model(file: Path) -> None:
    assert explain(file, "--session", "s", "--model", "chat").stdout == (
        "pool b, NGINX alone\n"
        "  next turn     r3 at 10.0.0.3:8000\n"
        "  if it is down nobody\n"
        "  pickers mint ids for Envoy's hash here: `hash: ketama` in the pool makes them fit NGINX's\n"
    )


def test_a_tenant_counts_where_it_is_trusted(file: Path) -> None:
    def chosen(*flags: str) -> list[str]:
        sessions = [f"s{n}" for n in range(30)]
        return [
            json.loads(explain(file, "--session", s, "--json", *flags).stdout)["choices"][0]["choice"] for s in sessions
        ]

    assert chosen("--tenant", "t") == chosen()
    file.write_text(FILE + "tenants: {header: x-tenant, trusted: true}\n")
    assert chosen("--tenant", "t") != chosen()


def test_a_long_id_counts_by_its_first_256_bytes(file: Path) -> None:
    long = "x" * 256
    assert explain(file, "--session", long, "--json").stdout == explain(file, "--session", long + "y", "--json").stdout


def test_a_model_that_the_file_lists_no_replicas_for(file: Path) -> None:
    result = explain(file, "--session", "s", "--model", "elsewhere")
    assert (result.exit_code, result.stdout) == (1, "the file lists no replicas for this model\n")
