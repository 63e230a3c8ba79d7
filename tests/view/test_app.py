"""The web app: it answers GET alone, under its own name, and gives no file but its own."""

import json
from collections.abc import Iterator

import pytest

from metagen.view import app
from tests.view.conftest import FIRST, SEARCH, Runs, desk

starlette = pytest.importorskip("starlette.testclient", reason="pip install 'metageneration[view]' httpx")


@pytest.fixture(scope="module")
def client(runs: Runs) -> Iterator[object]:
    with desk(runs.root) as told, starlette.TestClient(app.make(told), base_url="http://127.0.0.1") as made:
        yield made


ADDRESSES = (
    "/", "/assets/main.js", "/assets/view.css", "/assets/uPlot.js", "/api/runs", "/api/run?run=one",
    "/api/results?run=one", "/api/problems?run=one&sort=right&count=2", f"/api/beside?run=one&problem={FIRST}",
    "/api/experiment?run=one", f"/api/problem?run=one&problem={FIRST}",
    f"/api/replay?run=one&problem={FIRST}&configuration={SEARCH}", f"/api/recipe?run=one&configuration={SEARCH}",
    "/api/compare?a=one&b=two", "/report?run=one",
)  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_address_answers_with_headers_that_let_nothing_else_in(client, address: str) -> None:  # type: ignore[no-untyped-def]
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers
    if address.startswith("/api"):
        json.loads(answer.text)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_nothing_but_get_is_answered(client, address: str, method: str) -> None:  # type: ignore[no-untyped-def]
    assert getattr(client, method)(address).status_code == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8765", ""]
)
def test_another_host_name_is_refused(client, host: str) -> None:  # type: ignore[no-untyped-def]
    assert client.get("/api/runs", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:1234", "localhost"])
def test_its_own_host_names_are_answered(client, host: str) -> None:  # type: ignore[no-untyped-def]
    assert client.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "address",
    [
        "/assets/../desk.py", "/assets/%2e%2e/desk.py", "/assets/..%2f..%2fdesk.py", "/assets/%2fetc%2fpasswd",
        "/assets/desk.py", "/etc/passwd", "/api/run?run=../one", "/api/experiment?run=%2fetc", "/report?run=one%2f..",
        "/api/experiment?run=", "/api/problem?run=one", "/api/problem?run=one&problem=../../x",
    ],
)  # fmt: skip
def test_what_is_outside_is_not_found(client, address: str) -> None:  # type: ignore[no-untyped-def]
    answer = client.get(address)
    assert answer.status_code == 404
    assert "root:" not in answer.text and "class Desk" not in answer.text


@pytest.mark.parametrize("part", ["start=-1", "count=many", "sort=worst", "start=99999999999"])
def test_a_list_that_cannot_be_is_an_error(client, part: str) -> None:  # type: ignore[no-untyped-def]
    answer = client.get(f"/api/problems?run=one&{part}")
    assert answer.status_code == 404 and part.partition("=")[2] in answer.json()["error"]


def test_a_page_of_the_list_is_a_part_of_it(client) -> None:  # type: ignore[no-untyped-def]
    whole = client.get("/api/problems?run=one&sort=right").json()
    part = client.get("/api/problems?run=one&sort=right&start=1&count=2").json()
    assert part["problems"] == whole["problems"][1:3] and part["total"] == whole["total"] == 4


def test_a_report_stands_in_an_origin_of_its_own(client) -> None:  # type: ignore[no-untyped-def]
    policy = client.get("/report?run=one").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts") and "allow-same-origin" not in policy
    assert "connect-src" not in policy


def test_an_error_is_a_sentence(client) -> None:  # type: ignore[no-untyped-def]
    answer = client.get("/api/run?run=on")
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("there is no run 'on' here; did you mean 'one'")
