"""Tells Ctrl-C from an error, where compiled code has made one of it.

except Exception as error:
    raise_interrupt(error)
    ...                        # an error indeed
"""

from __future__ import annotations


def raise_interrupt(error: BaseException) -> None:
    """Raises the KeyboardInterrupt that an error stands for; returns where it stands for none.

    Compiled code that Ctrl-C comes into raises a SystemError, of which the KeyboardInterrupt is the cause; there is
    another SystemError in between for each further call of C that it passed through.
    """
    while isinstance(error, SystemError):
        cause = error.__cause__ or error.__context__
        if cause is None:
            return
        error = cause
    if isinstance(error, KeyboardInterrupt):
        raise error from None
