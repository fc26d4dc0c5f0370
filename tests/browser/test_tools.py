"""The page: facets, why, code to copy, comparison, media, vectors, additions, accessibility."""

import json
import re
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from crossbit import Collection
from tests.browser.test_page import cards
from tests.features.images import encoded
from tests.server.running import Running, running
from tests.server.shapes import draw

Scheme = Literal["light", "dark"]
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
PLACES = [
    ("service", ""),
    ("service", "#/text/red"),
    ("service", "#/item/%22small-red-bar%2B0%22"),
    ("service", "#/compare/red/blue"),
    ("service", "#/model"),
    ("service", "docs"),
    ("service", "#/text/elephant"),
    ("things", ""),
    ("things", "#/item/0"),
    ("readings", ""),
    ("readings", "#/item/0"),
]


@pytest.mark.parametrize("width", [360, 1280, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(
    browser: Browser,
    service: Running,
    things: Running,
    readings: Running,
    width: int,
    scheme: Scheme,
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    services = {"service": service, "things": things, "readings": readings}
    for name, place in PLACES:
        page.goto("about:blank")
        page.goto(f"{services[name].address}/{place}")
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        for closed in page.locator("main details:not([open])").all()[:2]:
            closed.locator("summary").click()
        answer = Axe().run(page, options=RULES).response
        found = [(each["id"], each["nodes"][0]["html"]) for each in answer["violations"]]
        assert found == [], place
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_results_are_within_the_first_screen_of_a_phone(browser: Browser, service: Running) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 640}, has_touch=True)
    phone = context.new_page()
    for place in ("#/text/red", "#/item/%22small-red-bar%2B0%22"):
        phone.goto("about:blank")
        phone.goto(f"{service.address}/{place}")
        box = cards(phone).first.locator(".face").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 640
    context.close()


def test_the_query_is_shown_once(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/text/red%20%2B%20circle")
    expect(cards(page)).to_have_count(24)
    expect(page.get_by_label("Text to search with")).to_have_value("red + circle")
    again = page.locator(".count .hidden").bounding_box()
    assert again is not None
    assert again["width"] <= 2  # for screen readers alone


def test_the_placeholder_is_a_word_of_the_collection(page: Page, service: Running) -> None:
    page.goto(service.address)
    expect(page.get_by_label("Text to search with")).to_have_attribute(
        "placeholder", re.compile(r"^such as (small|large)$")
    )


def test_facets_filter_the_results(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/text/red")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("combobox", name="label").select_option(label="bar (36)")
    expect(page.get_by_role("button", name="Filter (1)")).to_be_visible()
    expect(cards(page).first).to_contain_text("bar")
    for card in cards(page).all():
        expect(card.locator(".chips")).to_contain_text("bar")
    page.get_by_role("combobox", name="tags").select_option(label="small (72)")
    expect(page.get_by_role("button", name="Filter (2)")).to_be_visible()
    expect(cards(page)).to_have_count(18)


def test_why_names_the_bits_that_agree(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/text/red%20%2B%20circle")
    first = cards(page).first
    distance = int(first.locator(".distance b").inner_text())
    first.get_by_text("why").click()
    expect(first).to_contain_text(f"{32 - distance} of 32 bits agree.")
    expect(first.locator(".reasons")).to_contain_text(
        re.compile(r"(red|circle) \d+ bits?, AUC 0\.\d\d")
    )


def test_the_query_can_be_copied_as_code(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/text/it's%20red")
    page.get_by_role("button", name="curl").click()
    code = page.get_by_label("The query as code")
    expect(code).to_contain_text(f"{service.address}/api/search")
    expect(code).to_contain_text("it'\\''s red")
    page.get_by_role("button", name="Python").click()
    expect(code).to_contain_text(f'collection = connect("{service.address}")')
    text = code.inner_text()
    compile(text, "copied", "exec")
    assert """collection.search("text", ["it's red"], k=24)""" in text
    page.goto(service.address + "/#/item/%22small-red-bar%2B0%22")
    expect(page.get_by_role("heading", level=1)).to_contain_text("red, bar, small")
    page.get_by_role("button", name="Python").click()
    compile(code.inner_text(), "copied", "exec")
    expect(code).to_contain_text('(item,) = collection.get(["small-red-bar+0"])')


def test_two_queries_are_compared(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/text/red")
    page.get_by_label("Text to compare with").fill("circle")
    page.get_by_role("button", name="Compare").click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text(re.compile(r"^\d+ results in common$"))
    common = int(heading.inner_text().split()[0])
    assert 0 < common < 24
    expect(page.get_by_text("in both", exact=True)).to_have_count(2 * common)
    for text in ("“red”", "“circle”"):
        columns = page.get_by_role("list", name=f"Results for {text}, nearest first")
        expect(columns.locator("li.card")).to_have_count(24)
    page.get_by_role("link", name="“circle”").click()
    expect(page.get_by_label("Text to search with")).to_have_value("circle")


def test_media_are_drawn(page: Page, things: Running) -> None:
    page.goto(things.address)
    for name in ("Spectrogram of chirp", "Mesh of pyramid", "Mesh of triangle", "Signal of steps"):
        drawing = page.get_by_role("img", name=name)
        drawing.scroll_into_view_if_needed()
        page.wait_for_function(
            "canvas => canvas.getContext('2d').getImageData(0, 0, 360, 200).data.some(x => x > 0)",
            arg=drawing.element_handle(),
        )
    expect(page.get_by_label("Audio of chirp")).to_have_attribute("src", re.compile(r"/media\?id="))
    expect(page.get_by_text("Mesh of broken: the file cannot be shown.")).to_be_visible()


def test_meshes_turn(page: Page, things: Running) -> None:
    page.goto(things.address)
    mesh = page.get_by_role("img", name="Mesh of pyramid")
    mesh.scroll_into_view_if_needed()
    before = mesh.evaluate("canvas => canvas.toDataURL()")
    page.wait_for_function(
        "([canvas, before]) => canvas.toDataURL() !== before", arg=[mesh.element_handle(), before]
    )


def test_long_text_folds(page: Page, things: Running) -> None:
    page.goto(things.address + "/#/item/0")
    card = cards(page).filter(has_text="A long description")
    name = card.locator(".name .clamp")
    cut = "element => element.scrollHeight > element.clientHeight + 1"
    card.get_by_role("button", name="more", exact=True).click()
    assert not name.evaluate(cut)
    card.get_by_role("button", name="less").click()
    assert name.evaluate(cut)


def test_a_collection_without_raw_inputs_takes_ids_and_vectors(page: Page, things: Running) -> None:
    page.goto(things.address)
    expect(page.get_by_role("heading", level=1)).to_contain_text("paste a vector")
    page.get_by_label("Id of an item to search with").fill("0")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("results for chirp")
    expect(cards(page)).to_have_count(5)
    page.get_by_label("Numbers of the vector").fill("[1.5, -2, 0.25]")
    page.get_by_role("button", name="Search with it", exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("a vector of 3 numbers")
    expect(cards(page)).to_have_count(6)
    expect(page.get_by_text("held out")).to_have_count(1)
    page.get_by_label("Numbers of the vector").fill("1, 2")
    page.get_by_role("button", name="Search with it", exact=True).first.click()
    expect(page.get_by_role("alert")).to_contain_text("Expected 3 numbers for a, got 2.")


def test_weak_matches_are_marked(page: Page, service: Running) -> None:
    def weaken(route: Route) -> None:
        answer = route.fetch().json()
        for hit in answer["hits"][4:]:
            hit["weak"] = True
        route.fulfill(body=json.dumps(answer), content_type="application/json")

    page.route("**/api/search", weaken)
    page.goto(service.address + "/#/text/red")
    expect(page.get_by_text("20 of 24 are weak matches")).to_be_visible()
    expect(page.get_by_text("weak match", exact=True)).to_have_count(20)


def test_files_are_added_by_dropping_them(page: Page, gallery: Path, tmp_path: Path) -> None:
    with Collection.open(gallery) as source:
        Collection.create(tmp_path / "own", source.model).close()
    with running(tmp_path / "own", "--writable") as started:
        page.goto(started.address)
        expect(page.get_by_text("Drop files here to add them.")).to_be_visible()
        images = [list(encoded(draw(color, "square", 20))) for color in ("red", "blue")]
        transfer = page.evaluate_handle(
            "images => { const data = new DataTransfer(); const type = 'image/png';"
            " images.forEach((bytes, i) =>"
            " data.items.add(new File([new Uint8Array(bytes)], `${i}.png`, { type })));"
            " return data; }",
            images,
        )
        page.dispatch_event("body", "drop", {"dataTransfer": transfer})
        expect(page.get_by_role("list", name="Items to start with").locator("li")).to_have_count(2)
        chooser = page.get_by_label("File to search with")
        contents = encoded(draw("green", "bar", 20))
        chooser.set_input_files({"name": "g.png", "mimeType": "image/png", "buffer": contents})
        page.get_by_role("button", name="Add to the collection").click()
        expect(page.get_by_role("button", name="Added as g.png")).to_be_visible()
    with Collection.open(tmp_path / "own") as own:
        assert {item.id for item in own} == {"0.png", "1.png", "g.png"}


def test_sound_is_recorded_where_a_modality_takes_audio(browser: Browser, service: Running) -> None:
    context = browser.new_context(permissions=["microphone"])
    page = context.new_page()

    def accept_audio(route: Route) -> None:
        answer = route.fetch().json()
        answer["model"]["modalities"][0]["accepts"] = "audio"
        route.fulfill(body=json.dumps(answer), content_type="application/json")

    page.route("**/api/stats", accept_audio)
    page.goto(service.address)
    button = page.get_by_role("button", name="Record")
    button.click()
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_visible()
    page.wait_for_timeout(500)
    with page.expect_request("**/api/search") as sent:
        stop.click()
    assert sent.value.headers["content-type"].startswith("multipart/form-data")
    expect(button).to_be_visible()
    context.close()


def test_the_model_page_shows_recall_by_rank_and_quality_per_stage(
    page: Page, things: Running
) -> None:
    page.goto(things.address + "/#/model")
    expect(page.get_by_text("bytes per item without the model")).to_be_visible()
    chart = page.get_by_role(
        "img", name=re.compile("Recall of the one right answer: a → b from 0.25")
    )
    expect(chart).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Precision and recall"))).to_have_count(0)
    stages = page.get_by_role("table", name="recall@10 after each stage")
    expect(stages.get_by_role("row", name=re.compile("^encoder –"))).to_be_visible()
    expect(stages.get_by_role("row", name=re.compile("^bits 75.0 % Hamming"))).to_be_visible()
