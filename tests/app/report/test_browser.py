"""The report in a real browser: it renders, answers, and its console is silent."""

import csv
import itertools
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from factormer.app.report import write_report
from factormer.app.runs import FitOptions, RunFolder, fit
from factormer.app.runs.references import References, compare_rank
from factormer.app.runs.select import choose_rank, keep_choice
from tests.app.report.browser import chromium, drawn, needs_browser, show
from tests.app.runs import cases

pytestmark = needs_browser
ALL = ["images", "topics", "cube", "sound", "holes", "evil", "many", "trust", "chosen"]
EVIL = "<img src=x onerror=window.hacked=1></script><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def driver():
    with chromium() as found:
        yield found


@pytest.fixture(autouse=True)
def _silent(driver):
    yield
    assert driver.get_log("browser") == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page for each kind of data."""
    made = {}
    for kind in (cases.images, cases.topics, cases.cube, cases.sound, cases.holes):
        path = tmp_path_factory.mktemp(kind.__name__)
        fit(kind(), [1, 2, 4], FitOptions(max_iter=8), path, command="factormer fit data")
        made[kind.__name__] = write_report(RunFolder(path))
    path = tmp_path_factory.mktemp("evil")
    fit(replace(cases.topics(name=EVIL), name=EVIL), [3], FitOptions(max_iter=8), path)
    made["evil"] = write_report(RunFolder(path))
    path = tmp_path_factory.mktemp("trust")  # under Kullback–Leibler, with all that is asked of it
    trusted = FitOptions(
        loss="kullback-leibler", repeats=4, resample="poisson", holdout=0.25, max_iter=50
    )
    fit(cases.counts(), [1, 2, 3], trusted, path, command="factormer fit data")
    made["trust"] = write_report(RunFolder(path))
    path = tmp_path_factory.mktemp("chosen")
    fit(cases.counts(), [2], FitOptions(max_iter=8), path, command="factormer fit data")
    keep_choice(choose_rank(cases.counts(), FitOptions(), mask=None, weights=None), path)
    made["chosen"] = write_report(RunFolder(path))
    path = tmp_path_factory.mktemp("many")
    fit(cases.images(m=80), [60], FitOptions(max_iter=3), path)
    made["many"] = write_report(RunFolder(path))
    return made


def js(driver, script: str, *arguments):
    return driver.execute_script(f"return {script}", *arguments)


def texts(driver, selector: str) -> list[str]:
    return js(
        driver, "[...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
    )


def click(driver, selector: str) -> None:
    driver.execute_script("document.querySelector(arguments[0]).click()", selector)
    drawn(driver)


def hover(driver, selector: str) -> str:
    """Point at the middle of an element, really, and read the tooltip."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    element = driver.find_element(By.CSS_SELECTOR, selector)
    driver.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element
    )
    ActionChains(driver).move_to_element(element).move_by_offset(2, 2).perform()
    assert not js(driver, "document.getElementById('tip').hidden"), f"no tooltip over {selector}"
    return js(driver, "document.getElementById('tip').textContent")


def is_painted(driver, selector: str) -> bool:
    """Whether a canvas, or each of several, has more than one colour."""
    return js(
        driver,
        """[...document.querySelectorAll(arguments[0])].every((canvas) => {
          const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size > 1;
        })""",
        selector,
    )


def background(driver) -> int:
    """The brightness of the page, 0 … 255."""
    colour = js(driver, "getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour[4:-1].split(",")[:3]) // 3


# By the formula of the Web Content Accessibility Guidelines.
CONTRASTS = """() => {
  const probe = document.body.appendChild(document.createElement("i"));
  const lightness = (name) => {
    probe.style.color = `var(${name})`;
    const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3);
    const [r, g, b] = parts.map((c) => c / 255)
      .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const pairs = ["--ink", "--muted", "--accent"]
    .flatMap((ink) => ["--paper", "--surface"].map((paper) => [ink, paper]));
  pairs.push(["--ink", "--soft"], ["--ink", "--sunken"], ["--muted", "--sunken"]);
  pairs.push(["--second", "--surface"], ["--ink", "--second-soft"], ["--paper", "--accent"]);
  return pairs.map((pair) => {
    const [a, b] = pair.map(lightness);
    return Math.max(a, b) / Math.min(a, b);
  });
}"""

# It renders


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ALL)
def test_page_renders_without_overflow(driver, pages, kind, width):
    show(driver, pages[kind], width=width)
    rank = js(driver, "current().rank")
    assert len(texts(driver, "#cards .card")) == rank
    assert texts(driver, "h1") == [js(driver, "run.name")]
    root = "document.documentElement"
    assert js(driver, f"{root}.scrollWidth <= {root}.clientWidth")
    assert is_painted(driver, "#maps figure > canvas")
    assert texts(driver, "#picked h3") == ["Component 1"]
    charts = js(driver, "[...document.querySelectorAll('.chart')].map((e) => e.innerHTML.length)")
    assert all(charts)
    assert not any("NaN" in text for text in texts(driver, "main"))
    assert js(driver, "document.querySelector('main').innerHTML.includes('NaN')") is False
    assert js(driver, "performance.getEntriesByType('resource').length") == 0


