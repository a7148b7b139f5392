"""What users install: only the package, and nothing that it needs."""

from __future__ import annotations

import subprocess
import sys
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

CLIENT = Path(__file__).parents[2] / "client"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory))
    subprocess.run(command, cwd=CLIENT, check=True, capture_output=True, timeout=60)
    [built] = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    source = CLIENT / "src"
    with ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if ".dist-info/" not in name]
    expected = [path for path in source.rglob("*") if path.suffix == ".py" or path.name == "py.typed"]
    assert sorted(files) == sorted(str(path.relative_to(source)) for path in expected)
    assert "homing_client/py.typed" in files
    assert {name.partition("/")[0] for name in files} == {"homing_client"}


def test_the_wheel_requires_nothing_but_as_extras(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist", [])
    assert [line for line in required if "extra ==" not in line] == []
    assert sorted(metadata.get_all("Provides-Extra", [])) == ["httpx", "openai"]


def test_the_wheel_is_homing_client_for_python_3_10(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Requires-Python"]) == ("homing-client", ">=3.10")


def test_the_package_works_where_nothing_else_is_installed(wheel: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); import homing_client; "
        "assert homing_client.Conversation('s').id == 's'; "
        "print(*sorted({n.partition('.')[0] for n in set(sys.modules) - before} - sys.stdlib_module_names))"
    )
    command = (sys.executable, "-I", "-S", "-c", program, str(wheel))
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["homing_client"]
