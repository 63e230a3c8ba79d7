"""Reading YAML with places, within bounds."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metagen.errors import ConfigError
from metagen.runs.declare import source
from metagen.runs.declare.source import Place, parse, read, write


def test_values_and_their_places() -> None:
    text = "name: x\ngrid:\n  n: [1,\n      2]\nbudget: {flops: 1e12}\n"
    found = parse(text, "q.yaml")
    assert found.data == {"name": "x", "grid": {"n": [1, 2]}, "budget": {"flops": 1e12}}
    assert found.faults == []
    assert str(found.place(("grid", "n"))) == "q.yaml:3"
    assert found.place(("grid", "n", 1)) == Place("q.yaml", 4, 7)
    assert found.place(("grid", "nothing", "of", "it")) == Place("q.yaml", 2, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("true", True), ("~", None), ("", None), ("010", 10), ("1_000", 1000), ("1e3", 1000.0),
        ("-.5", -0.5), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"), ("'1'", "1"), (".inf", float("inf")),
        ("0x1f", "0x1f"), ("-.inf", float("-inf")),
    ],
)  # fmt: skip
def test_plain_scalars_are_those_of_the_core_schema(text: str, value: object) -> None:
    found = parse(f"a: {text}").data["a"]
    assert found == value
    assert type(found) is type(value)


def test_an_alias_and_a_merge_are_written_out() -> None:
    text = "base: &b {x: 1, y: 2}\nlike: {<<: *b, y: 3}\nboth: {<<: [{x: 5}, *b]}\nsame: *b\n"
    found = parse(text, "q.yaml")
    assert found.data["like"] == {"x": 1, "y": 3}
    assert found.data["both"] == {"x": 5, "y": 2}
    assert found.data["same"] == {"x": 1, "y": 2}
    assert found.faults == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1,\nb: }", "q.yaml:2:4: not YAML"),
        ("a: b: c", "q.yaml:1:5: not YAML: mapping values are not allowed here"),
        ("{a: 1}\n---\n{b: 2}", "q.yaml:2:1: not YAML: expected a single document"),
        ("a: 1\nb: *x", "q.yaml:2:4: not YAML: found undefined alias"),
        ("a: 1\nb: \x01", "q.yaml:2: character 0x1 is not allowed"),
        ("- 1", "q.yaml:1: the file holds a list; expected a mapping"),
        ("", "q.yaml:1: the file is empty; expected a mapping"),
        ("a: 1\n" + "b: " + "[" * 100, "q.yaml:2: values are nested deeper than 32"),
        ("a: &a [*a]", "q.yaml:1: values are nested deeper than 32"),
        ("a: &a {<<: *a}", "q.yaml:1: values are nested deeper than 32"),
        ("a: [" + "1," * 30_000 + "]", "q.yaml:1: more than 20,000 values"),
    ],
)
def test_what_is_no_experiment_file_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text, "q.yaml")
    assert str(error.value).startswith(message)


def test_anchors_cannot_explode() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    with pytest.raises(ConfigError, match=r"q.yaml:1: more than 20,000 values, with aliases written out"):
        parse("\n".join(lines), "q.yaml")


def test_faults_that_leave_the_rest_readable_are_collected() -> None:
    found = parse("a: 1\nb: {c: 1, c: 2}\na: 3\nd: !!python/object:os.system x\n? [1]\n: 2\n", "q.yaml")
    assert found.data == {"a": 1, "b": {"c": 1}, "d": "x"}
    assert [str(fault) for fault in found.faults] == [
        "q.yaml:2: b.c: given twice, first on line 2; remove one",
        "q.yaml:3: a: given twice, first on line 1; remove one",
        "q.yaml:4: d: tag 'tag:yaml.org,2002:python/object:os.system' is unknown; remove it",
        "q.yaml:5: a key is a list or a mapping; expected a name",
    ]


def test_a_number_too_long_for_python_is_a_fault() -> None:
    (fault,) = parse("a: " + "9" * 5_000).faults
    assert "expected int, cannot read '999" in str(fault)


def test_a_file_of_50_mb_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(50_000_000)
    monkeypatch.setattr(source, "parse", lambda *_: pytest.fail("parsed"))
    with pytest.raises(ConfigError) as error:
        read(path)
    assert "large.yaml has 50,000,000 bytes, an experiment file may have 1,000,000" in str(error.value)


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: x\ntask: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin.yaml:2: byte 0xe9 is not UTF-8; save the file as UTF-8"):
        read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read '.*none.yaml': No such file"):
        read(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"cannot read .*: Is a directory"):
        read(tmp_path)


class TestAssign:
    text = "grid: {n: [1]}\ngenerators:\n  mid: {t: 1}\n  v1.5: {t: 1}\n"

    def assigned(self, *assignments: str) -> source.Source:
        found = parse(self.text, "q.yaml")
        for assignment in assignments:
            found.assign(assignment, named=("generators",))
        return found

    def test_values_are_yaml_and_their_place_is_the_option(self) -> None:
        found = self.assigned("grid.n=[1, 4]", "generators.mid.t=0.5", "name=x=y")
        assert found.data["grid"]["n"] == [1, 4]
        assert found.data["generators"]["mid"] == {"t": 0.5}
        assert found.data["name"] == "x=y"
        assert str(found.place(("grid", "n", 1))) == "--set grid.n=[1, 4]"
        assert found.faults == []

    def test_names_may_have_dots(self) -> None:
        assert self.assigned("generators.v1.5.t=2").data["generators"]["v1.5"] == {"t": 2}

    def test_mappings_and_definitions_may_be_new(self) -> None:
        found = self.assigned("budget.generated=5", "generators.hot={t: 2}")
        assert found.data["budget"] == {"generated": 5}
        assert found.data["generators"]["hot"] == {"t": 2}

    @pytest.mark.parametrize(
        ("assignment", "message"),
        [
            ("generators.mdi.t=2", "generators.mdi: there is no 'mdi' in 'generators' to set this in "
             "(there is mid, v1.5); did you mean 'mid'?"),
            ("grid.n.x=1", "grid.n = [1]: is no mapping; set it as a whole"),
            ("grid", "expected key=value, such as --set grid.n=[1,4]"),
            ("grid.n=[1", "the value is not YAML"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_set(self, assignment: str, message: str) -> None:
        (fault,) = self.assigned(assignment).faults
        assert str(fault).startswith(f"--set {assignment}: {message}")


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), values))
def test_what_is_written_is_read_back(data: dict[str, object]) -> None:
    found = parse(write(data))
    assert found.data == data
    assert found.faults == []
