"""Fixtures of the property tests."""

import pytest

from .symexpr import Tool


@pytest.fixture(scope="module")
def tool():
    path = Tool.find()
    if path is None:
        pytest.skip("disc-symexpr is not built")
    tool = Tool(path)
    yield tool
    tool.close()
