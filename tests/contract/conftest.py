"""A network namespace for the contract tests of what is real."""

import itertools
import os
from collections.abc import Iterator

import pytest

from kbpf.demo.namespaces import Namespace
from kbpf.demo.remains import remove
from tests.conftest import RUN

_numbers = itertools.count()


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Fresh and empty but for loopback; the test decides when it enters."""
    tag = f"{RUN}{os.environ.get('PYTEST_XDIST_WORKER', '')}contract{next(_numbers)}"
    created = Namespace(f"{tag}-node")
    try:
        created.create()
        yield created
    finally:
        remove(tag)
