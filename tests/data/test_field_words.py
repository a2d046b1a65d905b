"""Words of the field: pages speak of bays and growers where the schema does, and no model depends on it."""

from dataclasses import replace
from typing import Any

import pytest

import ifonly
from ifonly.constraints import Constraints
from ifonly.data.field_words import CLINICAL, NEUTRAL, FieldWords
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.text.cases import assumption_messages, rule_messages
from ifonly.text.catalogue import catalogue

GREENHOUSE = FieldWords("bay", "bays", "growers")


def test_words_come_back_and_change_no_fingerprint() -> None:
    clinical = ifonly.simulate.sepsis_schema()
    assert clinical.words == CLINICAL
    green = replace(clinical, words=GREENHOUSE)
    assert Schema.from_dict(green.to_dict()) == green
    assert green.fingerprint == clinical.fingerprint
    plain = replace(clinical, words=NEUTRAL)
    assert "words" not in plain.to_dict()
    assert Schema.from_dict(plain.to_dict()).words == NEUTRAL
    part = Schema.from_dict({**plain.to_dict(), "words": {"deciders": "growers"}})
    assert part.words == FieldWords(deciders="growers")


@pytest.mark.parametrize("words", [{"subject": ""}, {"subject": 3}, {"subjects": " x"}, {"who": "bay"}, ["bay"]])
def test_words_that_are_none_are_refused(words: Any) -> None:
    with pytest.raises(InputError, match="schema: words"):
        Schema.from_dict({**ifonly.simulate.sepsis_schema().to_dict(), "words": words})


def test_no_clinicians_in_a_greenhouse() -> None:
    schema = replace(ifonly.simulate.sepsis_schema(), words=GREENHOUSE)
    rules = rule_messages(Constraints(), schema, support=True, min_support=0.1)
    said = " ".join(map(str, [*assumption_messages(schema, None, 1), *rules]))
    assert "how the bay did" in said
    assert "review by growers" in said
    assert "that growers chose" in said
    for word in ("patient", "clinician", "bedside"):
        assert word not in said
        assert not [code for code, text in catalogue().items() if word in text.lower()]
