"""What a caught statement came to: somebody else holds what it wants, or something is wrong."""

from __future__ import annotations

import pytest

from duly.domain.errors import DatabaseError, DatabaseUnavailable
from duly.store.call import FAILED, gave_up_waiting


def test_only_waiting_in_vain_counts_as_held() -> None:
    assert gave_up_waiting([(FAILED, "55P03", "canceling statement due to lock timeout")])
    assert gave_up_waiting([(FAILED, "40P01", "deadlock detected")])
    assert not gave_up_waiting([])
    assert not gave_up_waiting([("an id",)])
    with pytest.raises(DatabaseUnavailable, match=r"due to statement timeout \(57014\)"):
        gave_up_waiting([(FAILED, "57014", "canceling statement due to statement timeout")])
    with pytest.raises(DatabaseError, match=r"permission denied for table unique_keys \(42501\)"):
        gave_up_waiting([(FAILED, "42501", "permission denied for table unique_keys")])
