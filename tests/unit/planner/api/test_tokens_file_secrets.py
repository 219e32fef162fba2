"""A token that stands where its digest belongs is refused, and shown nowhere."""

from pathlib import Path

import pytest

from data.errors import DocumentError
from planner.api.access import load_tokens


def test_a_token_in_place_of_its_digest_is_never_shown_f150(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text("tokens:\n  - {name: a, token_sha256: CANARY-7f3a, role: read}\n")
    with pytest.raises(DocumentError, match="64 hexadecimal") as caught:
        load_tokens(path)
    assert not any("CANARY" in str(problem) for problem in caught.value.problems)
