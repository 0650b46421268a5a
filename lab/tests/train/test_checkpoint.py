"""Checkpoints are written whole or not at all, and read with suspicion."""

import json

import pytest
import torch
from tests.data.test_files import fill_the_disk

from factormer.data.locks import held
from factormer_lab.train.anyrank.config import AnyRankTraining
from factormer_lab.train.anyrank.course import train_any_rank
from factormer_lab.train.checkpoint import MetricsLog, load_checkpoint, save_checkpoint
from factormer_lab.train.factormer import train_factormer
from lab.tests.train.cases import CONFIG

CPU = torch.device("cpu")


def contents(*, step: int, learner: dict[str, torch.Tensor] | None = None):
    return {"config": {}, "learner": learner or {}, "step": step, "seconds": 0.0}


def test_checkpoint_comes_back_as_it_was(tmp_path):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, contents(step=3, learner={"a": torch.arange(4.0)}))
    saved = load_checkpoint(path, CPU)
    assert saved["step"] == 3
    assert torch.equal(saved["learner"]["a"], torch.arange(4.0))
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, contents(step=1))

    def full_disk(contents, file):
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="no space left"):
        save_checkpoint(path, contents(step=2))
    monkeypatch.undo()
    assert load_checkpoint(path, CPU)["step"] == 1
    save_checkpoint(path, contents(step=3))  # the half-written file is in nobody's way
    assert load_checkpoint(path, CPU)["step"] == 3


@pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
def test_damaged_checkpoint_is_named_with_the_remedy(tmp_path, damage):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"weights": torch.arange(1000.0)})
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": whole[:500], "noise": b"x" * 500}[damage])
    with pytest.raises(ValueError, match=r"(?s)checkpoint\.pt .* is damaged .* remove it"):
        load_checkpoint(path, CPU)


class Malicious:
    def __reduce__(self):
        return print, ("executed",)


def test_nothing_in_a_checkpoint_is_executed(tmp_path, capsys):
    path = tmp_path / "checkpoint.pt"
    torch.save({"step": Malicious()}, path)
    with pytest.raises(ValueError, match="not a checkpoint"):
        load_checkpoint(path, CPU)
    assert "executed" not in capsys.readouterr().out


def test_log_is_appended_to(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, resume_at=0)
    log.write(step=1, loss=0.5)
    log.write(step=2, loss=0.25)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]


def test_resumed_log_drops_what_the_checkpoint_has_not_seen(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 4, "lo')
    MetricsLog(path, resume_at=2).write(step=3)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3]


def test_a_full_disk_leaves_checkpoint_and_log(tmp_path, monkeypatch):
    checkpoint, log = tmp_path / "checkpoint.pt", tmp_path / "metrics.jsonl"
    save_checkpoint(checkpoint, contents(step=1))
    log.write_text('{"step": 1}\n')
    fill_the_disk(monkeypatch, 0)
    with pytest.raises(OSError, match=r"checkpoint\.pt cannot be written \(No space left"):
        save_checkpoint(checkpoint, contents(step=2))
    with pytest.raises(OSError, match=r"metrics\.jsonl cannot be written \(No space left"):
        MetricsLog(log, resume_at=1)
    monkeypatch.undo()
    assert load_checkpoint(checkpoint, CPU)["step"] == 1
    assert log.read_text() == '{"step": 1}\n'
    assert len(list(tmp_path.iterdir())) == 2


def test_a_link_is_no_place_for_a_checkpoint_or_a_log(tmp_path):
    for name in ("checkpoint.pt", "metrics.jsonl"):
        (tmp_path / name).symlink_to("elsewhere")
    with pytest.raises(OSError, match="it is a symbolic link"):
        save_checkpoint(tmp_path / "checkpoint.pt", contents(step=1))
    with pytest.raises(OSError, match="it is a symbolic link"):
        MetricsLog(tmp_path / "metrics.jsonl", resume_at=0)


@pytest.mark.parametrize(
    ("run", "config"),
    [(train_factormer, CONFIG), (train_any_rank, AnyRankTraining(name="tiny"))],
    ids=["fixed rank", "any rank"],
)
def test_two_trainings_in_one_folder_are_kept_apart(run, config, tmp_path):
    (tmp_path / "metrics.jsonl").write_text("of the other")
    sentence = r"another run is using .*; wait for it, or choose another --out"
    with held(tmp_path), pytest.raises(ValueError, match=sentence):
        run(config, tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("metrics.jsonl", "of the other")
    ]
