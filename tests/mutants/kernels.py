"""Mutants of kernels, which take a record only where others would with the same result, and of what they gather."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_JSON, _NUMBERS = "sink_core/records/json/kernel.py", "sink_core/records/json/numbers.py"
_GATHER = "sink_core/kafka/gather.py"
_ANY_JSON = "tests/unit/records/json/test_kernel.py::test_any_records_of_any_columns"
_ALL_THEY_HAVE = "tests/integration/test_reader.py::test_records_come_with_all_that_they_have"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "json-field-twice",
        _JSON,
        "            good = stamps[field] != record\n",
        "            good = True\n",
        (_ANY_JSON,),
        "Of two values of one field the last would be stored, and nobody told that there was another.",
    ),
    Mutant(
        "json-raw-control-characters",
        _JSON,
        " | (word - _BLANKS) & ~word\n",
        "\n",
        (_ANY_JSON,),
        "Records that are no JSON would be stored.",
    ),
    Mutant(
        "json-int-beyond-its-type",
        _JSON,
        "(kind != INT or _INT_MIN <= found <= _INT_MAX)",
        "True",
        (_ANY_JSON,),
        "A number beyond an int would be stored as another one.",
    ),
    Mutant(
        "json-more-digits-than-bits",
        _NUMBERS,
        "        if power == 0 or digits > MOST_DIGITS:\n",
        "        if power == 0:\n",
        ("tests/unit/records/json/test_kernel.py::test_a_number_that_needs_more_than_a_look_is_left_to_the_parser",),
        "A number of more than nineteen digits would be stored as another one.",
    ),
    Mutant(
        "json-suspects-are-counted",
        _JSON,
        "                others[k, OTHER_COUNT] -= others[k, OTHER_RECORD] == record\n",
        "                others[k, OTHER_COUNT] -= 0\n",
        (_ANY_JSON,),
        "Fields without a column would be counted twice for records that the parser reads after all.",
    ),
    Mutant(
        "gather-empty-is-null",
        _GATHER,
        "        if value != 0:\n",
        "        if size != 0:\n",
        (_ALL_THEY_HAVE,),
        "A record with an empty value would be taken for a tombstone, and remove a row.",
    ),
    Mutant(
        "gather-headers-of-the-next",
        _GATHER,
        "        records[HEADERS, row] = header\n        row += 1\n",
        "        row += 1\n        records[HEADERS, min(row, records.shape[1] - 1)] = header\n",
        (_ALL_THEY_HAVE,),
        "A record would have the headers of its neighbour.",
    ),
)
