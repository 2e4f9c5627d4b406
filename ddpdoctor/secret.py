"""Tells what is secret by its name or its shape, and masks it."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

MASK = "***"

_ALWAYS = re.compile(r".*(SECRET|PASSW|PASSPHRASE|PASSCODE)S?.*|.*CREDENTIALS?|CREDS?")
"""Words of a name whose value is secret whatever it looks like."""
_MOSTLY = re.compile(
    r"\w*TOKEN|TOKENS|(API|ACCESS|AUTH|PRIVATE|SSH)?KEYS?|AUTH|AUTHORIZATION|PASS|PWD|PAT|JWT|COOKIE"
)
"""Words of a name whose value is secret unless it is a number or a switch: MAX_TOKENS=4096 is none."""
_NOT_ITSELF = frozenset({"FILE", "PATH", "DIR", "FOLDER", "SOCK", "TYPE", "NAME", "METHOD", "PORT", "HOST"})
"""Last words of a name whose value is about a secret and not the secret."""
_WORKING_DIRECTORIES = frozenset({"PWD", "OLDPWD"})
_SWITCHES = frozenset({"", "true", "false", "yes", "no", "on", "off", "none", "null", "auto", "default"})
_NUMBER = re.compile(r"[-+]?[\d._,]+([eE][-+]?\d+)?")

_SHAPES = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<=://)[^\s/'"]*:[^\s/'"]*@                       # the user and password of a URL
    | (?<![A-Za-z0-9_])(
        hf_[A-Za-z0-9]{12,}
      | gh[opsur]_[A-Za-z0-9]{12,} | github_pat_\w{12,} | glpat-[\w-]{12,}
      | (AKIA|ASIA)[A-Z0-9]{12,} | AIza[\w-]{30,}
      | sk-(?=[\w-]*[0-9A-Z])[\w-]{12,} | xox[a-z]-[\w-]{10,}
      | eyJ[\w-]{5,}\.[\w-]+(\.[\w-]*)?                  # a JSON web token
      )
    | (?<=[Bb]earer\ )(?=\S*\d)[\w.~+/=-]{8,}
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"""([A-Za-z_][\w.-]*)(=["']?|["']\s*:\s*["'])([^\s"',;&]+)""")
_LITERAL = re.compile(
    r"""([A-Za-z_]\w*)((?:["']?\]?\s*(?::[^=:,"']+)?[=:]|["']\s*,)\s*[rRbBuUfF]{0,2}(\"{3}|'{3}|["']))((?:\\.|.)*?)(\3|$)"""
)
"""In source code, a string literal behind a name: assigned to it, its value in a mapping, or its default."""
_LONG = re.compile(r"[A-Za-z0-9+=_]{32,}")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{32,}")
_SYMBOL = re.compile(r"_+Z")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable or an option of this name holds a secret, as far as the name tells."""
    words = [word.upper() for word in _WORDS.findall(name)]
    if not words or value.lower() in _SWITCHES or name in _WORKING_DIRECTORIES or words[-1] in _NOT_ITSELF:
        return False
    if any(_ALWAYS.fullmatch(word) for word in words):
        return True
    return any(_MOSTLY.fullmatch(word) for word in words) and not _NUMBER.fullmatch(value)


def mask_shapes(text: str) -> str:
    """The text with ``***`` for whatever has the shape of a secret, or is assigned to a secret's name."""
    text = _SHAPES.sub(lambda match: f"{MASK}@" if match[0].endswith("@") else MASK, text)
    text = _ASSIGNMENT.sub(
        lambda match: f"{match[1]}{match[2]}{MASK}" if is_secret(match[1], match[3]) else match[0], text
    )
    return _LONG.sub(lambda match: MASK if _random(match[0]) else match[0], text)


def mask_source(line: str) -> str:
    """A line of source code with ``***`` for the string literals that are given to a secret's name."""
    return _LITERAL.sub(
        lambda match: f"{match[1]}{match[2]}{MASK}{match[5]}" if is_secret(match[1], match[4]) else match[0],
        line,
    )


def has_secret_shape(value: str) -> bool:
    """Whether a variable's value looks secret whatever the variable's name; long hexadecimal numbers do."""
    return mask_shapes(value) != value or _HEXADECIMAL.fullmatch(value) is not None


def _random(text: str) -> bool:
    """Whether letters and digits alternate as they do in a random string, and in no identifier."""
    if _SYMBOL.match(text):  # a mangled C++ name, as they stand in stacks
        return False
    kinds = ["0" if c.isdigit() else "A" if c.isupper() else "a" if c.islower() else "-" for c in text]
    changes = sum(a != b for a, b in pairwise(kinds))
    return all(kinds.count(kind) >= 3 for kind in "0Aa") and changes >= 0.4 * len(text)


def mask_command(command: Sequence[str]) -> list[str]:
    """A command line with ``***`` for secrets: ``--password=x``, ``--api-key x``, ``TOKEN=x``, ``hf_...``."""
    return list(_masked_arguments(command))


def _masked_arguments(command: Sequence[str]) -> Iterator[str]:
    option = ""
    for argument in command:
        name, equals, value = argument.partition("=")
        if option and not argument.startswith("-") and is_secret(option, argument):
            yield MASK
        elif equals and name.count(" ") == 0 and is_secret(name, value):
            yield f"{name}={MASK}"
        else:
            yield mask_shapes(argument)
        option = argument if argument.startswith("--") and not equals else ""
