"""A small trial, and its page in a browser that may ask for nothing else."""

import pytest
from support.cases import tiny_trial
from support.chromium import chromium, visit


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def tiny():
    return tiny_trial()


@pytest.fixture(scope="module")
def address(tiny, tmp_path_factory):
    return tiny.html(tmp_path_factory.mktemp("page") / "tiny.html").as_uri()


@pytest.fixture
def seen(browser, address):
    with visit(browser, address, permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.page.wait_for_selector("canvas[data-shown]")
        opened.settle()
        yield opened
        assert opened.complaints == []
        assert opened.requests == [address]
