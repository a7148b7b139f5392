import pytest

from homing.cli.sim import command
from homing.sim.engines import EngineOptions, OptionError, build_engine
from homing.sim.presets import load_presets
from homing.sim.time_model import Gpu, ModelShape, Roofline, StepLoad

GPU = Gpu(flops=1e12, bandwidth=1e9, memory=10e9)
SHAPE = ModelShape(parameters=1e9, bytes_per_parameter=1, layers=2, hidden_size=100, kv_heads=1, head_dim=25)
MODEL = Roofline(GPU, SHAPE, compute_share=0.5, bandwidth_share=0.5, overhead_s=0.25)


def test_a_small_decode_step_takes_the_loading_of_the_weights_and_the_context():
    # 1e9 bytes at 0.5e9 bytes/s; 200 bytes of KV a token at the same.
    assert SHAPE.kv_bytes_per_token == 200
    assert MODEL.step_s(StepLoad(1, 1_000_000, 1)) == pytest.approx(0.25 + 2.0 + 0.4)


def test_a_large_prefill_step_takes_the_computing():
    # 2 * 1e9 * 10_000 operations at 0.5e12 a second; 4 * 2 * 100 * 1e10 at the same.
    assert MODEL.step_s(StepLoad(10_000, 10_000, 10**10)) == pytest.approx(0.25 + 40.0 + 16.0)


def test_speed_divides_all():
    load = StepLoad(7, 300, 1000)
    fast = Roofline(GPU, SHAPE, 0.5, 0.5, 0.25, speed=4.0)
    assert fast.step_s(load) == MODEL.step_s(load) / 4


def test_kv_blocks_fill_what_the_weights_leave():
    assert MODEL.kv_blocks(16, 0.9) == 8_000_000_000 // 3200


@pytest.mark.parametrize(
    ("name", "decode_ms", "prefill_8k_ms"), [("h100-llama-8b", 8.39, 276.1), ("a100-llama-8b", 13.50, 872.2)]
)
def test_presets_give_what_their_figures_say(name, decode_ms, prefill_8k_ms):
    model = load_presets()[name].roofline(1.0)
    assert model.step_s(StepLoad(1, 1, 1)) * 1000 == pytest.approx(decode_ms, rel=0.001)
    assert model.step_s(StepLoad(8192, 8192, 8192 * 8193 // 2)) * 1000 == pytest.approx(prefill_8k_ms, rel=0.001)


def test_the_command_offers_the_presets_of_the_file():
    (option,) = (option for option in command.params if option.name == "preset")
    assert set(option.type.choices) == set(load_presets())


def test_flags_win_over_the_preset():
    engine, length = build_engine(EngineOptions(preset="a100-llama-8b", num_gpu_blocks=1001, max_model_len=2000))
    assert (engine.cache.shape.num_blocks, length) == (1001, 2000)


def test_the_default_length_is_what_the_cache_holds():
    assert build_engine(EngineOptions(preset="a100-llama-8b", num_gpu_blocks=1001))[1] == 16_000


def test_a_length_that_the_cache_cannot_hold_is_refused():
    with pytest.raises(OptionError, match="--max-model-len 16001: the KV cache holds 16000 tokens"):
        build_engine(EngineOptions(num_gpu_blocks=1001, max_model_len=16_001))
