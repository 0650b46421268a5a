"""The commands that show: demo, models and bench."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from factormer.app.cli.app import AsJson, Out, app, print_json


@app.command()
def demo(out: Out = Path("runs/demo")) -> None:
    """Factorize scikit-learn's digits and compare with scikit-learn's NMF; draw and report both."""
    from factormer.app.compare import digits
    from factormer.app.demo import demo as run
    from factormer.app.report import write_report
    from factormer.app.runs import FitOptions, RunFolder, fit

    done = run(out)
    fit(digits(), [done.result.W.shape[1]], FitOptions(), out, command="factormer demo")
    report = write_report(RunFolder(out))
    print(f"digits 1797×64, rank {done.result.W.shape[1]}: {done.result.status}")
    print("                               a second call   the first, which loads compiled code too")
    for name, rmse, seconds in (
        ("factormer", done.result.rmse, done.seconds),
        ("scikit-learn", done.sklearn_rmse, done.sklearn_seconds),
    ):
        print(f"  {name:<12}  RMSE {rmse:.4f}   {seconds.second:11.3f} s   {seconds.first:.3f} s")
    for picture in done.pictures:
        print(f"  picture: {picture}")
    print(f"  report: {report}")


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="A network, whose card is printed.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the shipped networks, or print the card of one."""
    from factormer.nn import zoo

    cards = zoo.models()
    if name is not None:
        card = zoo.read_card(zoo.find_model(name))
        cards = {card.name: card}
    if as_json:
        print_json({name: asdict(card) for name, card in cards.items()})
        return
    if name is not None:
        print("\n\n".join(str(card) for card in cards.values()))
        return
    for key, card in cards.items():
        print(f"{key:<16} version {card.version:<3} {card.use:<12} {card.ranks}")
    print("factormer models NAME prints a card")


@app.command()
def bench(
    file: Annotated[
        Path | None, typer.Argument(help="A file as of `fit`; default scikit-learn's digits.")
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Number of components.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the first run; each later run adds 1.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Time factormer and scikit-learn on a file of yours, each with its defaults."""
    from factormer.app.compare import compare, digits
    from factormer.app.read import read

    data = digits() if file is None else read(file)
    race = compare(data.V, rank, repeats=repeats, seed=seed)
    if as_json:
        shape = list(data.V.shape)
        asked = {"schema": 1, "data": data.name, "shape": shape, "rank": rank}
        print_json(asked | race.as_dict())
        return
    m, n = data.V.shape
    print(f"{data.name} {m}×{n}, rank {rank}; medians of {repeats}")
    for row in race.rows:
        print(f"  {row.name:<22} RMSE {row.rmse:<10.5g} {row.seconds:8.3f} s")
    if race.seconds_to_match is None:
        print("  factormer did not reach scikit-learn's error")
    else:
        print(f"  factormer is at scikit-learn's error after {race.seconds_to_match:.3f} s")
