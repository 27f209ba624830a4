"""Which format version brought which field: every `version >= …` in the package names a line of this page.

Format 22 is written; 1 to 23 are read.
"""

from terrazzo.errors import CorruptionError, UnsupportedFeatureError

OLDEST = 1
WRITTEN = 22
NEWEST = 23

# Coordinates and names
COORDS_UNZIPPED = 2  # __coords.tdb holds all x, then all y of a tile; before, x,y,x,y… unless compressed
TIMES_FIRST = 3  # names are __t1_t2_uuid; before, __uuid_t1[_t2]
FOOTER = 3  # fragment metadata in sections behind a footer; before, one generic tile
SPLIT_DIMENSIONS = 5  # a type, pipeline and file per dimension; names end in _version; .ok commits
ENCODED_FILE_NAMES = 8  # data files carry the percent-encoded field name; before, the raw name
NUMBERED_FILES = 9  # data files are a0, d0, …
SCHEMA_FOLDER = 10  # __schema/; the footer names its schema and always ends with its length
COMMITS_FOLDER = 12  # __fragments, __commits, .wrt

# Array schema
ALLOWS_DUPLICATES = 5
FILL_VALUE = 6
NULLABLE = 7
ATTRIBUTE_ORDER = 17
DIMENSION_LABELS = 18
ENUMERATIONS = 20
CURRENT_DOMAIN = 22

# Fragment metadata
VALIDITY = 7
TILE_STATISTICS = 11
WHOLE_CELL_CHUNKS = 11
FRAGMENT_STATISTICS = 12
TIMESTAMPS = 14
DELETE_METADATA = 15
PROCESSED_CONDITIONS = 16
RELATIVE_VAC_LINES = 19
GLOBAL_ORDER_BOUNDS = 23

# Filters
RLE_ASCII_WITHOUT_OFFSETS = 12
DICTIONARY_ASCII_WITHOUT_OFFSETS = 13
UTF8_WITHOUT_OFFSETS = 17
DELTA_REINTERPRET = 19
DOUBLE_DELTA_REINTERPRET = 20
WINDOW_FILTERS_ON_DATES = 20  # bit-width reduction and positive delta; before, they pass dates through


def check(version: int, what: str, *, offset: int | None = None) -> int:
    """`version`, if this release reads it."""
    if version < OLDEST:
        raise CorruptionError(f"{what} has format version {version}", offset=offset)
    if version > NEWEST:
        raise UnsupportedFeatureError(
            f"{what} has format version {version}; this release reads up to {NEWEST}: upgrade terrazzo",
            offset=offset,
        )
    return version
