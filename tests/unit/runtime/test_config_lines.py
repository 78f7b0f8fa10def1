"""Where keys stand in a TOML text."""

import tomli
from hypothesis import given
from hypothesis import strategies as st

from coalloc.runtime.config.lines import key_lines, line_of

TEXT = '''\
# [not.a.header]
top = 1
[a.b]            # 3
x = "# no comment"
'y z'."w" = 1    # 5
text = """
[[a]]
key = 1
"""              # 9
after = \'\'\'
]\'\'\'
[[list]]         # 12
n = [ 1, # ]
  "]", { q = 1 },
  [2, 3],
]
[[list]]         # 17
n = { r = 1, s = [
  2,
] }
[list.inner]     # 21
deep = \'#\'
[[list.more]]    # 23
k = 2020-01-01 00:00:00
[[list.more]]    # 25
k = -1_000.5e-3  # 26
'''


def test_lines_are_found() -> None:
    tomli.loads(TEXT)
    lines = key_lines(TEXT)
    expected = {
        ("top",): 2,
        ("a", "b"): 3,
        ("a", "b", "x"): 4,
        ("a", "b", "y z"): 5,
        ("a", "b", "y z", "w"): 5,
        ("a", "b", "text"): 6,
        ("a", "b", "after"): 10,
        ("list",): 12,
        ("list", 0): 12,
        ("list", 0, "n"): 13,
        ("list", 0, "n", 0): 13,
        ("list", 0, "n", 1): 14,
        ("list", 0, "n", 2): 14,
        ("list", 0, "n", 2, "q"): 14,
        ("list", 0, "n", 3): 15,
        ("list", 0, "n", 3, 0): 15,
        ("list", 0, "n", 3, 1): 15,
        ("list", 1): 17,
        ("list", 1, "n"): 18,
        ("list", 1, "n", "r"): 18,
        ("list", 1, "n", "s"): 18,
        ("list", 1, "n", "s", 0): 19,
        ("list", 1, "inner"): 21,
        ("list", 1, "inner", "deep"): 22,
        ("list", 1, "more"): 23,
        ("list", 1, "more", 0): 23,
        ("list", 1, "more", 0, "k"): 24,
        ("list", 1, "more", 1): 25,
        ("list", 1, "more", 1, "k"): 26,
    }
    assert lines == expected


def test_missing_keys_point_at_their_table() -> None:
    lines = key_lines(TEXT)
    assert line_of(lines, ("list", 1, "name")) == 17
    assert line_of(lines, ("a", "b", "z")) == 3
    assert line_of(lines, ("other",)) == 1


KEYS = st.text(st.sampled_from("ab.#'\"]\\ é="), min_size=1, max_size=4)
VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(char):08x}" for char in text) + '"'


def inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(k)} = {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",\n".join(map(inline, value)) + "\n]"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else str(value)


def paths(value: object, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    found = {path} - {()}
    if isinstance(value, dict):
        for key, item in value.items():
            found |= paths(item, (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            found |= paths(item, (*path, index))
    return found


@given(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=3), max_size=3))
def test_every_path_of_a_valid_text_is_found(value: dict[str, dict[str, object]]) -> None:
    text = "".join(
        f"[{quoted(name)}]\n"
        + "".join(f"{quoted(k)}={inline(v)} # end\n" for k, v in table.items())
        for name, table in value.items()
    )
    try:
        assert tomli.loads(text) == value
    except tomli.TOMLDecodeError:  # integers of any size and the like: not ours to accept
        return
    lines = key_lines(text)
    assert set(lines) == paths(value)
    numbers = [lines[(name,)] for name in value]
    assert numbers == sorted(numbers)