def test_names_in_the_data_do_nothing(driver, pages):
    show(driver, pages["evil"])
    assert js(driver, "window.hacked === undefined")
    assert texts(driver, "h1") == [EVIL]


@pytest.mark.parametrize(
    ("kind", "selector"),
    [
        ("images", "#cards canvas, #picked canvas"),
        ("cube", "#cards canvas, #picked canvas, #errors canvas"),
        ("sound", "#picked canvas.wide"),
        ("many", "#alike-map, .thumbs canvas"),
        ("trust", "#consensus-map"),
    ],
)
def test_pictures_are_painted(driver, pages, kind, selector):
    show(driver, pages[kind])
    assert js(driver, "document.querySelectorAll(arguments[0]).length", selector) > 0
    assert is_painted(driver, selector)


def test_text_shows_its_top_terms(driver, pages):
    show(driver, pages["topics"])
    terms = texts(driver, "#picked .telling th[scope=row]")
    assert len(terms) == 12
    assert all(term.startswith("term ") for term in terms)
    rows = js(driver, "current().components[0].H_telling")
    assert texts(driver, "#picked .telling td:nth-child(2)") == [f"{row[1]:.2f}" for row in rows]
    assert all(text.startswith("text ") for text in texts(driver, "#picked .bars li span"))


def test_the_recommended_rank_is_marked_and_explained(driver, pages):
    show(driver, pages["trust"])
    rank = js(driver, "run.advice.rank")
    assert js(driver, "current().rank") == rank
    assert texts(driver, "#ranks label.recommended") == [str(rank)]
    said = texts(driver, "#advice")[0]
    assert said.startswith(
        f"Rank {rank} is recommended, by the error of hidden entries, and therefore open."
    )
    for chart in ("#by-rank", "#by-stability"):
        assert js(driver, "document.querySelectorAll(arguments[0]).length", f"{chart} .mark") == 1
    assert f"{rank} ★" in texts(driver, "#by-rank-table td")
    show(driver, pages["images"])  # of which nothing but errors is known
    assert "a place to begin looking" in texts(driver, "#advice")[0]
    assert texts(driver, "#ranks label.recommended") == []
    assert js(driver, "document.getElementById('agreement').hidden")
    show(driver, pages["evil"])  # of one rank
    assert "Rank 3 is shown because it was asked for" in texts(driver, "#advice")[0]


def test_errors_are_those_of_the_loss_that_was_minimised(driver, pages):
    show(driver, pages["trust"])
    said = texts(driver, "main")[0]
    assert "Kullback–Leibler divergence" in said
    assert not any(word in said for word in ("RMSE", "Root mean square", "root mean square", "SVD"))
    shown = js(driver, "document.querySelector('#tiles .value').textContent")
    assert shown == js(driver, "explainedText(current().explained_divergence)")


def test_every_component_has_its_stability(driver, pages):
    show(driver, pages["trust"])
    shares = [f"{s:.2f}" for s in js(driver, "current().stability")]
    assert texts(driver, ".card .steady") == shares
    assert texts(driver, "#stability-list em") == shares


def test_a_choice_shows_its_probabilities_and_the_other_rules(driver, pages):
    show(driver, pages["chosen"])
    assert "by a network" in texts(driver, "#advice")[0]
    ranks = js(driver, "Object.keys(run.choice.probabilities).length")
    assert js(driver, "document.querySelectorAll('#by-probability .column').length") == ranks
    assert "BIC" in texts(driver, "#choice-rules td")
    assert js(driver, "document.querySelectorAll('#by-stability .dot').length") == ranks


