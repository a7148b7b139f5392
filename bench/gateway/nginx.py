"""NGINX beside the others: bare, with homing's configuration alone, and with a picker."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.gateway.wire import MODEL

if TYPE_CHECKING:
    from bench.gateway.contenders import Stand

BARE, ALONE, HOMING = "bare NGINX", "NGINX alone", "NGINX with homing"
MODULE = Path("/usr/lib/nginx/modules/ngx_http_js_module.so")


def installed() -> str | None:
    """NGINX's program, if it and its njs module are there."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return program if MODULE.exists() else None


def start(
    stand: Stand, program: str, command: tuple[str, ...], ports: Iterator[int], replicas: list[int]
) -> list[tuple[str, int, str, bool]]:
    """Each as (name, port, process, whether it names and keeps sessions)."""
    return [
        _bare(stand, program, next(ports), replicas),
        _homing(stand, program, command, ALONE, next(ports), None, replicas),
        _homing(stand, program, command, HOMING, next(ports), (next(ports), next(ports)), replicas),
    ]


def _bare(stand: Stand, program: str, port: int, replicas: list[int]) -> tuple[str, int, str, bool]:
    """Nothing but `proxy_pass` with keep-alive."""
    servers = " ".join(f"server 127.0.0.1:{replica};" for replica in replicas)
    text = f"""
    events {{ worker_connections 16384; }}
    http {{
        access_log off; keepalive_requests 1000000000; client_body_buffer_size 1m; client_max_body_size 64m;
        upstream replicas {{ {servers} keepalive 256; }}
        server {{
            listen 127.0.0.1:{port};
            location / {{
                proxy_pass http://replicas; proxy_http_version 1.1;
                proxy_set_header Connection ""; proxy_buffering off;
            }}
        }}
    }}
    """
    _run(stand, program, "nginx-bare", text)
    return BARE, port, "nginx-bare", False


def _homing(
    stand: Stand,
    program: str,
    command: tuple[str, ...],
    name: str,
    port: int,
    picker: tuple[int, int] | None,
    replicas: list[int],
) -> tuple[str, int, str, bool]:
    """`picker`: the ports of its HTTP and of the log; None without one."""
    process = "nginx-homing" if picker else "nginx-alone"
    directory = stand.processes.directory / process
    directory.mkdir()
    file = directory / "homing.yaml"
    members = [{"id": f"gpu-{n}", "address": f"127.0.0.1:{replica}"} for n, replica in enumerate(replicas)]
    pool = {"served_name": MODEL.decode(), "hash": "ketama", "replicas": members}
    file.write_text(json.dumps({"listen": f"127.0.0.1:{port}", "expose_decisions": True, "pools": {"bench": pool}}))
    flags = ["--out", str(directory), "--njs-module", str(MODULE), "--access-log", str(directory / "access.log")]
    if picker:
        http, log = (f"127.0.0.1:{number}" for number in picker)
        flags += ["--picker", http, "--log", log]
        listen = ("--listen", f"unix:{directory}/p.sock", "--http", http, "--nginx-log", log)
        argv = (*command, "ext-proc", "-c", str(file), *listen)
        stand.processes.start(f"{process}-picker", argv, stand.cores.others)
    subprocess.run((*command, "render", "nginx", "-c", str(file), *flags), check=True)
    text = (directory / "nginx.conf").read_text()
    text = re.sub("(?m)^worker_.*$", "", text).replace("http {", "http { keepalive_requests 1000000000;", 1)
    _run(stand, program, process, text)
    return name, port, process, True


def _run(stand: Stand, program: str, process: str, text: str) -> None:
    """One process for all, so that its CPU is what it costs."""
    directory = stand.processes.directory / process
    directory.mkdir(exist_ok=True)
    file = directory / "nginx.conf"
    file.write_text(text)
    how = f"daemon off; master_process off; pid {directory}/pid; error_log stderr error;"
    stand.processes.start(process, (program, "-e", "stderr", "-c", str(file), "-g", how), stand.cores.gateway)
