"""Which replica is asked: turns, load, rest, and names that stand for several processes."""

import asyncio
import socket
from typing import Any

import pytest

from gateway import replicas as module
from gateway.replicas import Replicas

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def urls(replicas: Replicas) -> list[str]:
    return [replica.url for replica in await replicas.ordered()]


async def test_they_take_turns() -> None:
    replicas = Replicas(["http://127.0.0.1:1/", "http://127.0.0.1:2"])
    firsts = [(await urls(replicas))[0] for _ in range(4)]
    assert sorted(firsts) == ["http://127.0.0.1:1"] * 2 + ["http://127.0.0.1:2"] * 2


async def test_the_less_busy_one_is_first_and_a_resting_one_last() -> None:
    replicas = Replicas(["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"])
    one, two, three = replicas.all
    one.running, two.running = 2, 1
    three.rest()
    assert await urls(replicas) == [two.url, one.url, three.url]


async def test_a_name_with_two_addresses_is_two_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """As container networks tell the replicas of a service; a replica that is still there keeps its counts."""
    answers: list[list[str]] = [["10.0.0.1", "10.0.0.2"], ["10.0.0.2", "10.0.0.3"]]

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        assert (host, port) == ("derender", 8003)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers[0]]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr(module, "RESOLVE_SECONDS", -1.0)
    replicas = Replicas(["http://derender:8003"])
    assert sorted(await urls(replicas)) == ["http://10.0.0.1:8003", "http://10.0.0.2:8003"]
    kept = next(replica for replica in replicas.all if "10.0.0.2" in replica.url)
    answers.pop(0)
    assert sorted(await urls(replicas)) == ["http://10.0.0.2:8003", "http://10.0.0.3:8003"]
    assert kept in replicas.all


async def test_a_name_that_cannot_be_resolved_is_left_to_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror("no such name")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    assert await urls(Replicas(["http://nowhere:1"])) == ["http://nowhere:1"]


async def test_https_names_stay_names() -> None:
    assert await urls(Replicas(["https://render.example/base"])) == ["https://render.example/base"]
