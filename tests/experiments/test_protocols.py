"""The named protocols of the experiments."""

import pytest

from crossbit_experiments.protocols import PROTOCOLS


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_is_written_with_all_fields(name: str) -> None:
    written = PROTOCOLS[name].to_dict()
    assert written["name"] == name
    assert written["measures"]
    assert written["primary_measure"] in written["measures"]
    assert written["note"]
