"""What is secret in a name or in a line of text, and what stands in its place.

A name is judged by its words. In text, a value is hidden where a secret name introduces it the way shells,
flags, headers and JSON do, and where a URL carries credentials. Too much hidden is a nuisance, too little
cannot be taken back: where quoting is in doubt, more is hidden. Every function here is linear in its input,
and hiding what is hidden already changes nothing.
"""

from __future__ import annotations

import re

MASK = "******"
"""Stands for a secret; its length tells nothing."""

_HINTS = ("key", "token", "secret", "pass", "pwd", "credential", "ak", "sk")
"""Every secret word contains one of these: most texts are done after this one look."""

_SPACE = re.compile(r"\s")
_LETTERS = re.compile("[A-Za-z]+")
_CASE_CHANGE = re.compile("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SECRET_WORD = re.compile(
    "(?:KEY|PASS|AK|SK|(?:API|ACCESS|SECRET|PRIVATE|AUTH|SSH|ENCRYPTION)KEY"
    "|[A-Z]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PWD|CREDENTIAL))(?:E?S)?"
)

_NAME = re.compile(
    r"""(?<![\w.\-])(?P<name>[\w.\-]++)
    (?P<link> \\?["']?[ \t]*+=[ \t]*+     # NAME=V, NAME = V, "NAME"=V
    | \\?["'][ \t]*+:[ \t]*+              # "NAME": V, as in JSON
    | :[ \t]++                            # Name: V, as in a header
    | (?:\s|\\\n)++                       # --name V, also over a continued line
    )""",
    re.VERBOSE,
)
_WORD = re.compile(
    r"""(?:(?:Bearer|Basic|Token)[ \t]++)?+
    (?: '[^']*+' | "(?:[^"\\]|\\.)*+" | \$\([^()]*+\) | \\(?P<q>["']).*?\\(?P=q) | \\. | [^\s'"\\] )++
    | ["'].*+                             # a quote without its end: all the rest
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""'[^']*+' | "(?:[^"\\]|\\.)*+" | \\(?P<q>["']).*?\\(?P=q)""", re.VERBOSE | re.DOTALL)
_LONG_OPTION = re.compile(r"--[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*(?:=.*)?", re.DOTALL)
_FLAG = re.compile(r"--?[\w.\-]+")
_SHELL_ENDS = ";&|"

_MAX_ROUNDS = 8
"""Looks at one text; two are usual. A text that was made to need more is hidden as a whole."""

_AUTHORITY = re.compile(r"[^\s/?#]*")
_LOOSE_CREDENTIALS = re.compile(r"[^\s/?#@:\"']*:(?!\d{1,5}[/?#\"',])[^\s@]*@")
"""``user:pass@`` whose password has a / ? or # unescaped; a port before a path is none."""

_BARE_USER_IS_NAME = ("ssh", "sftp", "scp")
"""Schemes in which a user alone is a name; in any other it is as likely a token."""

_IMAGE_CREDENTIALS = re.compile(r"[^\s/@:]+:[^\s@]*@(?![a-z0-9+._-]+:[0-9a-fA-F]{32})")


def may_hold_secret(text: str) -> bool:
    """Whether a closer look at a text is worth it."""
    return "://" in text or _hinted(text) or _may_be_escaped(text)


def names_secret(name: str) -> bool:
    """Whether one of the name's words says that its value is a secret.

    Words end at case changes and at anything but ASCII letters; a run of letters also counts as one word.
    """
    if not _hinted(name):
        return False
    for letters in _LETTERS.findall(name):
        if any(_SECRET_WORD.fullmatch(word.upper()) for word in (letters, *_CASE_CHANGE.split(letters))):
            return True
    return False


def is_secret_flag(argument: str) -> bool:
    """Whether an argument is ``--x-token``, whose value is the next argument."""
    return argument.startswith("-") and _FLAG.fullmatch(argument) is not None and names_secret(argument)


def is_long_option(argument: str) -> bool:
    """Whether an argument is ``--like-this``: the flag before it had no value."""
    return _LONG_OPTION.fullmatch(argument) is not None


def in_text(text: str) -> str:
    """The text, such as a shell script or an environment value, without its secrets."""
    return _settled(text, argument=False)


