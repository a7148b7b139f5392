"""`homing sim`: one simulated vLLM replica."""

from __future__ import annotations

import click

_COUNT = click.IntRange(min=1)
_BLOCKS = click.IntRange(min=2)  # one is reserved
_MS = click.FloatRange(min=0)
_FACTOR = click.FloatRange(min=0, min_open=True)


@click.command("sim")
@click.option("--listen", default="127.0.0.1:8000", show_default=True, help="HOST:PORT; port 0 takes a free one.")
@click.option("--id", "replica_id", default="sim", show_default=True, help="Name of this replica.")
@click.option("--model", default="sim", show_default=True, help="Served model name.")
@click.option("--seed", default=0, show_default=True, help="Another seed is another model.")
@click.option(
    "--max-model-len",
    type=_COUNT,
    default=4_194_304,
    show_default=True,
    help="Prompt and output, in tokens.",
)
@click.option("--block-size", type=_COUNT, default=16, show_default=True, help="Tokens in a KV block.")
@click.option(
    "--num-gpu-blocks-override",
    "num_gpu_blocks",
    type=_BLOCKS,
    default=524_289,
    show_default=True,
    help="KV blocks.",
)
@click.option("--max-num-seqs", type=_COUNT, default=4096, show_default=True, help="Sequences that run at once.")
@click.option("--ttft-ms", type=_MS, default=20.0, show_default=True, help="Time to a sequence's first token.")
@click.option("--itl-ms", type=_MS, default=5.0, show_default=True, help="Time between its tokens.")
@click.option(
    "--time-scale",
    type=_FACTOR,
    default=1.0,
    show_default=True,
    help="Simulated seconds in a real one.",
)
def command(
    listen: str,
    replica_id: str,
    model: str,
    seed: int,
    max_model_len: int,
    block_size: int,
    num_gpu_blocks: int,
    max_num_seqs: int,
    ttft_ms: float,
    itl_ms: float,
    time_scale: float,
) -> None:
    """Run one simulated vLLM replica. Ready when GET /health answers 200."""
    import logging
    import socket

    import uvloop

    from homing.sim.server import Options, serve

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter("must be HOST:PORT", param_hint="--listen")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        listener = socket.create_server((host.strip("[]"), int(port)), backlog=4096)
    except (OSError, OverflowError) as error:
        raise click.UsageError(f"--listen {listen}: {error}") from None
    options = Options(
        replica_id=replica_id,
        model=model,
        seed=seed,
        max_model_len=max_model_len,
        block_size=block_size,
        num_gpu_blocks=num_gpu_blocks,
        max_num_seqs=max_num_seqs,
        ttft_s=ttft_ms / 1000,
        itl_s=itl_ms / 1000,
        time_scale=time_scale,
    )
    uvloop.run(serve(options, listener))
