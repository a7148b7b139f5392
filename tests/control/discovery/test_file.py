import pytest

from homing.control.discovery.file import FileSource
from homing.control.discovery.source import Found, SourceError

A, B = Found("a", "10.0.0.1:80"), Found("b", "vllm-b:80", 2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "replicas.yaml"


def replace(path, text):
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


async def test_replicas_are_read_again_after_every_change(path, follow):
    replace(path, "- {id: a, address: 10.0.0.1:80}\n")
    said = follow(FileSource(path, poll_s=0.01))
    assert await said.next() == (A,)
    replace(
        path, '{"replicas": [{"id": "a", "address": "10.0.0.1:80"}, {"id": "b", "address": "vllm-b:80", "weight": 2}]}'
    )
    assert await said.next() == (A, B)
    replace(path, "- {id: a, address: 10.0.0.1:80, dp_size: 2}\n")
    assert await said.next() == tuple(Found(f"a-{rank}", "10.0.0.1:80", rank=rank) for rank in range(2))
    replace(path, "[]")
    assert await said.next() == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- {id: a}", "replicas"),
        ("- {id: a, address: nowhere}", "host:port"),
        ("- {id: a, address: 'h:1'}\n- {id: a, address: 'h:2'}", "twice"),
        ("- {id: a, address: 'h:1'}\n- {id: b, address: 'h:1'}", "twice"),
        ("- {id: a, address: 'h:1', dp_size: 2}\n- {id: a-1, address: 'h:2'}", "twice"),
        ("pools: {}", "replicas"),
        ("a: [", "YAML"),
        ("7", "replicas"),
    ],
)
async def test_a_file_that_is_none_is_a_failure(path, follow, text, why):
    replace(path, text)
    with pytest.raises(SourceError, match=why):
        await follow(FileSource(path)).next()


async def test_a_missing_file_is_a_failure(path, follow):
    with pytest.raises(SourceError, match="no such file"):
        await follow(FileSource(path)).next()
