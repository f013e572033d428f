"""Script files: read, or refused with the path of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglr_dataplane.sim.script import (
    HealthChange,
    Incident,
    Play,
    RpcFault,
    Rule,
    Script,
    ScriptError,
    Status,
    When,
    load_script,
    parse_script,
    seconds,
)

FULL = """
rules:
  - when: {user: weather}
    times: 1
    play:
      pieces: ["Hel", "lo"]
      delay: 20ms
      incidents:
        - {after: 1, status: {code: INTERNAL, message: broken, trailers: {x-why: test}}}
        - {after: complete, die: exit}
  - play: [{ids: [1, 2]}, {text: two, complete: only}]
warmup: 1.5s
health: [{after: 2s, serving: false, service: ""}]
queue_full: unavailable
model_info: {served_model_name: other}
server_args: {context_length: null}
rpcs: {GetModelInfo: {status: {code: UNAVAILABLE}}, Check: {hang: true}}
"""


def test_everything_a_script_can_say_is_read() -> None:
    """The file and the Python API are the same values."""
    assert parse_script(FULL) == Script(
        rules=(
            Rule(
                when=When(user="weather"),
                times=1,
                play=Play(
                    pieces=("Hel", "lo"),
                    delay="20ms",
                    incidents=(
                        Incident(
                            after=1,
                            status=Status(
                                code="INTERNAL", message="broken", trailers={"x-why": "test"}
                            ),
                        ),
                        Incident(after="complete", die="exit"),
                    ),
                ),
            ),
            Rule(play=(Play(ids=(1, 2)), Play(text="two", complete="only"))),
        ),
        warmup="1.5s",
        health=(HealthChange(after="2s", serving=False, service=""),),
        queue_full="unavailable",
        model_info={"served_model_name": "other"},
        server_args={"context_length": None},
        rpcs={
            "GetModelInfo": RpcFault(status=Status(code="UNAVAILABLE")),
            "Check": RpcFault(hang=True),
        },
    )


@pytest.mark.parametrize("text", ["", "{}", "# only a comment\n"])
def test_nothing_is_the_empty_script(text: str) -> None:
    """A healthy worker with a small assistant."""
    assert parse_script(text) == Script()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules: 3", "$.rules"),
        ("rule: []", "unknown field `rule`"),
        ("rules: [{play: {text: 3}}]", "$.rules[0].play.text"),
        ("rules: [{play: {delay: 20}}]", "$.rules[0].play.delay"),
        ("rules: [{play: {delay: 20 ms}}]", "$.rules[0].play.delay"),
        ("rules: [{play: {ids: [-1]}}]", "$.rules[0].play.ids[0]"),
        ("rules: [{play: {text: a, ids: [1]}}]", "Only one of 'text'"),
        ("rules: [{play: {incidents: [{after: 1}]}}]", "exactly one of 'status'"),
        ("rules: [{play: {incidents: [{hang: true, die: exit}]}}]", "exactly one of 'status'"),
        ("rules: [{play: {}, times: 0}]", "$.rules[0].times"),
        ("rules: [{play: {incidents: [{status: {code: BROKEN}}]}}]", ".status.code"),
        ("rpcs: {GetModelinfo: {}}", "GetModelinfo"),
        ("rules: [", "not YAML"),
        ("- a list", "object"),
    ],
)
def test_what_is_wrong_is_named(text: str, told: str) -> None:
    """The path, or the sentence about the two things that do not go together."""
    with pytest.raises(ScriptError) as caught:
        parse_script(text)

    assert told in str(caught.value)


def test_a_files_errors_name_the_file(tmp_path: Path) -> None:
    """Missing, not text, or wrong."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_bytes(b"\xff\xfe\x00")

    for path in (wrong, tmp_path / "missing.yaml"):
        with pytest.raises(ScriptError, match=path.name):
            load_script(path)


def test_json_is_a_script_too(tmp_path: Path) -> None:
    """YAML contains it."""
    path = tmp_path / "script.json"
    path.write_text('{"rules": [{"play": {"text": "Hi"}}]}')

    assert load_script(path).rules[0].play == Play(text="Hi")


@pytest.mark.parametrize(("text", "value"), [("20ms", 0.02), ("1.5s", 1.5), ("0s", 0.0)])
def test_durations_in_seconds(text: str, value: float) -> None:
    """Milliseconds and seconds are what a script needs."""
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["20", "1m", "-1s", "s", "1e3s"])
def test_other_durations_are_refused(text: str) -> None:
    """Also from Python, where nothing was decoded."""
    with pytest.raises(ScriptError, match="Duration"):
        seconds(text)


def test_the_script_in_the_users_page_is_one() -> None:
    """What docs/sim-worker.md shows can be played."""
    page = Path(__file__).parents[3] / "docs" / "sim-worker.md"
    shown = page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    script = parse_script(shown)

    assert script.rules[0].play == Play(
        pieces=("It is ", "sunny."),
        delay="50ms",
        incidents=(Incident(after=1, status=Status(code="INTERNAL", message="out of memory")),),
    )
    assert script.rpcs == {"GetLoads": RpcFault(status=Status(code="UNIMPLEMENTED"))}
