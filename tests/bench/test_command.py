"""`tandem bench` as a person meets it: one line for what cannot be, files that say what they are, two runs side by side."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tandem.bench import files, plots
from tandem.bench.compare import numbers, outputs, pairs_of_points
from tandem.bench.settings import BenchSettings
from tests.bench.kit import ran
from tests.deploy.files import clean_environment
from tests.gateway.kit import replay_worker, standing
from tests.live import serving
from tests.tandem.servers import free_port
from tests.tandem.test_chat import CTRL_C, Terminal

COMMAND = [sys.executable, "-m", "tandem", "bench"]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[str]:
    with serving(replay_worker(tmp_path, replay_tokens_per_second=500)) as url:
        yield url


def tandem_bench(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    output = [] if folder is None else ["--output", str(folder)]
    variables = clean_environment(**environment)
    return subprocess.run([*COMMAND, *output, *arguments], capture_output=True, text=True, timeout=60, env=variables, check=False)


def refused(*arguments: str, **environment: str) -> str:
    """The one line of a bench that did not begin."""
    done = tandem_bench(*arguments, **environment)
    assert done.returncode == 2, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("tandem: ")
    return line


def test_bad_options_are_one_line() -> None:
    assert refused("--concurrency", "2,0") == "tandem: --concurrency 2,0: input should be greater than or equal to 1"
    assert "--arrival-rate" in refused("--concurrency", "2", "--arrival-rate", "3")
    assert "TANDEM_SEED" in refused(TANDEM_SEED="x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"scenario": "nope"}, "short-short"),
        ({"scenario": "burst"}, "--arrival-rate"),
        ({"scenario": "mixed", "requests_file": "x"}, "not both"),
        ({"concurrency": [2, 2]}, "each load once"),
        ({"arrival_rate": [0]}, "greater than 0"),
        ({"url": "127.0.0.1:8000"}, "http://"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BenchSettings(**given)  # type: ignore[arg-type]


def test_several_loads_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_CONCURRENCY", "1,2,4")
    assert BenchSettings().concurrency == [1, 2, 4]


def test_nobody_there_or_somebody_else_is_one_line(worker: str) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    assert f"no OpenAI server at {nobody}" in refused("--url", nobody)
    assert f"no worker at {nobody}" in refused("--target", "worker", "--url", nobody)
    render, (derender, *_) = standing()
    line = refused("--target", "worker", "--url", render)
    assert f"no worker at {render}: POST /inference/v1/generate answers 404" in line
    line = refused("--target", "pipeline", "--url", worker, "--render-url", derender, "--derender-url", derender)
    assert "no render service" in line
    assert "--render-url" in line
    assert "no OpenAI server" in refused("--url", worker)


def test_requests_that_the_server_refuses_are_one_line_and_leave_nothing_behind(worker: str, tmp_path: Path) -> None:
    line = refused("--target", "worker", "--url", worker, "--vocab-size", "1000000", "--output", str(tmp_path / "out"))
    assert "no token id of the model" in line
    assert not (tmp_path / "out").exists()
    assert "`nope`" in refused("--target", "worker", "--url", worker, "--model", "nope")


def test_a_key_is_asked_for_and_kept_to_itself(tmp_path: Path) -> None:
    with serving(replay_worker(tmp_path, api_key="secret-key")) as url:
        assert "--api-key" in refused("--target", "worker", "--url", url)
        made = ran(tmp_path, target="worker", url=url, requests=1, api_key="secret-key")
    assert made.code == 0
    assert all(b"secret-key" not in path.read_bytes() for path in made.folder.iterdir())


def test_an_output_that_cannot_be_is_one_line(worker: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--output" in refused("--target", "worker", "--url", worker, "--output", str(tmp_path / "file"))


def test_a_run_is_a_table_and_a_folder_that_says_what_it_was(worker: str, tmp_path: Path) -> None:
    done = tandem_bench("--target", "worker", "--url", worker, "--requests", "4", "--seed", "7", folder=tmp_path / "out")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"worker-short-short-c4-seed7-\d{8}T\d{6}", folder.name)
    assert done.stderr.splitlines()[-1] == f"written to {folder}"
    assert "4 of 4 requests completed" in done.stdout
    assert re.search(r"client: first token +[\d.]+ ", done.stdout)
    assert re.search(r"server: first token +[\d.]+ ", done.stdout)
    run = files.read_run(folder)
    assert run.configuration | {"seed": 7, "concurrency": [4], "requests": 4, "scenario": "short-short"} == run.configuration
    assert run.definitions["client.ttft"]
    assert [row["index"] for row in files.read_rows(folder)] == [0, 1, 2, 3]
    pngs = {path.name for path in folder.iterdir() if path.read_bytes().startswith(PNG)}
    assert pngs == {plots.CDF, plots.THROUGHPUT}
    assert plots.TTFT in done.stderr


def test_several_loads_are_plotted_against_each_other(worker: str, tmp_path: Path) -> None:
    made = ran(tmp_path, target="worker", url=worker, requests=3, concurrency=[1, 3], plots=True)
    assert {path.name for path in made.folder.glob("*.png")} == {plots.CDF, plots.THROUGHPUT, plots.TTFT}
    assert "c1_c3" in made.folder.name
    made = ran(tmp_path, target="worker", url=worker, requests=3, arrival_rate=[20.0, 50.0], plots=True)
    assert (made.folder / plots.TTFT).exists()
    assert "r20_r50" in made.folder.name


def test_without_matplotlib_a_line_says_how_to_get_it(
    worker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    made = ran(tmp_path, target="worker", url=worker, requests=2, plots=True)
    assert made.code == 0
    assert not list(made.folder.glob("*.png"))
    assert "tandem-serving[bench]" in capsys.readouterr().err


def test_two_runs_in_one_second_have_two_folders(tmp_path: Path) -> None:
    names = [files.make_folder(tmp_path / "new", "n").name for _ in range(3)]
    assert names == ["n", "n-2", "n-3"]


def test_ctrl_c_writes_what_there_is(tmp_path: Path) -> None:
    with serving(replay_worker(tmp_path, replay_tokens_per_second=100)) as url:
        command = [*COMMAND, "--target", "worker", "--url", url, "--requests", "1000", "--warm-up", "0", "--concurrency", "4"]
        out = tmp_path / "out"
        # A suite that runs in the background of a shell has Ctrl-C ignored, and so would what it starts: the bench takes it anyway.
        with subprocess.Popen([*command, "--output", str(out)], stdout=subprocess.PIPE, env=clean_environment()) as process:
            deadline = time.monotonic() + 30
            while _generated(url) < 150:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
        deadline = time.monotonic() + 5
        while " 0.0" not in _line(url, "tandem_requests_running"):
            assert time.monotonic() < deadline, "the worker still generates"
            time.sleep(0.05)
    (folder,) = out.iterdir()
    run = files.read_run(folder)
    assert run.interrupted
    (point,) = run.points
    assert point.requests.completed > 0
    assert point.requests.unfinished == 4
    assert point.requests.failed == 0
    assert [row["status"] for row in files.read_rows(folder)].count("unfinished") == 4


def _line(url: str, name: str) -> str:
    return next((line for line in httpx.get(f"{url}/metrics").text.splitlines() if line.startswith(f"{name} ")), f"{name} 0.0")


def _generated(url: str) -> float:
    return float(_line(url, "tandem_generated_tokens_total").split(" ")[1])


def test_at_a_terminal_a_bar_shows_rates(tmp_path: Path) -> None:
    with serving(replay_worker(tmp_path, replay_tokens_per_second=100)) as url:
        flags = ["--target", "worker", "--url", url, "--requests", "8", "--output", str(tmp_path / "out"), "--no-plots"]
        os.environ["COLUMNS"] = "150"
        try:
            with Terminal(*COMMAND, *flags) as terminal:
                terminal.until("tokens/s")
                terminal.until("8 of 8 requests completed")
                terminal.until("written to")
                assert terminal.exit_code() == 0
        finally:
            del os.environ["COLUMNS"]


def test_at_a_terminal_ctrl_c_ends_the_load(tmp_path: Path) -> None:
    with serving(replay_worker(tmp_path, replay_tokens_per_second=100)) as url:
        flags = ["--target", "worker", "--url", url, "--requests", "1000", "--output", str(tmp_path / "out"), "--no-plots"]
        with Terminal(*COMMAND, *flags) as terminal:
            terminal.until("running")
            terminal.type(CTRL_C)
            terminal.until("interrupted")
            terminal.until("unfinished")
            terminal.until("written to")
            assert terminal.exit_code() == 130


def test_compare_shows_both(worker: str, tmp_path: Path) -> None:
    a = ran(tmp_path, target="worker", url=worker, requests=4, concurrency=[1, 2])
    b = ran(tmp_path, target="worker", url=worker, requests=4, concurrency=[2, 4])
    done = tandem_bench("compare", str(a.folder), str(b.folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 at once" in done.stdout
    assert "1 at once" not in done.stdout
    assert re.search(r"requests completed +4 +4 +\+0.0%", done.stdout)
    assert "differs" not in done.stdout
    pairs = pairs_of_points(a.run, b.run)
    assert [(one.name, other.name) for one, other in pairs] == [("c2", "c2")]
    by_name = {pair.name: pair for pair in numbers(*pairs[0])}
    ttft = by_name["client: first token, p50"]
    assert (ttft.a, ttft.b) == (a.run.points[1].client["ttft"].p50, b.run.points[0].client["ttft"].p50)
    assert by_name["server: queue, mean"].a == a.run.points[1].server["queue"].mean
    # The second load of one run and the first of the other ask for other things; the first loads ask for the same.
    assert "none that can be compared" in outputs(a.rows, b.rows, "c2", "c2")
    assert "4 of 4 of the same requests are the same (sha256 of ids)" in outputs(a.rows, b.rows, "c1", "c2")


def test_compare_tells_what_differs(worker: str, tmp_path: Path) -> None:
    a = ran(tmp_path, target="worker", url=worker, requests=2, concurrency=[1])
    b = ran(tmp_path, target="worker", url=worker, requests=2, concurrency=[2], seed=1)
    done = tandem_bench("compare", str(a.folder), str(b.folder))
    assert "differs: seed: 0 / 1" in done.stdout
    assert "1 at once  /  2 at once" in done.stdout
    assert "none that can be compared" in done.stdout


def test_compare_refuses_what_is_no_run(worker: str, tmp_path: Path) -> None:
    made = ran(tmp_path, target="worker", url=worker, requests=1)
    assert "no folder of a run" in refused("compare", str(tmp_path / "nothing"), str(made.folder))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text(json.dumps({"format": 99}))
    assert "no run of `tandem bench`" in refused("compare", str(made.folder), str(tmp_path / "other"))
    assert "--seed" in refused("--seed", "1", "compare", str(made.folder), str(made.folder))


def test_help_names_the_flags_and_compare() -> None:
    text = tandem_bench("--help").stdout
    assert all(f"  {flag} " in text for flag in ("--target", "--concurrency", "--arrival-rate", "--warm-up", "--output"))
    assert re.search(r"^  compare +Show two runs", text, re.M)


def test_the_bench_loads_no_torch() -> None:
    heavy = "{'torch', 'transformers', 'matplotlib'} & set(sys.modules)"
    code = f"import sys, tandem.bench.run, tandem.bench.compare; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
