"""The ``write.*`` table properties of data file writers, checked before the first byte is written.

Defaults are Java's (``TableProperties``). What encrypted files cannot have is refused here: ORC, pages of version 2 (Java and Arrow
cannot read each other's, case C-24), bloom filters (case C-22).

Invariant: an encrypted Parquet file counts pages of a column chunk, row groups and columns in 16 bits. A row group has at
most ``max_levels`` values of a column, so that its pages cannot run out of numbers, whatever the page properties (case C-21).

Not here: ``write.metadata.metrics.*`` (``arrow.write.metrics``), locations (``arrow.write.data_file``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa

from icelock.errors import PolicyError
from icelock.io.avro.write import AvroCodec
from icelock.properties import is_number

FORMAT: Final = "write.format.default"
AVRO_CODEC: Final = "write.avro.compression-codec"
AVRO_LEVEL: Final = "write.avro.compression-level"
PAGE_VERSION: Final = "write.parquet.page-version"
CODEC: Final = "write.parquet.compression-codec"
LEVEL: Final = "write.parquet.compression-level"
PAGE_BYTES: Final = "write.parquet.page-size-bytes"
PAGE_ROWS: Final = "write.parquet.page-row-limit"
DICTIONARY_BYTES: Final = "write.parquet.dict-size-bytes"
ROW_GROUP_BYTES: Final = "write.parquet.row-group-size-bytes"
ROW_GROUP_MIN_ROWS: Final = "write.parquet.row-group-check-min-record-count"
ROW_GROUP_MAX_ROWS: Final = "write.parquet.row-group-limit"  # PyIceberg's
TARGET_FILE_BYTES: Final = "write.target-file-size-bytes"
BLOOM_FILTER: Final = "write.parquet.bloom-filter-enabled.column."

MAX_PARTS: Final = 32767
"""Columns, row groups and pages of a column chunk that an encrypted Parquet file can number."""

PARQUET: Final = "parquet"
AVRO: Final = "avro"

_MIB: Final = 1 << 20
_MOST_DIGITS: Final = 18
_BATCH_VALUES: Final = 1024
_ZSTD_LEVEL: Final = 3  # parquet-mr's; Arrow's is 1
_CODECS: Final = {
    "uncompressed": "none",
    "none": "none",
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "brotli": "brotli",
    "lz4": "lz4",
    "lz4_raw": "lz4",
}
# Iceberg's name: Avro's, and Java's default level
_AVRO_CODECS: Final = {"gzip": ("deflate", 9), "zstd": ("zstandard", 1), "snappy": ("snappy", None), "uncompressed": ("null", None)}
_AVRO_LEVELS: Final = {"deflate": (0, 9), "zstandard": (-7, 22)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Checked settings of a data file writer; sizes are stored bytes unless said.

    ``batch_values``: after how many values Arrow checks whether a page is full. ``max_levels``: most values of a column in a row group.
    """

    file_format: str
    avro_codec: AvroCodec
    codec: str
    level: int | None
    page_bytes: int
    page_rows: int
    dictionary_bytes: int
    row_group_bytes: int
    row_group_min_rows: int
    row_group_max_rows: int
    target_file_bytes: int
    batch_values: int
    max_levels: int

    @classmethod
    def parse(cls, properties: Mapping[str, str], *, row_group_rows: int | None = None) -> Self:
        """Return the settings in a table's properties; a row group has ``row_group_rows`` rows at most if they do not say.

        Raises:
            PolicyError: a setting that an encrypted table cannot have, or an invalid value; names the property.
        """
        _refuse_bloom_filters(properties)
        page_rows = _positive(properties, PAGE_ROWS, 20_000)
        batch_values = min(page_rows, _BATCH_VALUES)
        # Arrow ends a page at most once in a batch of values and once in page_rows rows: half the numbers is margin.
        max_levels = (MAX_PARTS + 1) // 2 * batch_values
        codec, level = _codec(properties)
        return cls(
            file_format=check_file_format(properties),
            avro_codec=_avro_codec(properties),
            codec=codec,
            level=level,
            page_bytes=_positive(properties, PAGE_BYTES, _MIB),
            page_rows=page_rows,
            dictionary_bytes=_positive(properties, DICTIONARY_BYTES, 2 * _MIB),
            row_group_bytes=_positive(properties, ROW_GROUP_BYTES, 128 * _MIB),
            row_group_min_rows=_positive(properties, ROW_GROUP_MIN_ROWS, 100),
            row_group_max_rows=min(max_levels, _positive(properties, ROW_GROUP_MAX_ROWS, row_group_rows or max_levels)),
            target_file_bytes=_positive(properties, TARGET_FILE_BYTES, 512 * _MIB),
            batch_values=batch_values,
            max_levels=max_levels,
        )


