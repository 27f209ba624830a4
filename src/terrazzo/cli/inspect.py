"""`terrazzo inspect`: any file of the format, field by field."""

from typing import TYPE_CHECKING, Annotated

import typer

from terrazzo.cli.options import KEY_VARIABLE, AsJson, KeyFile, Storage, pairs, read_key

if TYPE_CHECKING:
    from terrazzo.cli.kinds import FileKind
    from terrazzo.cli.output import Report
    from terrazzo.cli.place import Place


def inspect(
    file: Annotated[str, typer.Argument(metavar="FILE", help="a path, or a URI such as s3://bucket/array/…")],
    as_json: AsJson = False,
    values: Annotated[
        int, typer.Option(min=0, metavar="N", help="decode the first N values of a data file")
    ] = 0,
    key_file: KeyFile = None,
    storage: Storage = None,
) -> None:
    """Print a file of an array or group field by field, or list the files of a folder.

    The kind of file is told by its name, or else by its content. What can be read of a damaged file is
    printed before the error that says where the damage is.
    """
    from terrazzo.cli.output import print_report
    from terrazzo.cli.place import Place
    from terrazzo.engine.keys import as_cipher
    from terrazzo.errors import FormatError, InvalidRequestError

    cipher = as_cipher(read_key(key_file))
    place = Place.parse(file, cipher, pairs(storage, "--storage"))
    report: Report = {}
    try:
        fill_report(place, report, values)
    except InvalidRequestError as problem:
        if cipher is None and "encrypted" in str(problem):
            raise InvalidRequestError(
                f"{place.uri}: the array is encrypted; give --key-file, or set {KEY_VARIABLE}"
            ) from None
        raise
    except FormatError as problem:
        problem.at_key(place.uri)
        if report:
            if as_json:
                report["error"] = str(problem)
            print_report(report, as_json=as_json)
        raise
    print_report(report, as_json=as_json)


def fill_report(place: "Place", report: "Report", n_values: int) -> None:
    from terrazzo.cli.kinds import FileKind, kind_of
    from terrazzo.errors import MissingObjectError

    try:
        size = place.folder.size(place.name) if place.segments else None
    except MissingObjectError:
        size = None
    if size is None:
        _folder(place, report)
        return
    kind = kind_of(place.segments)
    report |= {"kind": str(kind), "file": place.uri, "size": size}
    if kind is FileKind.OTHER:
        kind = _told_by_content(place, report)
    if kind is FileKind.DATA:
        from terrazzo.cli import describe_data

        describe_data.data(place, report, n_values)
        return
    _described(kind, place, report)


def _told_by_content(place: "Place", report: "Report") -> "FileKind":
    from terrazzo.cli.sniff import sniff
    from terrazzo.errors import CorruptionError

    kind = sniff(place.folder.get(place.name), place.cipher)
    if kind == "other":
        raise CorruptionError("neither its name nor its content is that of a file of an array or group")
    report["kind"] = str(kind)
    report["told_by"] = "content"
    return kind


def _described(kind: "FileKind", place: "Place", report: "Report") -> None:
    from terrazzo.cli import describe, describe_fragment
    from terrazzo.cli.kinds import FileKind, parse_name

    content = place.folder.get(place.name)
    if kind is FileKind.FRAGMENT_METADATA:
        report |= describe.name_report(place.fragment_name)
        describe_fragment.fragment_metadata(content, place, report)
        return
    report |= describe.name_report(parse_name(place.name.partition(".")[0]))
    if kind is FileKind.FOOTERS:
        describe_fragment.footers(content, place, report)
    else:
        describe.DESCRIBERS[kind](content, place, report)


def _folder(place: "Place", report: "Report") -> None:
    """What lies below a folder, each file with its kind."""
    from terrazzo.cli.kinds import kind_of, parse_name
    from terrazzo.errors import InvalidRequestError
    from terrazzo.format import keys

    found = place.store.list_recursive()
    if not found:
        place.missing()
    top = {entry.key.partition("/")[0] for entry in found}
    if top & {keys.SCHEMA_FOLDER, keys.SCHEMA_FILE}:
        kind = "array"
    elif top & {keys.GROUP_FOLDER, keys.GROUP_FILE}:
        kind = "group"
    elif parse_name(place.name) is not None if place.segments else False:
        kind = "fragment"
    elif place.array is not None:
        kind = "folder of an array"
    else:
        raise InvalidRequestError(
            f"{place.uri} is neither an array nor a group nor in one: it has no {keys.SCHEMA_FOLDER} and no "
            f"{keys.GROUP_FOLDER}; name a folder below or a file"
        )
    files = [
        {
            "kind": str(kind_of((*place.segments, *entry.key.split("/")))),
            "size": entry.size,
            "file": entry.key,
        }
        for entry in found
    ]
    totals: dict[str, list[int]] = {}
    for entry, row in zip(found, files, strict=True):
        totals.setdefault(str(row["kind"]), []).append(entry.size)
    report |= {
        "kind": kind,
        "file": place.uri,
        "size": sum(entry.size for entry in found),
        "totals": [
            {"kind": name, "files": len(sizes), "size": sum(sizes)} for name, sizes in sorted(totals.items())
        ],
        "files": files,
    }