# It answers


def test_charts_with_a_single_dot_are_not_shown(driver, pages):
    show(driver, pages["evil"])  # one rank, and no other was looked at
    assert js(driver, "document.getElementById('by-rank-figure').hidden")
    assert js(driver, "document.getElementById('stability-figure').hidden")
    show(driver, pages["chosen"])
    assert not js(driver, "document.getElementById('by-rank-figure').hidden")


def test_stability_means_one_thing(driver, pages):
    show(driver, pages["chosen"])  # by a network, whose fits differ in their starts
    assert "Stability" not in " ".join(texts(driver, "#quality h3, #quality text, #quality th"))
    assert "Agreement of starts by rank" in texts(driver, "#quality h3")
    assert "agreement of starts" in " ".join(texts(driver, "#choice-rules td"))
    show(driver, pages["trust"])
    assert "Stability by rank" in texts(driver, "#quality h3")


def test_what_each_rule_says_stands_in_a_table(driver, pages):
    show(driver, pages["trust"])
    rows = texts(driver, "#rules-table tbody tr")
    assert len(rows) == 2
    assert "hidden entries" in rows[0]
    show(driver, pages["images"])
    assert js(driver, "document.getElementById('rules').hidden")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A cube beside two known spectra, and counts of mutations beside signatures."""
    made = {}
    for name, data in (("cube", cases.cube()), ("types", cases.mutations())):
        path = tmp_path_factory.mktemp(f"compared-{name}")
        fit(data, [2], FitOptions(max_iter=30), path)
        folder = RunFolder(path)
        side, axis = ("columns", data.columns) if name == "cube" else ("rows", data.rows)
        values = folder.factors(2)["H" if name == "cube" else "W"]
        known = References(side, ("clay", "sand"), values[:, ::-1] + 0.05 * values.max())
        assert axis.size == len(values)
        compare_rank(folder, 2, known)
        made[name] = write_report(folder)
    return made


def test_references_stand_on_cards_in_a_table_and_over_the_component(driver, compared):
    show(driver, compared["cube"])
    assert texts(driver, ".card .known")[0].startswith("sand, ")
    assert texts(driver, "#references-table tbody tr td:nth-child(2)") == ["sand", "clay"]
    assert js(driver, "document.querySelectorAll('#picked path.curve.hidden').length") == 1
    assert "Dashed: sand." in texts(driver, "#picked .hint")
    show(driver, compared["types"])
    assert js(driver, "document.querySelectorAll('#picked line.known').length") == 96


def test_maps_of_use_share_a_scale_unless_each_goes_to_its_peak(driver, pages):
    show(driver, pages["cube"])
    click(driver, "#rank-1")
    peak = (
        "Math.max(...current().components.map((one) => highOf(one, 'use') * timesOf(one, 'use')))"
    )
    least = peak.replace("max", "min")
    assert js(driver, peak) == pytest.approx(js(driver, least))
    shared = js(driver, "document.querySelector('#cards-scale').textContent")
    click(driver, "#to-peak-peak")
    assert js(driver, peak) > js(driver, least)
    assert js(driver, "document.querySelector('#cards-scale').textContent") != shared
    show(driver, pages["topics"])
    assert js(driver, "document.getElementById('maps-scale').hidden")


@pytest.mark.parametrize("kind", ["cube", "sound", "trust", "topics"])
def test_labels_of_axes_do_not_touch_at_400_pixels(driver, pages, kind):
    show(driver, pages[kind], width=400)
    touching = """(() => {
      const found = [];
      const touch = ([, p], [, q]) => p.left < q.right && q.left < p.right
        && p.top < q.bottom - 2 && q.top < p.bottom - 2;
      for (const svg of document.querySelectorAll("svg")) {
        const boxes = [...svg.querySelectorAll("text")]
          .map((text) => [text.textContent, text.getBoundingClientRect()]);
        boxes.forEach((one, i) => boxes.slice(i + 1).forEach((other) => {
          if (touch(one, other)) found.push(`${one[0]} ${other[0]}`);
        }));
      }
      return found;
    })()"""
    assert js(driver, touching) == []


def test_every_chart_is_saved_as_svg(driver, pages):
    show(driver, pages["trust"])
    for container in ("by-rank", "by-stability", "convergence"):
        text = js(driver, f"asSvg(document.querySelector('#{container} svg'))")
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        strokes = [e.get("style", "") for e in root.iter("{http://www.w3.org/2000/svg}path")]
        assert any("stroke: rgb(" in style for style in strokes)
        assert not any(e.get("class") for e in root.iter() if e is not root)
    assert len(texts(driver, "button[title^='Save as SVG']")) >= 5


def test_picking_a_component_shows_it(driver, pages):
    show(driver, pages["images"])
    click(driver, "#rank-2")  # rank 4
    before = js(driver, "document.querySelector('#picked canvas').toDataURL()")
    click(driver, ".card[data-component='2']")
    assert texts(driver, "#picked h3") == ["Component 3"]
    pressed = js(driver, "[...document.querySelectorAll('.card')].map((c) => c.ariaPressed)")
    assert pressed == ["false", "false", "true", "false"]
    assert js(driver, "document.querySelector('#picked canvas').toDataURL()") != before
    click(driver, "[aria-label='Next component']")
    click(driver, "[aria-label='Next component']")
    assert texts(driver, "#picked h3") == ["Component 1"]


def test_keys_move_between_components(driver, pages):
    from selenium.webdriver import ActionChains, Keys

    show(driver, pages["images"])
    click(driver, "#rank-2")
    driver.execute_script("document.querySelector('.card').focus()")
    ActionChains(driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT).perform()
    assert texts(driver, "#picked h3") == ["Component 2"]
    assert js(driver, "document.activeElement.dataset.component") == "1"
    ActionChains(driver).send_keys(Keys.TAB).perform()
    assert js(driver, "document.activeElement.matches(':focus-visible')")


def test_picking_a_rank_redraws_everything(driver, pages):
    show(driver, pages["cube"])
    for index, rank in enumerate((1, 2, 4)):
        click(driver, f"#rank-{index}")
        assert len(texts(driver, ".card")) == rank
        assert f"by {rank} component" in texts(driver, "#tiles")[0]
        assert js(driver, "document.getElementById('alike-map').width") == rank


def test_clicking_the_error_curve_picks_a_rank(driver, pages):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    show(driver, pages["images"])
    click(driver, "#rank-0")
    dots = driver.find_elements(By.CSS_SELECTOR, "#by-rank circle")
    driver.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", dots[2]
    )
    ActionChains(driver).move_to_element(dots[2]).click().perform()
    assert js(driver, "current().rank") == 4
    assert js(driver, "document.getElementById('rank-2').checked")


@pytest.mark.parametrize(
    ("kind", "selector", "expected"),
    [
        ("images", "#picked canvas.whole", "pixel ("),
        ("images", "#picked .chart svg", "image"),
        ("cube", "#picked .chart svg", "band"),
        ("sound", "#picked canvas.wide", "Hz"),
        ("topics", "[data-map=residual]", "residual"),
        ("holes", "#convergence svg", "iteration"),
        ("images", "#by-rank svg", "Rank "),
        ("images", "#alike-map", " and "),
        ("topics", "#errors .chart svg", "texts: "),
        ("trust", "#by-rank svg", "hidden entries"),
        ("trust", "#by-stability svg", "least"),
        ("trust", "#consensus-map", "of the runs"),
    ],
)
def test_pointing_shows_values(driver, pages, kind, selector, expected):
    show(driver, pages[kind])
    click(driver, "#rank-2")
    assert expected in hover(driver, selector)


def test_choices_change_what_is_drawn(driver, pages):
    show(driver, pages["images"])
    click(driver, "#rank-2")
    for chart, choice in (("#convergence", "#convergence-seconds"), ("#alike-note", "#alike-use")):
        before = js(driver, "document.querySelector(arguments[0]).innerHTML", chart)
        click(driver, choice)
        assert js(driver, "document.querySelector(arguments[0]).innerHTML", chart) != before


def test_rows_and_columns_can_be_swapped(driver, pages):
    show(driver, pages["topics"])
    assert js(driver, "document.querySelector('#swap input:checked').value") == "H"
    click(driver, "#swap-W")
    assert all(t.startswith("text ") for t in texts(driver, "#picked .telling th[scope=row]"))
    assert all(t.startswith("term ") for t in texts(driver, "#picked .bars li span"))
    assert "over the texts" in texts(driver, "#alike-note")[0]
    show(driver, pages["trust"])  # genes × samples: the samples are the columns
    assert js(driver, "document.querySelector('#swap input:checked').value") == "W"
    assert all(t.startswith("gene ") for t in texts(driver, "#picked .telling th[scope=row]"))


def test_what_has_no_order_is_sorted(driver, pages):
    show(driver, pages["topics"])
    use = js(driver, "[...decode(current().components[0].W)]")
    assert len(use) == 30
    assert use == sorted(use, reverse=True)
    assert "those that use it most first" in texts(driver, "#picked .chart")[0]
    assert "the worst first" in texts(driver, "#errors .chart")[0]


def test_spectra_have_axes_and_maps_have_scales(driver, pages):
    show(driver, pages["sound"])
    assert {"0", "300", "1,000", "Hz"} <= set(texts(driver, "#picked .chart text"))
    for card in ("#cards .card .chart text", "#picked .chart text"):
        assert len(texts(driver, card)) > 2
    show(driver, pages["cube"])
    assert texts(driver, "#cards-scale span")[0] == "0"
    click(driver, "#to-peak-peak")
    assert texts(driver, "#cards-scale span") == ["0", "over the pixels", "its peak"]
    for place in ("#picked", "#alike-matrix", "#errors", "#maps figure:nth-child(3)"):
        assert len(texts(driver, f"{place} .scale span")) == 3
    note = texts(driver, "#components-note")[0]
    peaks = "over the bands are relative to their peak; those over the pixels carry the unit of V"
    assert peaks in note
    rank = js(driver, "current().rank")
    for side in ("#alike-top", "#alike-left"):
        assert texts(driver, f"{side} span") == [str(c + 1) for c in range(rank)]


def test_shares_are_drawn_as_they_are(driver, tmp_path):
    fit(cases.cube(), [3], FitOptions(max_iter=8, regularize_w=("simplex",)), tmp_path)
    show(driver, write_report(RunFolder(tmp_path)))
    note = texts(driver, "#components-note")[0]
    assert "over the bands carry the unit of V; those over the pixels are shares, which" in note
    assert "sum to 1 for each pixel." in note
    most = float(texts(driver, "#picked .scale span")[-1])
    share = RunFolder(tmp_path).factors(3)["W"][:, 0].max()
    assert most == pytest.approx(share, rel=0.01)
    assert "peak" not in " ".join(texts(driver, "#picked span"))


def test_every_line_of_the_convergence_is_inside_the_panel(driver, pages):
    show(driver, pages["images"])
    inside = """[...document.querySelectorAll("#convergence .curve")].every((curve) => {
      const [box, all] = [curve, curve.ownerSVGElement].map((e) => e.getBoundingClientRect());
      return box.left >= all.left && box.right <= all.right + 1 && box.top >= all.top
        && box.bottom <= all.bottom;
    })"""
    for choice in ("#convergence-seconds", "#convergence-iteration"):
        click(driver, choice)
        assert js(driver, "document.querySelectorAll('#convergence .curve').length") == 3
        assert js(driver, inside)


def test_skewed_counts_are_drawn_by_ratios_and_others_evenly(driver, pages):
    show(driver, pages["trust"])
    assert js(driver, "skewed(Float32Array.from([0, 0, 1, 2, 500]))")
    assert not js(driver, "skewed(Float32Array.from([3, 4, 5]))")
    before = js(driver, "document.querySelector('[data-map=V]').toDataURL()")
    shown = js(driver, "colourChoice()")
    assert js(driver, "document.querySelector('#map-colours input:checked').value") == shown
    click(driver, "#colours-linear" if shown == "log" else "#colours-log")
    assert js(driver, "document.querySelector('[data-map=V]').toDataURL()") != before
    back = "(s) => [0, 1, 7, 20].every((x) => Math.abs(s.value(s.level(x)) - x) < 1e-9)"
    assert js(driver, f"[linear(0, 20), byRoot(0, 20), logarithmic(20, 0.5)].every({back})")


def test_a_component_gets_a_name_that_lasts_and_is_saved(driver, pages):
    show(driver, pages["topics"])
    driver.execute_script("localStorage.clear()")
    show(driver, pages["topics"])
    assert js(driver, "document.getElementById('names').hidden")
    named = """(name) => { const input = document.getElementById("rename"); input.value = name;
      input.dispatchEvent(new Event("change")); }"""
    driver.execute_script(f"({named})(arguments[0])", 'Sport, "games"')
    assert texts(driver, "#picked h3") == ['Sport, "games"']
    assert texts(driver, ".card[aria-pressed=true] .caption b") == ['1 Sport, "games"']
    assert "--names names.csv" in texts(driver, "#names")[0]
    show(driver, pages["topics"])
    assert texts(driver, "#picked h3") == ['Sport, "games"']
    driver.execute_script("saveText = (name, text) => { window.saved = [name, text]; }")
    click(driver, "#names button")
    rank = js(driver, "current().rank")
    expected = f'rank,component,name\n{rank},1,"Sport, ""games"""\n'
    assert js(driver, "saved") == ["names.csv", expected]
    driver.execute_script(f"({named})('')")
    assert texts(driver, "#picked h3") == ["Component 1"]
    assert js(driver, "document.getElementById('names').hidden")


