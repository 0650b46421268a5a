"""What the documentation shows of the lab is what happens."""

import pytest
from tests.test_docs import LAB_PAGES, PAGES, blocks, name_of, run_examples

from factormer_lab.train.anyrank.config import AnyRankTraining


@pytest.mark.parametrize("page", LAB_PAGES, ids=name_of)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(page)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=name_of)
def test_configs_that_are_shown_can_be_loaded(page, tmp_path):
    for source in blocks(page, "toml"):
        path = tmp_path / "shown.toml"
        path.write_text(source)
        AnyRankTraining.load(path)
