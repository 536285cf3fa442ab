"""The templates: which kinds there are, and the files of each.

`templates/common` has the files of every package, `templates/<kind>` those of one kind, which take
the place of common ones of the same path. `PACKAGE` in a path stands for the name of the package,
`dot_` at its beginning for a dot. Files are filled by `string.Template`.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from framework.config import suggestion
from framework.plugins.specs import HOOKS
from hookspecs.errors import ConfigError
from hookspecs.info import Tier
from hookspecs.kinds import PLUGIN_KINDS

__all__ = ["About", "about_of", "check_kind", "files_of", "kinds"]

_ROOT: Final = Path(__file__).with_name("templates")
_COMMON: Final = "common"
_ABOUT: Final = "kind.toml"
"""What the common files say of a kind; not a file of the package."""
_SUFFIX: Final = ".tmpl"


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Templates of the text that differs in common files."""

    summary: str
    about: str
    configure: str
    dependencies: list[str]
    """Besides this distribution."""


def kinds() -> list[str]:
    """What can be written: plugin kinds, and `observer` and `filter`."""
    return sorted(path.name for path in _ROOT.iterdir() if path.name != _COMMON)


def check_kind(kind: str) -> None:
    """ConfigError unless there are templates of it."""
    known = kinds()
    if kind in known:
        return
    found = PLUGIN_KINDS.get(kind)
    if found is not None and HOOKS[found.hook].meta.tier is Tier.PROVISIONAL:
        raise ConfigError(
            f"this version lists what a plugin of the kind {kind!r} offers, and does not use it "
            f"yet, so there is nothing to try it with. Kinds: {', '.join(known)}"
        )
    raise ConfigError(
        f"there is no plugin kind {kind!r}.{suggestion(kind, known)} Kinds: {', '.join(known)}"
    )


def about_of(kind: str) -> str:
    """The template of `About`, in TOML."""
    return (_ROOT / kind / f"{_ABOUT}{_SUFFIX}").read_text(encoding="utf-8")


def files_of(kind: str) -> dict[PurePosixPath, str]:
    """Path in the package, with `PACKAGE` in it, to template."""
    files = {}
    for folder in (_ROOT / _COMMON, _ROOT / kind):
        for path in sorted(folder.rglob(f"*{_SUFFIX}")):
            place = path.relative_to(folder).as_posix().removesuffix(_SUFFIX)
            if place.startswith("dot_"):
                place = "." + place.removeprefix("dot_")
            if place != _ABOUT:
                files[PurePosixPath(place)] = path.read_text(encoding="utf-8")
    return files
