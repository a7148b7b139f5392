"""The command line of `homing verify`."""

from __future__ import annotations

import os
from pathlib import Path

import click

_COUNT = click.IntRange(min=1)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PATHS = click.Choice(["chat", "completions"])
_SECONDS = click.FloatRange(min=0, min_open=True)


@click.command("verify", context_settings={"show_default": True})
@click.option("--url", required=True, help="The gateway, as clients call it.")
@click.option("--model", help="As the gateway names it.  [default: the only one of /v1/models]")
@click.option("--engine", "engines", multiple=True, metavar="URL", help="An engine, to ask its /metrics. Repeatable.")
@click.option("--api", metavar="URL", help="homing's control service, which knows the engines.")
@click.option("-c", "--config", "config_path", metavar="FILE", help="homing's file, which knows both.")
@click.option("--api-key", metavar="env:NAME|file:PATH", help="Where the key is, sent as a bearer token.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="With every request. Repeatable.")
@click.option("--ca", type=_FILE, help="Certificates to trust instead of the usual ones.")
@click.option("--data", type=_FILE, help="Own conversations: ShareGPT's JSON, or OpenAI's messages (JSON lines).")
@click.option("--endpoint", type=_PATHS, default="chat")
@click.option("--conversations", type=_COUNT, default=16, help="In each run.")
@click.option("--turns", type=click.IntRange(min=4), default=6, help="Of a conversation, at most.")
@click.option("--concurrency", type=_COUNT, default=4, help="Conversations at once.")
@click.option("--answer-tokens", type=_COUNT, default=32, help="Of an answer, at most.")
@click.option("--seed", type=click.IntRange(0, 2**63), default=1, help="Of the built-in conversations.")
@click.option("--session-header", default="x-session-id", help="The header that carries the session's id.")
@click.option("--timeout", "timeout_s", type=_SECONDS, default=120.0, help="Seconds, of a request.")
@click.option("--max-requests", type=_COUNT, default=500, help="Of everything together.")
@click.option("--max-tokens", type=_COUNT, default=500_000, help="Of prompts and answers together.")
@click.option("--yes", is_flag=True, help="Do not ask before sending.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write verify.json and .html there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(
    ctx: click.Context,
    url: str,
    model: str | None,
    engines: tuple[str, ...],
    api: str | None,
    config_path: str | None,
    api_key: str | None,
    headers: tuple[str, ...],
    ca: Path | None,
    data: Path | None,
    endpoint: str,
    conversations: int,
    turns: int,
    concurrency: int,
    answer_tokens: int,
    seed: int,
    session_header: str,
    timeout_s: float,
    max_requests: int,
    max_tokens: int,
    yes: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Send the same conversations twice through one gateway, their turns scattered and then kept together, and say what
    the difference is: TTFT by turn, and how much of the prompts the replicas found in their prefix caches.

    Exit code 0 where affinity has its effect, 1 where not; then the findings say why.
    """
    from homing.cli.verify.gateway import target_of
    from homing.cli.verify.run import Job, Output, run
    from homing.core.verify.plan import Caps

    target = target_of(url, endpoint, session_header, timeout_s, _key(api_key), headers, ca)
    job = Job(
        target=target,
        model=model,
        engines=engines,
        api=api,
        config_path=config_path,
        data=data,
        conversations=conversations,
        turns=turns,
        concurrency=concurrency,
        answer_tokens=answer_tokens,
        seed=seed,
        caps=Caps(max_requests, max_tokens),
    )
    ctx.exit(run(job, Output(yes, out, as_json)))


def _key(place: str | None) -> str | None:
    """What is at env:NAME or file:PATH. Raises click.UsageError, which never repeats what it was given: it may be the
    key itself."""
    if place is None:
        return None
    from homing.control.secrets import SecretError, resolve
    from homing.core.config.kinds import Secret

    try:
        return resolve(Secret()(place), Path("file"), os.environ).decode("ascii")
    except SecretError as error:
        raise click.UsageError(f"--api-key: {error}") from None
    except ValueError:
        raise click.UsageError("--api-key: say env:NAME or file:PATH, where the key is; not the key itself") from None
