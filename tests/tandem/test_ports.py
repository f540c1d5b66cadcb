import socket
from collections.abc import Iterator

import pytest

from tandem.ports import PortError, Wanted, claim, url
from tests.tandem.servers import free_port

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_free_ports_are_given_back_as_wanted() -> None:
    first, second = free_port(), free_port()
    assert claim([Wanted("a", HOST, first, "--a-port"), Wanted("b", HOST, second, "--b-port")]) == [first, second]


def test_zero_takes_ports_that_differ() -> None:
    ports = claim(Wanted("a", HOST, 0, "--a-port") for _ in range(8))
    assert len(set(ports)) == 8
    assert 0 not in ports


def test_a_taken_port_is_named_with_its_flag(taken: int) -> None:
    with pytest.raises(PortError, match=rf"render cannot listen on {HOST}:{taken}: .*--render-port"):
        claim([Wanted("render", HOST, taken, "--render-port")])


def test_every_problem_is_told_at_once(taken: int) -> None:
    port = free_port()
    wanted = [Wanted("a", HOST, taken, "--a-port"), Wanted("b", HOST, port, "--b-port"), Wanted("c", HOST, port, "--c-port")]
    with pytest.raises(PortError) as raised:
        claim(wanted)
    assert "--a-port" in str(raised.value)
    assert f"b (--b-port) and c (--c-port) both want port {port}" in str(raised.value)


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(PortError, match=r"192\.0\.2\.1"):
        claim([Wanted("a", "192.0.2.1", 0, "--a-port")])


@pytest.mark.parametrize(
    ("host", "expected"), [("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1"), ("10.0.0.1", "http://10.0.0.1:1")]
)
def test_url_is_reachable_from_here(host: str, expected: str) -> None:
    assert url(host, 1) == expected
