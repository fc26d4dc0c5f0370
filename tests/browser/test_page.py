"""The page in a real browser: text, uploads, clicks, keyboard, and every state in between."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from crossbit import Collection
from tests.features.images import encoded
from tests.server.running import Running, running
from tests.server.shapes import draw


def cards(page: Page) -> Locator:
    return page.get_by_role("list", name="Results, nearest first").locator("li.card")


def search(page: Page, text: str) -> None:
    page.get_by_label("Text to search with").fill(text)
    page.get_by_role("button", name="Search", exact=True).click()


def hold_searches(page: Page) -> list[Route]:
    """Keep requests to search from reaching the service; return the list that collects them."""
    held: list[Route] = []
    page.route("**/api/search", lambda route: held.append(route))
    return held


SEARCH = "POST /api/collections/{collection}/search"


def wait_for_searches(page: Page, held: list[Route], count: int) -> None:
    """Wait until this many requests are held."""
    for _ in range(6000):
        if len(held) == count:
            return
        page.wait_for_timeout(10)
    raise AssertionError(f"expected {count} searches, got {len(held)}")


def wait_for_image(card: Locator) -> None:
    """Wait until its image has loaded."""
    image = card.locator(".face img")
    expect(image).to_be_visible()
    card.page.wait_for_function("image => image.naturalWidth > 0", arg=image.element_handle())


def test_text_finds_images(page: Page, service: Running) -> None:
    page.goto(service.address)
    search(page, "red + circle")
    expect(cards(page)).to_have_count(24)
    first = cards(page).first
    wait_for_image(first)
    expect(first).to_have_class(re.compile(r"\brelevant"))
    expect(first.locator(".chips .shared")).to_have_count(2)
    code = first.get_by_role("img", name=re.compile("code of 32 bits, [0-9]+ of them different"))
    expect(code).to_have_count(0)  # hidden
    page.get_by_label("Bits", exact=True).check()
    expect(code).to_be_visible()
    page.reload()
    expect(code).to_be_visible()  # the page remembers it
    page.get_by_label("Bits", exact=True).uncheck()
    expect(page.get_by_role("status").first).to_have_text("24 results for “red + circle”")
    expect(page.get_by_text("6 of 24 relevant")).to_be_visible()
    expect(page).to_have_title("“red + circle” - Crossbit")


def test_the_number_of_marked_bits_is_the_distance(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/text/blue")
    expect(cards(page)).to_have_count(24)
    for card in cards(page).all()[::6]:
        distance = int(card.locator(".distance b").inner_text())
        marks = card.locator(".bits .differs").evaluate_all(
            "all => all.map(p => p.getAttribute('d')).join('').split('M').length - 1"
        )
        assert marks == distance


def test_an_upload_gets_tags_and_finds_similar_items(page: Page, service: Running) -> None:
    page.goto(service.address)
    page.get_by_label("File to search with").set_input_files(
        {
            "name": "mine.png",
            "mimeType": "image/png",
            "buffer": encoded(draw("yellow", "triangle", 26)),
        }
    )
    tags = page.get_by_role("list", name="Suggested tags")
    expect(tags).to_contain_text("yellow")
    expect(tags).to_contain_text("triangle")
    expect(cards(page).first).to_contain_text("yellow")
    expect(page.get_by_text("file mine.png", exact=True)).to_be_visible()
    tags.get_by_role("button", name=re.compile("triangle")).click()
    expect(page.get_by_label("Text to search with")).to_have_value("triangle")
    expect(page).to_have_title("“triangle” - Crossbit")


def test_an_image_can_be_dropped(page: Page, service: Running) -> None:
    page.goto(service.address)
    expect(page.get_by_role("list", name="Items to start with")).to_be_visible()
    image = list(encoded(draw("green", "square", 26)))
    transfer = page.evaluate_handle(
        "bytes => { const data = new DataTransfer();"
        " const file = new File([new Uint8Array(bytes)], 'dropped.png', { type: 'image/png' });"
        " data.items.add(file); return data; }",
        image,
    )
    page.dispatch_event("body", "dragenter", {"dataTransfer": transfer})
    expect(page.get_by_text("Drop the file to search with it")).to_be_visible()
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})
    expect(page.get_by_text("Drop the file to search with it")).to_be_hidden()
    expect(cards(page).first).to_contain_text("green")


def test_a_click_searches_with_a_result_and_back_returns(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/text/pink%20%2B%20bar")
    second = cards(page).nth(1)
    name = second.locator(".name .clamp").inner_text()
    second.locator("button.face").click()
    query = page.get_by_role("region", name="Query")
    expect(query.locator("strong")).to_have_text(name)
    expect(query).to_contain_text("items labeled bar")
    expect(cards(page)).to_have_count(24)
    page.go_back()
    expect(page.get_by_label("Text to search with")).to_have_value("pink + bar")
    expect(page).to_have_title("“pink + bar” - Crossbit")


def test_items_to_start_with(page: Page, service: Running) -> None:
    page.goto(service.address)
    items = page.get_by_role("list", name="Items to start with")
    expect(items.get_by_role("listitem")).to_have_count(24)
    items.get_by_role("button").first.click()
    expect(cards(page)).to_have_count(24)


def test_the_target_modality_can_be_chosen(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/text/red")
    expect(cards(page).first).to_have_attribute("data-modality", "image")
    page.get_by_role("radio", name="text").check(force=True)
    expect(cards(page).first).to_have_attribute("data-modality", "text")
    page.get_by_role("combobox", name="Results").select_option("12")
    expect(cards(page)).to_have_count(12)


def test_unknown_words_are_reported(page: Page, service: Running) -> None:
    page.goto(service.address)
    search(page, "elephant")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("none of its words is in the vocabulary of 12 words")
    alert.get_by_role("button", name="Try again").click()
    expect(alert).to_be_visible()
    search(page, "red")
    expect(cards(page)).to_have_count(24)


def test_a_file_that_is_not_an_image_is_reported(page: Page, service: Running) -> None:
    page.goto(service.address)
    chooser = page.get_by_label("File to search with")
    chooser.set_input_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"})
    expect(page.get_by_role("alert")).to_contain_text("notes.txt: expected image, got text/plain")
    chooser.set_input_files({"name": "broken.png", "mimeType": "image/png", "buffer": b"hello"})
    expect(page.get_by_role("alert")).to_contain_text("not an image in one of the formats")


def test_a_slow_start_does_not_cover_what_follows(page: Page, service: Running) -> None:
    waiting: list[Route] = []
    page.route("**/api/items?limit=24", lambda route: waiting.append(route))
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.goto(service.address)
    expect(page.get_by_text("146 items")).to_be_visible()
    search(page, "elephant")
    expect(page.get_by_role("alert")).to_contain_text("none of its words is in the vocabulary")
    page.clock.run_for(1000)  # longer than the page waits before it shows that it is searching
    expect(page.get_by_role("alert")).to_be_visible()
    for route in waiting:
        route.continue_()
    expect(page.get_by_role("alert")).to_be_visible()
    search(page, "red")
    expect(cards(page)).to_have_count(24)


def test_no_results_are_reported(page: Page, service: Running) -> None:
    understood: dict[str, Any] = {"modality": "text", "terms": [], "relevance": None}
    answer = json.dumps({"query": {**understood, "code": "00000000"}, "hits": [], "n_bits": 32})
    page.route(
        "**/api/search", lambda route: route.fulfill(body=answer, content_type="application/json")
    )
    page.goto(service.address + "/#/text/red")
    expect(page.get_by_role("heading", name="No results")).to_be_visible()


def test_an_empty_collection_is_reported(page: Page, gallery: Path, tmp_path: Path) -> None:
    with Collection.open(gallery) as source:
        Collection.create(tmp_path / "empty", source.model).close()
    with running(tmp_path / "empty") as started:
        page.goto(started.address)
        expect(page.get_by_role("heading", name="The collection is empty")).to_be_visible()
        page.goto(started.address + "/#/model")
        expect(page.get_by_text("Not measured.")).to_be_visible()


def test_a_slow_response_shows_progress(page: Page, service: Running) -> None:
    held = hold_searches(page)
    page.goto(service.address + "/#/text/red")
    expect(page.get_by_text("Searching…")).to_be_visible()
    expect(page.get_by_role("main")).to_have_attribute("aria-busy", "true")
    wait_for_searches(page, held, 1)
    held[0].continue_()
    expect(cards(page)).to_have_count(24)
    expect(page.get_by_role("main")).not_to_have_attribute("aria-busy", "true")


def test_only_the_latest_query_is_shown(page: Page, service: Running) -> None:
    held = hold_searches(page)
    page.goto(service.address + "/#/text/red")
    wait_for_searches(page, held, 1)
    page.evaluate("location.hash = '#/text/blue'")
    wait_for_searches(page, held, 2)
    for route in held:
        route.continue_()
    expect(page).to_have_title("“blue” - Crossbit")
    page.wait_for_timeout(100)
    expect(page).to_have_title("“blue” - Crossbit")
    expect(cards(page).first.locator(".chips .shared")).to_have_text(re.compile("blue"))


def test_a_service_that_stopped_is_reported(page: Page, service: Running) -> None:
    page.goto(service.address)
    expect(page.get_by_role("list", name="Items to start with")).to_be_visible()
    page.route("**/api/**", lambda route: route.abort())
    search(page, "red")
    expect(page.get_by_role("alert")).to_contain_text("The service does not respond")


def test_the_keyboard_suffices(page: Page, service: Running) -> None:
    page.goto(service.address)
    expect(page.get_by_role("list", name="Items to start with")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Text to search with")).to_be_focused()
    page.keyboard.type("yellow")
    page.keyboard.press("Enter")
    expect(cards(page)).to_have_count(24)
    button = cards(page).first.locator("button.face")
    for _ in range(30):
        page.keyboard.press("Tab")
        if button.evaluate("button => button === document.activeElement"):
            break
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    title = page.get_by_role("region", name="Query").locator("strong")
    expect(title).to_contain_text("yellow")


def test_everything_has_an_accessible_name(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/text/red")
    expect(cards(page)).to_have_count(24)
    for role in ("banner", "navigation", "search", "main", "contentinfo"):
        expect(page.get_by_role(role)).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(cards(page).first.locator("button.face")).to_have_accessible_name(
        re.compile(r"^red, .*\. Result 1, distance \d+ of 32 bits, relevant\. Search with it$")
    )
    nameless = (
        "button:not([aria-label]):empty, img:not([alt]), svg[role=img]:not([aria-label]),"
        " input:not([id])"
    )
    labeled = page.locator(".choice input").count() + page.locator("input[aria-label]").count()
    expect(page.locator(nameless)).to_have_count(labeled - 1)  # one of them has an id as well
    for link in page.get_by_role("navigation").get_by_role("link").all():
        assert (link.get_attribute("aria-current") == "page") == (link.inner_text() == "Search")


def test_the_model_page_shows_health_quality_and_code_lengths(page: Page, service: Running) -> None:
    page.goto(service.address + "/#/model")
    expect(page.get_by_role("heading", level=1)).to_have_text("image, text → 32 bits")
    expect(page.get_by_role("row", name=re.compile("text → image 81.0 %"))).to_be_visible()
    expect(
        page.get_by_role("img", name=re.compile("Precision and recall: text → image from 0.90"))
    ).to_be_visible()
    expect(
        page.get_by_role("img", name=re.compile("Bits and mAP: .* to 0.64 at 32"))
    ).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Entropy of each bit of image"))).to_be_visible()
    expect(page.get_by_text("effective bits").first).to_be_visible()


def test_the_api_page_shows_the_openapi_description(page: Page, service: Running) -> None:
    page.goto(service.address)
    page.get_by_role("link", name="API").click()
    assert page.url == f"{service.address}/docs"
    expect(page.get_by_role("heading", name=SEARCH, exact=True)).to_be_visible()
    expect(page.get_by_text("Take this many nearest items").first).to_be_visible()


def test_an_operation_is_tried_on_the_api_page(page: Page, service: Running) -> None:
    page.goto(f"{service.address}/docs")
    panel = page.locator("section", has=page.get_by_role("heading", name=SEARCH, exact=True))
    panel.get_by_text("Try it").click()
    body = panel.get_by_label(f"Body of {SEARCH}")
    expect(body).to_have_value(re.compile("dog"))
    answer = panel.get_by_label(f"Answer of {SEARCH}")
    body.fill('{"text": "red", "k": 1}')
    panel.get_by_role("button", name="Send").click()
    expect(answer).to_contain_text(re.compile(r'^200\n.*"hits": \[', re.DOTALL))
    body.fill('{"k": 1}')
    panel.get_by_role("button", name="Send").click()
    expect(answer).to_contain_text(re.compile("^422\n.*exactly one of", re.DOTALL))


def test_a_page_stays_when_an_older_one_has_loaded(page: Page, service: Running) -> None:
    held: list[Route] = []
    page.route("**/api/items*", lambda route: held.append(route))
    with page.expect_request("**/api/items*"):
        page.goto(service.address)
    page.get_by_role("link", name="Model").click()
    heading = page.get_by_text("effective bits").first
    expect(heading).to_be_visible()
    with page.expect_response("**/api/items*"):
        held[0].continue_()
    page.evaluate("() => new Promise((done) => setTimeout(done))")  # the late view has its turn
    expect(heading).to_be_visible()


def test_what_was_typed_while_the_page_loads_stays(page: Page, service: Running) -> None:
    held: list[Route] = []
    page.route("**/api/stats*", lambda route: held.append(route))
    with page.expect_request("**/api/stats*"):
        page.goto(service.address)
    page.get_by_role("searchbox").fill("red")
    held[0].continue_()
    expect(page.get_by_role("listitem").first).to_be_visible()
    expect(page.get_by_role("searchbox")).to_have_value("red")


def test_a_text_sent_while_the_page_loads_is_searched_as_text(page: Page, service: Running) -> None:
    held: list[Route] = []
    page.route("**/api/stats*", lambda route: held.append(route))
    with page.expect_request("**/api/stats*"):
        page.goto(service.address)
    page.get_by_role("searchbox").fill("red")
    page.get_by_role("searchbox").press("Enter")
    held[0].continue_()
    expect(cards(page)).to_have_count(24)
    expect(page).to_have_title("“red” - Crossbit")


def test_scripts_in_payloads_are_shown_as_text(page: Page, untrusted: Running) -> None:
    page.goto(untrusted.address)
    expect(page.get_by_text('<img src=x onerror="window.hacked = true">').first).to_be_visible()
    page.get_by_role("list", name="Items to start with").get_by_role("button").first.click()
    expect(cards(page)).to_have_count(3)
    page.get_by_text("fields", exact=True).first.click()
    expect(page.get_by_role("contentinfo")).to_have_text("<b>somebody</b>")
    expect(page.get_by_role("contentinfo").get_by_role("link")).to_have_count(0)
    page.goto(untrusted.address + "/#/text/%3Cscript%3Ewindow.hacked%3Dtrue%3C%2Fscript%3E")
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.evaluate("window.hacked") is None


def test_three_modalities_and_ids_larger_than_javascript_numbers(
    page: Page, untrusted: Running
) -> None:
    page.goto(untrusted.address)
    for name in ("all", "image", "text", "sound"):
        expect(page.get_by_role("radio", name=name)).to_have_count(1)
    expect(page.get_by_role("button", name="Image…")).to_be_hidden()
    page.goto(f"{untrusted.address}/#/item/{2**60 + 1}")
    expect(cards(page)).to_have_count(3)
    page.get_by_role("radio", name="sound").check(force=True)
    expect(cards(page).first).to_have_attribute("data-modality", "sound")


def test_the_page_asks_for_the_token_and_sends_it_for_images(page: Page, gallery: Path) -> None:
    with running(gallery, environment={"CROSSBIT_TOKEN": "secret"}) as started:
        page.goto(started.address + "/#/text/red")
        page.get_by_role("textbox", name="Token").fill("wrong")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("textbox", name="Token").fill("secret")
        page.get_by_role("button", name="Continue").click()
        expect(cards(page)).to_have_count(24)
        wait_for_image(cards(page).first)


@pytest.mark.parametrize(
    "path",
    ["", "#/text/red", "#/item/%22small-red-bar%2B0%22", "#/model", "docs", "#/text/elephant"],
)
def test_a_phone_never_scrolls_sideways(browser: Browser, service: Running, path: str) -> None:
    context = browser.new_context(
        viewport={"width": 360, "height": 740}, color_scheme="dark", has_touch=True
    )
    phone = context.new_page()
    phone.goto(f"{service.address}/{path}")
    expect(phone.get_by_role("heading", level=1)).to_have_count(1)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
    assert phone.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 19, 26)"
    context.close()


def test_a_collection_is_chosen(page: Page, gallery: Path, tmp_path: Path) -> None:
    with (
        Collection.open(gallery) as source,
        Collection.create(tmp_path / "few", source.model) as few,
    ):
        few.upsert(
            ["one", "two"], {"text": ["red", "blue"]}, [{"tags": ["red"]}, {"tags": ["blue"]}]
        )
    with running(gallery, str(tmp_path / "few")) as started:
        page.goto(started.address)
        choice = page.get_by_label("Collection")
        expect(choice).to_have_value("collection")
        choice.select_option("few")
        expect(page).to_have_url(f"{started.address}/?collection=few")
        expect(page.locator("#summary")).to_contain_text("2 items")
        page.goto(f"{started.address}/?collection=few#/text/red")
        page.get_by_label("all", exact=True).check()
        expect(cards(page).first).to_contain_text("red")
        expect(cards(page)).to_have_count(2)
        page.get_by_label("Collection").select_option("collection")
        expect(page).to_have_url(f"{started.address}/")
        expect(page.locator("#summary")).to_contain_text("146 items")
