import pytest

from homing.control.reload import Reloader, load
from homing.core.config import ConfigError


@pytest.fixture
def file(tmp_path, homing_yaml):
    path = tmp_path / "homing.yaml"
    path.write_text(homing_yaml("10.0.0.1:80"))
    return path


@pytest.fixture
def follow(file, background):
    def start(poll_s=0.02):
        applied = []
        reloader = Reloader(file, load(file), applied.append, poll_s, lambda: 1000.0)
        background(reloader.run())
        return reloader, applied

    return start


def addresses(config):
    return [str(r.address) for r in config.pools[0].replicas]


async def test_a_write_is_noticed(file, follow, homing_yaml, until):
    _, applied = follow()
    file.write_text(homing_yaml("10.0.0.2:80"))
    await until(lambda: applied)
    assert [addresses(c) for c in applied] == [["10.0.0.2:80"]]


async def test_a_rename_over_the_file_is_noticed(file, follow, homing_yaml, until):
    _, applied = follow()
    other = file.with_suffix(".new")
    other.write_text(homing_yaml("10.0.0.3:80"))
    other.replace(file)
    await until(lambda: applied)
    assert addresses(applied[0]) == ["10.0.0.3:80"]


async def test_asking_reads_at_once(file, follow, homing_yaml, until):
    reloader, applied = follow(poll_s=3600)
    file.write_text(homing_yaml("10.0.0.2:80"))
    reloader.ask()
    await until(lambda: applied)


async def test_a_bad_file_keeps_the_last_good_one_and_says_so_once(file, follow, homing_yaml, until, caplog):
    reloader, applied = follow()
    file.write_text(homing_yaml("10.0.0.2:80", more="lissten: 1\n"))
    await until(lambda: reloader.rejected)
    assert (reloader.refused.at_s, applied) == (1000.0, [])
    assert f"{file}:7: lissten: found an unknown key" in reloader.refused.why
    (line,) = (r.getMessage() for r in caplog.records if r.levelname == "ERROR")
    assert line.startswith("the file is refused, the last good one stays: ")
    assert "lissten" in line
    assert "\n" not in line
    file.write_text(homing_yaml("10.0.0.2:80"))
    await until(lambda: applied)
    assert reloader.refused is None


async def test_a_file_that_vanishes_and_comes_back_equal_changes_nothing(file, follow, until, caplog):
    caplog.set_level("INFO")
    reloader, applied = follow()
    text = file.read_text()
    await until(lambda: reloader._read is not None)
    file.unlink()
    await until(lambda: reloader.refused is not None)
    file.write_text(text)
    await until(lambda: reloader.refused is None)
    assert applied == []
    assert caplog.records[-1].getMessage().endswith(": good again, and as it was")


def test_a_missing_file_is_a_problem_of_the_file(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.yaml")
    assert (
        str(caught.value)
        == f"{tmp_path}/none.yaml: found no such file or directory, allowed: a file that can be read (-c FILE)"
    )


def test_a_directory_is_a_problem_of_the_file(tmp_path):
    with pytest.raises(ConfigError, match="is a directory"):
        load(tmp_path)
