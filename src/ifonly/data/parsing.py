"""JSON and YAML of unknown origin, parsed within limits: no key twice, no alias, nothing nested or long without end."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

DEEPEST = 64
"""How far lists and mappings may be nested."""
MOST_DIGITS = 400
"""Of a whole number; any float64 has fewer."""
MOST_ENTRIES = 3_000_000
"""Of a JSON text, empty lists and mappings among them: each takes many times its letters in memory."""
MOST_PARTS = 500_000
"""Keys, lists and mappings among them, which take more time and memory than numbers do."""
MOST_BYTES_OF_YAML = 2**20
"""YAML is read slowly; what is larger can be written as JSON."""


class UnfitError(ValueError):
    """What is well-formed, and still is not taken."""


def parse_json(text: str, *, once: bool = False) -> Any:
    """The value in a JSON text; a `ValueError` says what is wrong with it. With `once`, no key may occur twice."""
    if sum(map(text.count, ",[{")) > MOST_ENTRIES:
        raise UnfitError(f"more than {MOST_ENTRIES:,} entries of JSON are not read; split them over several files")
    if sum(map(text.count, ":[{")) > MOST_PARTS:
        raise UnfitError(
            f"more than {MOST_PARTS:,} keys, lists and mappings of JSON are not read; no file of ifonly has as many"
        )
    try:
        content = json.loads(text, object_pairs_hook=_checked_pairs if once else None, parse_int=_whole)
    except RecursionError:
        raise _too_deep() from None
    _check_depth(content)
    return content


def parse_yaml(text: str) -> Any:
    """The value in a YAML text; a `ValueError` says what is wrong with it. No key may occur twice."""
    if len(text) > MOST_BYTES_OF_YAML:
        raise UnfitError(f"more than {MOST_BYTES_OF_YAML:,} letters of YAML are not read; write it as JSON")
    try:
        return yaml.load(text, _YamlLoader)
    except yaml.MarkedYAMLError as error:
        raise ValueError(_fault(error)) from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _fault(error: yaml.MarkedYAMLError) -> str:
    """Where the text stops being YAML, and why, on one line."""
    at, begun = error.problem_mark, error.context_mark
    problem = "a tab; indent with spaces" if "'\\t'" in str(error.problem) else str(error.problem)
    since = "" if begun is None else f", {error.context} that begins in line {begun.line + 1}"
    return problem + since if at is None else f"line {at.line + 1}, column {at.column + 1}: {problem}{since}"


def yaml_text(content: Mapping[str, Any], *, width: int = 80) -> str:
    """The content of a YAML file, in the order given and without aliases, which `parse_yaml` refuses."""
    return yaml.dump(content, Dumper=_YamlDumper, sort_keys=False, allow_unicode=True, width=width)


class _YamlDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _checked_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = min(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise UnfitError(f"the key {_short(twice)} occurs twice in one mapping; keep one of them")
    return content


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise UnfitError(f"a whole number of {len(text):,} digits is not taken; write at most {MOST_DIGITS}")
    return int(text)


def _check_depth(content: Any) -> None:
    level, depth = [content], 0
    while level := [inner for value in level for inner in _inside(value)]:
        depth += 1
        if depth > DEEPEST:
            raise _too_deep()


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _too_deep() -> UnfitError:
    return UnfitError(f"lists and mappings are nested more than {DEEPEST} deep, which no file of ifonly is")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _YamlLoader(yaml.SafeLoader):
    """Plain values only, no key twice, nothing deep, no alias: a few can stand for more than a memory holds."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            line = 0 if event.start_mark is None else event.start_mark.line + 1
            raise UnfitError(
                f"line {line}: an alias, *{str(event.anchor)[:40]}, is not taken; write out what it stands for"
            )
        if self.depth > DEEPEST:
            raise _too_deep()
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                place = f"line {key.start_mark.line + 1}: the key {_short(key.value)} occurs twice"
                raise UnfitError(f"{place}; keep one of them")
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """A number of reasonable length: 0xFFF... has no limit of its own, 1:30:... is a product of sixties."""
        if len(node.value) > MOST_DIGITS:
            raise UnfitError(f"line {node.start_mark.line + 1}: a number of {len(node.value):,} digits is not taken")
        try:
            construct = self.construct_yaml_int if node.tag.endswith(":int") else self.construct_yaml_float
            return construct(node)
        except (ValueError, OverflowError) as error:
            raise UnfitError(f"line {node.start_mark.line + 1}: {_short(node.value)} is no number ({error})") from None


for _kind in ("int", "float"):
    _YamlLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _YamlLoader.construct_number)
