from collections.abc import Iterator

import pytest

from kbpf.demo import patience
from kbpf.errors import UsageError


@pytest.fixture(autouse=True)
def unread() -> Iterator[None]:
    patience._scale.cache_clear()
    yield
    patience._scale.cache_clear()


@pytest.mark.parametrize(("scale", "expected_s"), [(None, 5), ("", 5), ("1", 5), ("2.5", 12.5), ("10", 50)])
def test_every_wait_is_so_many_times_longer(monkeypatch: pytest.MonkeyPatch, scale: str | None, expected_s: float):
    if scale is None:
        monkeypatch.delenv(patience.VARIABLE, raising=False)
    else:
        monkeypatch.setenv(patience.VARIABLE, scale)
    assert patience.patient(5) == expected_s


@pytest.mark.parametrize("scale", ["x", "0", "-1", "0.5", "nan", "inf"])
def test_what_would_make_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, scale: str):
    monkeypatch.setenv(patience.VARIABLE, scale)
    with pytest.raises(UsageError, match=f"KBPF_TIMEOUT_SCALE={scale}: must be a number"):
        patience.patient(5)
