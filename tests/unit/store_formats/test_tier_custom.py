"""Custom metadata of Aiven's plugin: bytes that it wrote, and bytes that nobody did."""

from __future__ import annotations

import pytest

from seglog.format.wire import WireError
from seglog_stores.formats.tier_manifest import CustomMetadata, parse_custom_metadata
from tests.support.tiers import custom_metadata

KEY = "t-AAECAwQFBgcICQoLDA0ODw/3/00000000000000000100-EBESExQVFhcYGRobHB0eHw"
WRITTEN = "030002b817" + "010303702f" + "024747" + KEY.encode().hex()  # by the plugin


def test_prefix_and_key_are_read_as_the_plugin_wrote_them() -> None:
    assert parse_custom_metadata(bytes.fromhex(WRITTEN)) == CustomMetadata("p/", KEY)
    assert parse_custom_metadata(bytes.fromhex("010002b817")) == CustomMetadata()
    assert parse_custom_metadata(custom_metadata("", None)) == CustomMetadata("", None)
    assert custom_metadata("p/", KEY).hex() == WRITTEN


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "1 bytes are expected at byte 0, 0 are left"),
        (bytes.fromhex(WRITTEN)[:-1], r"only 69 byte\(s\) available"),
        (bytes.fromhex("01010100"), "non-nullable field objectPrefix was serialized as null"),
        (custom_metadata("../", KEY), "name no object"),
        (custom_metadata("/", KEY), "name no object"),
        (custom_metadata("", ""), "name no object"),
        (custom_metadata(None, "a\0b"), "name no object"),
    ],
)
def test_a_field_that_cannot_be_read_is_an_error(data: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        parse_custom_metadata(data)
