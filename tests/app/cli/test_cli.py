"""The command line: what each command prints and makes, and a sentence for what goes wrong."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import typer.main

import factormer
from factormer.app.cli import app, main
from factormer.app.cli.lab import add_commands

COMMANDS = list(getattr(typer.main.get_command(app), "commands"))  # noqa: B009


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


# Commands


def test_demo_makes_pictures_and_a_report_and_says_how_well_it_did(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "new" / "demo")]) == 0
    pictures = sorted((tmp_path / "new" / "demo").glob("*.png"))
    assert [path.name for path in pictures] == ["components.png", "convergence.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    out = capsys.readouterr().out
    assert "digits 1797×64, rank 16" in out
    assert out.count("RMSE") == 2
    assert "a second call   the first, which loads compiled code too" in out
    assert all(str(path) in out for path in pictures)
    report = tmp_path / "new" / "demo" / "report.html"
    assert f"report: {report}" in out
    assert report.is_file()


def test_models_prints_a_line_for_each(capsys):
    assert main(["models"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(factormer.models())
    assert "any-rank any rank accelerator: --accelerator any-rank" in [
        " ".join(x.split()) for x in lines
    ]
    assert last.startswith("factormer models NAME prints the card")


def test_a_model_prints_its_card(capsys):
    for name, card in factormer.models().items():
        assert main(["models", name]) == 0
        assert capsys.readouterr().out == f"{card}\n"
    assert main(["models", "rank", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["rank"]
    assert main(["models", "none"]) == 1
    assert "there is no network 'none'; choose one of accel-r10-paper" in capsys.readouterr().err


def test_models_as_json_can_be_parsed(capsys):
    assert main(["models", "--json"]) == 0
    cards = json.loads(capsys.readouterr().out)
    assert list(cards) == list(factormer.models())
    for name, card in factormer.models().items():
        assert cards[name]["config"] == asdict(card.config)
        assert cards[name]["version"] == card.version


def test_arguments_come_from_the_shell_by_default(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["factormer", "models", "--json"])
    assert main() == 0
    assert json.loads(capsys.readouterr().out)


def test_the_module_is_the_command():
    source = Path(__file__).parents[3] / "src"
    done = subprocess.run(
        [sys.executable, "-m", "factormer", "models", "--json"],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout).keys() == factormer.models().keys()


# Wrong use


@pytest.mark.parametrize("command", ["train", "reproduce"])
def test_commands_of_the_lab_say_how_to_install_it_where_it_is_missing(command, capsys):
    application = typer.Typer()
    add_commands(application, [])
    with pytest.raises(ImportError, match=r"factormer-lab, .* pip install \./lab"):
        typer.main.get_command(application)([command, "x.toml", "--device", "cpu"])


@pytest.mark.parametrize("arguments", [["nonsense"], ["models", "--nonsense"], ["transform"]])
def test_wrong_usage_ends_with_2_and_says_where_help_is(arguments, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert "--help" in captured.err
    assert "Traceback" not in captured.out + captured.err


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_is_there_for_every_command(command, capsys):
    assert main([*command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Usage:" in out
    assert command or all(name in out for name in COMMANDS)


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"factormer {factormer.__version__}\n"
