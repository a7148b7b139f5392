"""`homing sim`: one simulated vLLM replica."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    import socket

    from homing.sim.kv_events import KvEventsConfig

_COUNT = click.IntRange(min=1)
_BLOCKS = click.IntRange(min=2)  # one is reserved
_MS = click.FloatRange(min=0)
_FACTOR = click.FloatRange(min=0, min_open=True)
_PATH = click.Path(exists=True, path_type=Path)
_SHARE = click.FloatRange(min=0, max=1, min_open=True)
_PRESETS = click.Choice(["h100-llama-8b", "a100-llama-8b"])  # of sim/presets.yaml, which --help need not read


class CannotStartError(click.ClickException):
    """One line that names the flag."""

    exit_code = 2


@click.command("sim", context_settings={"show_default": True})
@click.option("--listen", default="127.0.0.1:8000", help="HOST:PORT; port 0 takes a free one.")
@click.option("--id", "replica_id", default="sim", help="Name of this replica.")
@click.option("--model", default="sim", help="Served model name.")
@click.option("--seed", default=0, help="Another seed is another model: other words.")
@click.option("--preset", type=_PRESETS, help="Simulate this hardware; without, tokens are evenly paced.")
@click.option("--speed", type=_FACTOR, default=1.0, help="2 is hardware twice as fast.")
@click.option("--time-scale", type=_FACTOR, default=1.0, help="Simulated seconds in a real one.")
@click.option("--stream-interval", type=_COUNT, default=1, help="Tokens in an event of a stream, after the first.")
@click.option("--ttft-ms", type=_MS, help="Paced: time to a sequence's first token.  [default: 20]")
@click.option("--itl-ms", type=_MS, help="Paced: time between its tokens.  [default: 5]")
@click.option("--max-model-len", type=_COUNT, help="Prompt and output, in tokens.")
@click.option("--max-num-seqs", type=_COUNT, help="Sequences that run at once.")
@click.option("--max-num-batched-tokens", type=_COUNT, help="With a preset: tokens in one step.")
@click.option("--block-size", type=_COUNT, default=16, help="Tokens in a KV block.")
@click.option("--num-gpu-blocks-override", "num_gpu_blocks", type=_BLOCKS, help="KV blocks.")
@click.option("--gpu-memory-utilization", type=_SHARE, default=0.9, help="With a preset: share for weights and KV.")
@click.option("--chat-template", type=click.File(), help="A Jinja file; default ChatML.")
@click.option("--tokenizer", type=_PATH, help="tokenizer.json, or a model's directory; needs the extra `sim`.")
@click.option("--add-bos-token", "adds_bos", is_flag=True, help="Encoding adds a token at the beginning.")
@click.option("--kv-events-config", help="JSON, as vLLM's; needs the extra `sim`.")
@click.option("--kv-events-format", type=click.Choice(["map", "array"]), default="map", help="vLLM >= 0.24 sends maps.")
@click.option("--admin", help="HOST:PORT for faults on demand.")
@click.option("--ssl-certfile", type=_PATH, help="HTTPS, with --ssl-keyfile.")
@click.option("--ssl-keyfile", type=_PATH, help="The key of --ssl-certfile.")
@click.option("--ssl-ca-certs", type=_PATH, help="Who connects has to show a certificate of theirs.")
@click.option("--enable-prefix-caching/--no-enable-prefix-caching", "prefix_caching", default=True)
def command(
    listen: str,
    replica_id: str,
    model: str,
    seed: int,
    preset: str | None,
    speed: float,
    time_scale: float,
    stream_interval: int,
    ttft_ms: float | None,
    itl_ms: float | None,
    max_model_len: int | None,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    block_size: int,
    num_gpu_blocks: int | None,
    gpu_memory_utilization: float,
    chat_template: TextIO | None,
    tokenizer: Path | None,
    adds_bos: bool,
    kv_events_config: str | None,
    kv_events_format: str,
    admin: str | None,
    prefix_caching: bool,
    ssl_certfile: Path | None,
    ssl_keyfile: Path | None,
    ssl_ca_certs: Path | None,
) -> None:
    """Run one simulated vLLM replica. Ready when GET /health answers 200."""
    import logging

    import uvloop

    from homing.sim.engines import EngineOptions, OptionError
    from homing.sim.kv_events import EventFormat
    from homing.sim.server import Options, serve

    if (ssl_certfile is None) != (ssl_keyfile is None) or (ssl_ca_certs is not None and ssl_certfile is None):
        raise click.UsageError("--ssl-certfile goes with --ssl-keyfile, and --ssl-ca-certs with both")
    if tokenizer is not None:
        _need("tokenizers", "--tokenizer")
    if preset and (ttft_ms is not None or itl_ms is not None):
        raise click.UsageError("--ttft-ms and --itl-ms do not go with --preset, which has times of its own")
    engine = EngineOptions(
        preset=preset,
        speed=speed,
        ttft_s=(20.0 if ttft_ms is None else ttft_ms) / 1000,
        itl_s=(5.0 if itl_ms is None else itl_ms) / 1000,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=block_size,
        num_gpu_blocks=num_gpu_blocks,
        gpu_memory_utilization=gpu_memory_utilization,
        prefix_caching=prefix_caching,
    )
    options = Options(
        replica_id,
        model,
        engine,
        seed,
        time_scale,
        stream_interval,
        chat_template=chat_template.read() if chat_template else None,
        tokenizer=tokenizer,
        adds_bos=adds_bos,
        kv_events=_kv_events(kv_events_config),
        kv_events_format=EventFormat(kv_events_format),
        certificate=ssl_certfile,
        certificate_key=ssl_keyfile,
        client_authorities=ssl_ca_certs,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        uvloop.run(serve(options, _bind("--listen", listen), _bind("--admin", admin) if admin else None))
    except OptionError as error:
        raise CannotStartError(str(error)) from None


def _bind(flag: str, listen: str) -> socket.socket:
    """Raises CannotStartError naming the address."""
    from homing.sim.server import bind

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter("must be HOST:PORT", param_hint=flag)
    try:
        return bind(host.strip("[]"), int(port))
    except OverflowError:
        raise click.BadParameter("must be HOST:PORT", param_hint=flag) from None
    except OSError as error:
        raise CannotStartError(f"{flag} {listen}: {error.strerror or error}") from None


def _kv_events(text: str | None) -> KvEventsConfig:
    """Raises CannotStartError for what is not vLLM's configuration, and when there is no ZeroMQ."""
    import msgspec

    from homing.sim.kv_events import KvEventsConfig

    if text is None:
        return KvEventsConfig()
    try:
        config = msgspec.json.decode(text, type=KvEventsConfig)
    except msgspec.DecodeError as error:
        raise CannotStartError(f"--kv-events-config: {error}") from None
    if config.enable_kv_cache_events:
        _need("zmq", "--kv-events-config")
    return config


def _need(module: str, flag: str) -> None:
    """Raises CannotStartError when the extra is not installed."""
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise CannotStartError(f"{flag} needs the extra `sim`: pip install 'homing[sim]'")