@pytest.mark.parametrize("kind", ["topics", "trust", "chosen"])
def test_every_table_is_saved_as_csv(driver, pages, kind):
    show(driver, pages[kind])
    driver.execute_script("window.saved = []; saveText = (name, text) => saved.push([name, text])")
    driver.execute_script(
        "document.querySelectorAll('.csv[title*=CSV]').forEach((e) => e.offsetParent && e.click())"
    )
    tables = {name: [*csv.reader(text.splitlines())] for name, text in js(driver, "saved")}
    assert len(tables) >= 7
    assert all(name.endswith(".csv") for name in tables)
    for rows in tables.values():
        assert len(rows) > 1
        assert len({len(row) for row in rows}) == 1
    if kind == "trust":
        stability = next(rows for name, rows in tables.items() if "stability" in name)
        assert [float(row[-1]) for row in stability[1:]] == js(driver, "current().stability")


def test_a_file_is_really_saved(driver, pages, tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    show(driver, pages["topics"])
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    click(driver, "#by-rank-csv button")
    file = tmp_path / "topics-ranks.csv"
    WebDriverWait(driver, 20).until(lambda _: file.is_file())
    assert file.read_text(encoding="utf-8").startswith("rank,RMSE,")


def test_keys_move_along_charts_and_maps(driver, pages):
    from selenium.webdriver import ActionChains, Keys

    show(driver, pages["cube"])
    for selector, said in (
        ("#picked .chart svg", "of its peak"),
        ("#convergence svg", "iteration"),
        ("[data-map=V]", "W Hᵀ"),
        ("#alike-map", " and "),
        ("#by-rank svg", "Rank "),
    ):
        driver.execute_script("document.querySelector(arguments[0]).focus()", selector)
        ActionChains(driver).send_keys(Keys.ARROW_RIGHT).perform()
        first = texts(driver, "#said")[0]
        assert said in first
        assert texts(driver, "#tip") == [first]
        ActionChains(driver).send_keys(Keys.ARROW_LEFT).perform()
        assert texts(driver, "#said")[0] != first
    ActionChains(driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER).perform()
    rank = int(texts(driver, "#said")[0].split()[1])
    assert js(driver, "current().rank") == min((1, 2, 4), key=lambda one: abs(one - rank))


# Light, dark and paper


def test_the_scheme_of_the_system_is_taken_and_can_be_changed(driver, pages):
    show(driver, pages["cube"], scheme="dark")
    assert background(driver) < 60
    assert texts(driver, "#theme") == ["Light"]
    dark = js(driver, "document.querySelector('#maps canvas').toDataURL()")
    click(driver, "#theme")
    assert background(driver) > 200
    assert js(driver, "document.querySelector('#maps canvas').toDataURL()") != dark
    click(driver, "#theme")
    assert background(driver) < 60


def test_it_prints_light_and_without_controls(driver, pages):
    show(driver, pages["cube"], scheme="dark")
    driver.execute_script("window.printed = []")
    driver.execute_script(
        "addEventListener('beforeprint', () => printed.push(isDark())); "
        "addEventListener('afterprint', () => printed.push(isDark()))"
    )
    pdf = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    assert len(pdf) > 20_000
    assert js(driver, "printed") == [False, True]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert background(driver) == 255
    hidden = js(
        driver,
        """["nav", ".tools", ".choice"].map(
          (selector) => getComputedStyle(document.querySelector(selector)).display)""",
    )
    assert hidden == ["none"] * 3


@pytest.mark.parametrize("kind", ["images", "topics", "cube", "sound", "trust", "many"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints_all_figures(driver, pages, kind, scheme):
    show(driver, pages[kind], scheme=scheme)
    driver.execute_script(
        """window.seen = [];
        const charts = () => [...document.querySelectorAll('.chart')].filter((e) => e.offsetParent);
        addEventListener('beforeprint', () => seen.push(...charts().map((chart) => {
          const svg = chart.querySelector('svg');
          return svg ? svg.viewBox.baseVal.width / chart.clientWidth : 0;
        })));"""
    )
    driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    seen = js(driver, "seen")
    assert seen
    assert all(0.99 < width <= 1 for width in seen)
    assert js(driver, "document.querySelector('main').clientWidth") > 1000  # as before
    drawn(driver)
    assert all(js(driver, "[...document.querySelectorAll('.chart')].map((e) => e.innerHTML)"))


# For everyone


@pytest.mark.parametrize("kind", ["images", "topics", "cube", "sound", "trust", "chosen"])
def test_everything_has_a_name_and_a_place(driver, pages, kind):
    show(driver, pages[kind])
    unnamed = """[...document.querySelectorAll("svg[role], canvas, button, input")]
      .filter((e) => !e.closest("[aria-hidden=true]") && !e.ariaLabel)
      .filter((e) => !e.textContent.trim() && !e.labels?.length)
      .map((e) => e.outerHTML.slice(0, 90))"""
    assert js(driver, unnamed) == []
    for landmark in ("header", "nav", "main", "footer"):
        assert js(driver, "document.querySelectorAll(arguments[0]).length", landmark) == 1
    levels = js(
        driver,
        "[...document.querySelectorAll('main :is(h1, h2, h3, h4)')].map((h) => +h.tagName[1])",
    )
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    ids = js(driver, "[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    assert js(driver, "document.documentElement.lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(driver, pages, scheme):
    """Contrast of at least 4.5 (WCAG AA) for ink, muted ink and accent on what they stand on."""
    show(driver, pages["cube"], scheme=scheme)
    ratios = js(driver, f"({CONTRASTS})()")
    assert min(ratios) >= 4.5


@pytest.mark.parametrize(
    ("kind", "width", "scheme"),
    [
        ("images", 1280, "dark"),
        ("topics", 1280, "light"),
        ("topics", 390, "dark"),
        ("cube", 390, "light"),
        ("sound", 1280, "dark"),
        ("trust", 1280, "light"),
        ("chosen", 1280, "light"),
    ],
)
def test_axe_finds_nothing(driver, pages, kind, width, scheme):
    """By the rules of axe-core."""
    axe = pytest.importorskip("axe_core_python.base").AXE_SCRIPT
    show(driver, pages[kind], width=width, scheme=scheme)
    driver.execute_script("document.querySelectorAll('details').forEach((e) => e.open = true)")
    driver.execute_script(axe)
    found = driver.execute_async_script("const done = arguments[0]; axe.run().then(done)")
    wrong = {rule["id"]: [node["html"] for node in rule["nodes"]] for rule in found["violations"]}
    assert wrong == {}
    assert "color-contrast" in {rule["id"] for rule in found["passes"]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_maps_can_be_read_without_colour(driver, pages, scheme):
    """From one end of each ramp to the other, luminance changes throughout, and by much."""
    show(driver, pages["cube"], scheme=scheme)
    for palette in ("ramp", "grey"):
        light = js(
            driver,
            """((t) => Array.from({length: 256},
              (_, i) => 0.2126 * t[3 * i] + 0.7152 * t[3 * i + 1] + 0.0722 * t[3 * i + 2])
            )(colours(arguments[0]))""",
            palette,
        )
        steps = [b - a for a, b in itertools.pairwise(light)]
        rounding = 1.0  # of three channels
        assert all(s >= -rounding for s in steps) or all(s <= rounding for s in steps)
        assert abs(light[-1] - light[0]) > 170
