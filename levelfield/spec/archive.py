"""Describes one official file of a task: where it lies, how large it is and what it hashes to.

    Archive(
        "cifar-10-python.tar.gz",
        ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        md5="c58f30108f718f92721af3b95e74349a",
        bytes=170_498_071,
    )

`levelfield.data.download` fetches it; a task declares those it reads in `Task.archives`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from levelfield.spec.errors import UserError

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class Archive:
    """`name` is the file name it is kept under, `urls` the official place first and then mirrors of the same bytes.

    sha256, md5: hexadecimal, as published; None where nobody published one. bytes: its size, None where unknown.
    Raises UserError on a name that is more than a file name, on no or odd urls, and on digests of the wrong form.
    """

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    md5: str | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        if not _PLAIN_NAME.fullmatch(self.name):
            raise UserError(f"An archive's name is a plain file name, not {self.name!r}.")
        if not self.urls or not all(url.startswith(("https://", "http://")) for url in self.urls):
            raise UserError(f"Archive {self.name} needs urls, a tuple of http or https addresses.")
        for kind, value, digits in (("sha256", self.sha256, 64), ("md5", self.md5, 32)):
            if value is not None and not re.fullmatch(f"[0-9a-f]{{{digits}}}", value):
                raise UserError(f"The {kind} of {self.name} must be {digits} lower-case hexadecimal digits.")
        if self.bytes is not None and self.bytes < 1:
            raise UserError(f"The size of {self.name} must be at least one byte, or None where it is unknown.")
