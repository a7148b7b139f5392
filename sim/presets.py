"""Named hardware, from `presets.yaml`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from homing.sim.time_model import Gpu, ModelShape, Roofline


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gpu: Gpu
    shape: ModelShape
    compute_share: float
    bandwidth_share: float
    overhead_s: float
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int

    def roofline(self, speed: float) -> Roofline:
        """`speed` 2 is a GPU twice as fast."""
        return Roofline(self.gpu, self.shape, self.compute_share, self.bandwidth_share, self.overhead_s, speed)


def load_presets() -> dict[str, Preset]:
    text = Path(__file__).with_name("presets.yaml").read_text()
    return msgspec.yaml.decode(text, type=dict[str, Preset])