def check_file_format(properties: Mapping[str, str]) -> str:
    """Return the format of new data files, ``parquet`` (default) or ``avro``; Parquet's pages must be of version 1.

    Raises:
        PolicyError: another format or version; names the property.
    """
    version = properties.get(PAGE_VERSION, "v1")
    if version.lower() != "v1":
        raise PolicyError(
            f"{PAGE_VERSION} is {version!r}: encrypted pages of version 2 cannot be read across Java and Arrow; set it to 'v1'"
        )
    value = properties.get(FORMAT, PARQUET)
    if value.lower() not in (PARQUET, AVRO):
        why = "Iceberg cannot encrypt ORC files" if value.lower() == "orc" else "there is no such format"
        raise PolicyError(f"{FORMAT} is {value!r}, and encrypted tables are written as Parquet or Avro ({why}): set it to 'parquet'")
    return value.lower()


def _refuse_bloom_filters(properties: Mapping[str, str]) -> None:
    blooms = [name for name, value in properties.items() if name.startswith(BLOOM_FILTER) and value.strip().lower() == "true"]
    if blooms:
        raise PolicyError(f"bloom filters cannot be written into encrypted Parquet files; remove {', '.join(map(repr, sorted(blooms)))}")


def _codec(properties: Mapping[str, str]) -> tuple[str, int | None]:
    name = properties.get(CODEC, "zstd")
    codec = _CODECS.get(name.lower())
    if codec is None or not (codec == "none" or pa.Codec.is_available(codec)):
        raise PolicyError(f"{CODEC} is {name!r}; it must be one of {', '.join(sorted(set(_CODECS) - {'none'}))}")
    text = properties.get(LEVEL)
    if text is None or text.lower() == "null" or codec == "none":
        return codec, _ZSTD_LEVEL if codec == "zstd" else None
    try:
        level = int(text)
        pa.Codec(codec, compression_level=level)
    except ValueError as e:
        raise PolicyError(f"{LEVEL} is {text!r}, which {name} does not have: {e}") from e
    lowest, highest = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    if not lowest <= level <= highest:
        raise PolicyError(f"{LEVEL} is {level}; {name} has levels {lowest} to {highest}")
    return codec, level


def _avro_codec(properties: Mapping[str, str]) -> AvroCodec:
    name = properties.get(AVRO_CODEC, "gzip")
    if name.lower() not in _AVRO_CODECS:
        raise PolicyError(f"{AVRO_CODEC} is {name!r}; it must be one of {', '.join(sorted(_AVRO_CODECS))}")
    codec, default = _AVRO_CODECS[name.lower()]
    text = properties.get(AVRO_LEVEL)
    if codec not in _AVRO_LEVELS or text is None or text.lower() == "null":
        return AvroCodec(name=codec, level=default)
    lowest, highest = _AVRO_LEVELS[codec]
    try:
        level = int(text)
    except ValueError as e:
        raise PolicyError(f"{AVRO_LEVEL} is {text!r}; it must be a whole number") from e
    if not lowest <= level <= highest:
        raise PolicyError(f"{AVRO_LEVEL} is {level}; {name} has levels {lowest} to {highest}")
    return AvroCodec(name=codec, level=level)


def _positive(properties: Mapping[str, str], name: str, default: int) -> int:
    text = str(properties.get(name, default)).strip()
    if not is_number(text) or len(text) > _MOST_DIGITS or int(text) == 0:
        raise PolicyError(f"{name} is {text[:40]!r}; it must be a whole number above 0, of at most {_MOST_DIGITS} digits")
    return int(text)
