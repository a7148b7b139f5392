"""What `homing up` prints once: where everything is, and two turns of a conversation to paste."""

from __future__ import annotations

import json
import shlex

from homing.cli.probes import reachable
from homing.core.config import Config


def ready_block(config: Config, seconds: float) -> str:
    """Several lines, without a newline at the end. `seconds`: how long the start took."""
    data = f"{'http' if config.tls.listen is None else 'https'}://{reachable(config.listen)}"
    chat = f"{data}/v1/chat/completions"
    api = f"{'http' if config.tls.api is None else 'https'}://{reachable(config.api)}"
    model = config.pools[0].served_name
    first = {"role": "user", "content": "Hello, who are you?"}
    turns = [first, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Tell me more."}]
    models = [f"{p.served_name} (also {', '.join(p.aliases)})" if p.aliases else p.served_name for p in config.pools]
    return "\n".join(
        (
            f"homing is ready after {seconds:.1f} s",
            "",
            f"  chat         {chat}",
            f"  models       {', '.join(models)}",
            f"  API          {api}/docs",
            f"  metrics      {api}/metrics",
            f"  Envoy admin  http://{config.admin}/",
            "",
            "A first turn; the answer's x-session-id names the session:",
            f"  {_curl(chat, model, [first])}",
            "The next turn, with that id:",
            f"  {_curl(chat, model, turns, session='ID-FROM-THE-FIRST-ANSWER')}",
            "",
            "What affinity brings, measured:",
            f"  homing verify --url {data} --model {model} --api {api}",
            "",
            "Ctrl-C ends it",
        )
    )


def _curl(url: str, model: str, messages: list[dict[str, str]], session: str | None = None) -> str:
    header = f' -H "x-session-id: {session}"' if session else ""
    body = shlex.quote(json.dumps({"model": model, "messages": messages}))
    return f"curl -i {url}{header} -H 'content-type: application/json' -d {body}"
