"""Errors in the words of the command line."""

import pytest

from factormer.app.cli.wording import as_typed


@pytest.mark.parametrize(
    ("python", "typed"),
    [
        ("max_iter is -1; it must be at least 0", "--max-iter is -1; it must be at least 0"),
        ("rank is 0; it must be above 0", "--rank is 0; it must be above 0"),
        ("this needs symmetric=True; leave it out", "this needs --symmetric; leave it out"),
        ("use missing='zeros' for ratings", "use --missing zeros for ratings"),
        ("regularize_W holds 'x'", "--regularize-w holds 'x'"),
        ("raise memory_limit so that V fits", "raise --memory-limit so that V fits"),
        ("--max-iter is -1", "--max-iter is -1"),
        ("the loss of an entry", "the loss of an entry"),
        ("its rank is high", "its rank is high"),
    ],
)
def test_keywords_become_options(python, typed):
    assert as_typed(python) == typed
    assert as_typed(typed) == typed
