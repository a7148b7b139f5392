"""`homing init` writes a file that is valid, from engines that answer and from an Envoy's configuration."""

import itertools
import json
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from authority import Authority
from click.testing import CliRunner

from homing.cli.main import main
from homing.core.config import parse

STRANGERS = Path(__file__).parents[1] / "e2e" / "strangers"


@pytest.fixture
def engine():
    """Starts engines of a few lines; gives their URLs."""
    servers = []

    def start(*models, certificate=None):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200 if self.path == "/v1/models" else 404)
                self.end_headers()
                self.wfile.write(json.dumps({"object": "list", "data": list(models)}).encode())

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate, certificate.with_name("engine-key.pem"))
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def init(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, ["init", *arguments])


def pools(path):
    return {p.id: (p.served_name, [str(r.address) for r in p.replicas]) for p in parse(path.read_text(), "f").pools}


def test_engines_that_serve_the_same_model_are_a_pool(init, engine, tmp_path):
    first = engine({"id": "Qwen/Qwen2.5-72B-Instruct"}, {"id": "sql", "parent": "Qwen/Qwen2.5-72B-Instruct"})
    second, other = engine({"id": "Qwen/Qwen2.5-72B-Instruct"}), engine({"id": "Org/My-Model_2"})
    result = init(*(word for url in (first, second, other) for word in ("--from-engine", url)))
    assert result.exit_code == 0, result.output
    assert pools(tmp_path / "homing.yaml") == {
        "qwen2.5-72b-instruct": ("Qwen/Qwen2.5-72B-Instruct", [first[7:], second[7:]]),
        "my-model_2": ("Org/My-Model_2", [other[7:]]),
    }


def test_engines_over_tls_are_asked_so_and_written_so(init, engine, tmp_path):
    Authority(tmp_path / "certs").issue("engine")
    secure = engine({"id": "m"}, certificate=tmp_path / "certs" / "engine.pem")
    refused = init("--from-engine", secure)
    assert (refused.exit_code, "certificate verify failed" in refused.output) == (1, True)
    result = init("--from-engine", secure, "--from-engine", engine({"id": "m"}), "--ca", "certs/ca.pem")
    assert result.exit_code == 0, result.output
    (pool,) = parse((tmp_path / "homing.yaml").read_text(), "f").pools
    assert str(pool.replicas[0].address) == secure.removeprefix("https://")
    assert [r.address.secure for r in pool.replicas] == [True, False]
    assert f'ca: "file:{tmp_path / "certs" / "ca.pem"}"' in (tmp_path / "homing.yaml").read_text()


@pytest.mark.parametrize("name", ["plain.yaml", "strict_dns.yaml"])
def test_clusters_of_an_envoy_are_pools(init, tmp_path, name):
    # templates: ports and paths are put in there
    ports = itertools.count(9000)
    text = re.sub(r"\$\{\w+\}", lambda _: str(next(ports)), (STRANGERS / name).read_text())
    (tmp_path / "envoy.yaml").write_text(text)
    result = init("--from-envoy", "envoy.yaml")
    assert result.exit_code == 0, result.output
    assert all(replicas for _, replicas in pools(tmp_path / "homing.yaml").values())


def test_nothing_is_overwritten_and_stdout_is_possible(init, engine, tmp_path):
    url = engine({"id": "m"})
    (tmp_path / "homing.yaml").write_text("mine")
    result = init("--from-engine", url)
    assert (result.exit_code, (tmp_path / "homing.yaml").read_text()) == (1, "mine")
    result = init("--from-engine", url, "-o", "-")
    assert [p.id for p in parse(result.output, "f").pools] == ["m"]


def test_what_cannot_be_had_is_one_line(init, engine, tmp_path):
    assert init().exit_code == 2
    for url, why in (
        ("http://127.0.0.1:1", "http://127.0.0.1:1: "),
        ("ftp://127.0.0.1:1", "http:// or https://"),
        (engine(), "serves no model"),
    ):
        result = init("--from-engine", url)
        assert (result.exit_code, why in result.output, result.output.count("\n")) == (1, True, 1)
    (tmp_path / "envoy.yaml").write_text("static_resources: {clusters: [{name: a}]}")
    assert "no cluster" in init("--from-envoy", "envoy.yaml").output
    (tmp_path / "envoy.yaml").write_text("a: [")
    assert "not a configuration of Envoy" in init("--from-envoy", "envoy.yaml").output
