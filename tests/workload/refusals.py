from __future__ import annotations

import pytest

from pointsman.core.errors import InputError


def refusal(read, *lines: str, **options) -> str:
    """What the ``read`` fixture raises for these lines, without the path."""
    with pytest.raises(InputError) as caught:
        read(*lines, **options)
    return str(caught.value).rpartition("/t")[2].strip(" :")