def in_argument(text: str) -> str:
    """One argument of a command without its secrets: if it is a flag, its value goes to the end."""
    return _settled(text, argument=text.startswith("-"))


def in_url(text: str) -> str:
    """The text without credentials in URLs."""
    if "@" not in text:
        return text
    head, *rest = text.split("://")
    pieces = [head]
    for piece in rest:
        pieces.append(_without_credentials(piece, bare=not pieces[-1].endswith(_BARE_USER_IS_NAME)))
    return "://".join(pieces)


def in_endpoint(text: str) -> str:
    """An endpoint without credentials, with or without a scheme."""
    if "://" not in text:
        return _without_credentials(text, bare=False)
    return in_url(text)


def in_image(text: str) -> str:
    """An image's name without credentials for its registry; a digest after @ is none."""
    if "://" in text:
        return in_url(text)
    found = _IMAGE_CREDENTIALS.match(text)
    return text if found is None else f"{MASK}@{text[found.end() :]}"


def _hinted(text: str) -> bool:
    lowered = text.lower()
    return any(hint in lowered for hint in _HINTS)


def _may_be_escaped(text: str) -> bool:
    """Whether JSON within the text may write the letters of a name or the slashes of a URL otherwise."""
    return "\\u00" in text or ("\\/" in text and "@" in text)


def _settled(text: str, *, argument: bool) -> str:
    # What was hidden first may let a URL or a quote be seen that was none before: go on until nothing is.
    for _ in range(_MAX_ROUNDS):
        masked = _without_values(in_url(text), argument=argument)
        if masked == text:
            return masked
        text = masked
    return MASK


def _without_credentials(piece: str, *, bare: bool) -> str:
    """What follows ``://`` up to the next one; ``bare`` hides a user without a password too."""
    authority = _AUTHORITY.match(piece)
    at = authority.group().rfind("@") if authority else -1
    if at > 0:
        user = piece[:at]
        if ":" in user or (bare and not set(user) & set("\"',")):
            return MASK + piece[at:]
    loose = _LOOSE_CREDENTIALS.match(piece)
    return piece if loose is None else f"{MASK}@{piece[loose.end() :]}"


def _without_values(text: str, *, argument: bool) -> str:
    if not _hinted(text):
        return text
    pieces: list[str] = []
    copied = at = 0
    first_space = _SPACE.search(text) if argument else None
    flag_end = (first_space.start() if first_space else len(text)) if argument else 0
    while found := _NAME.search(text, at):
        at = found.end()
        if not names_secret(found["name"]):
            continue
        start, end = _value(text, found, flag_end)
        if end > start and text[start:end] != MASK:
            pieces += (text[copied:start], MASK)
            copied = end
        at = end
    return "".join((*pieces, text[copied:]))


def _value(text: str, found: re.Match[str], flag_end: int) -> tuple[int, int]:
    """Where the value that a secret name introduces starts and ends; the same place if there is none."""
    start, link = found.end(), found["link"]
    spaced = "=" not in link and ":" not in link
    if spaced and not found["name"].startswith("-"):
        return start, start
    if "=" in link and found.start() < flag_end:
        return start, len(text)
    quoted = _QUOTED.match(text, start)
    if quoted and ":" in link:
        # The quotes stay, so that what follows is still read as what follows.
        width = 2 if quoted["q"] else 1
        return start + width, quoted.end() - width
    enclosed = _enclosing_end(text, found)
    if enclosed is not None:
        return start, enclosed
    word = _WORD.match(text, start)
    if word is None or (spaced and is_long_option(word.group())):
        return start, start
    value = word.group()
    shown = value.rstrip(_SHELL_ENDS if "(" in value else _SHELL_ENDS + ")")
    return start, start + len(shown or value)


def _enclosing_end(text: str, found: re.Match[str]) -> int | None:
    """Where the quote ends that opens just before the name, as in ``"NAME=V w"``; None if none opens."""
    before = text[max(found.start() - 2, 0) : found.start()]
    if not before.endswith(('"', "'")) or found["link"].lstrip("\\").startswith(('"', "'")):
        return None
    closing = before if before.startswith("\\") else before[-1]
    end = text.find(closing, found.end())
    return len(text) if end < 0 else end
