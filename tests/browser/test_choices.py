"""The page: what is searched and shown, which files it takes, and all results of a query."""

import contextlib
import io
import json
import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from tests.browser.conftest import CAPTION, PATIENCE
from tests.browser.test_page import cards, search
from tests.features.images import encoded
from tests.server.running import Running
from tests.server.shapes import draw

ITEM = "#/item/%22small-red-bar%2B0%22"
SERIES = b"1\n2\n4\n3\n1\n2\n"


def options_of(request: Request) -> dict[str, Any]:
    """Body of a search."""
    assert request.post_data is not None
    body: dict[str, Any] = json.loads(request.post_data)
    return body


RECORD_FORMS = """
window.forms = [];
const send = window.fetch;
window.fetch = (address, options) => {
  if (options?.body instanceof FormData) window.forms.push(JSON.parse(options.body.get("options")));
  return send(address, options);
};
"""


def last_form(page: Page) -> dict[str, Any]:
    """Options of the last search with a file; the page runs RECORD_FORMS."""
    options: dict[str, Any] = page.evaluate("window.forms.at(-1)")
    return options


def drop(page: Page, name: str, type_: str, content: bytes) -> None:
    """Drop a file on the page."""
    transfer = page.evaluate_handle(
        "([bytes, name, type]) => { const data = new DataTransfer();"
        " data.items.add(new File([new Uint8Array(bytes)], name, { type })); return data; }",
        [list(content), name, type_],
    )
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})


def test_an_item_is_searched_as_the_service_does_by_default(page: Page, service: Running) -> None:
    with page.expect_request("**/api/search") as sent:
        page.goto(f"{service.address}/{ITEM}")
    assert "target" not in options_of(sent.value)
    expect(page.get_by_role("radio", name="other kinds")).to_be_checked()
    expect(cards(page)).to_have_count(24)
    query = {"id": "small-red-bar+0", "k": 24}
    answer = page.request.post(f"{service.address}/api/search", data=query).json()
    shown = [
        (card.get_attribute("data-modality"), card.locator(".distance b").inner_text())
        for card in cards(page).all()
    ]
    assert shown == [(hit["modality"], str(hit["distance"])) for hit in answer["hits"]]
    assert {modality for modality, _ in shown} == {"text"}


@pytest.mark.parametrize(("name", "target"), [("image", ["image"]), ("all", ["*"])])
def test_a_target_is_chosen(page: Page, service: Running, name: str, target: list[str]) -> None:
    page.goto(f"{service.address}/{ITEM}")
    expect(cards(page)).to_have_count(24)
    with page.expect_request("**/api/search") as sent:
        page.get_by_role("radio", name=name).check(force=True)
    assert options_of(sent.value)["target"] == target


def test_texts_and_uploads_leave_the_target_out(page: Page, service: Running) -> None:
    page.add_init_script(RECORD_FORMS)
    with page.expect_request("**/api/search") as sent:
        page.goto(f"{service.address}/#/text/red")
    assert "target" not in options_of(sent.value)
    picture = encoded(draw("red", "bar", 20))
    with page.expect_request("**/api/search"):
        page.get_by_label("File to search with").set_input_files(
            {"name": "bar.png", "mimeType": "image/png", "buffer": picture}
        )
    assert "target" not in last_form(page)
    expect(cards(page).first).to_have_attribute("data-modality", "text")


def test_weak_matches_are_hidden_and_the_page_remembers_it(page: Page, readings: Running) -> None:
    page.goto(f"{readings.address}/#/item/0")
    expect(cards(page)).to_have_count(24)
    weak = page.get_by_text("weak match", exact=True)
    n_weak = weak.count()
    assert 0 < n_weak < 24
    page.get_by_label("Hide weak matches").check()
    expect(cards(page)).to_have_count(24 - n_weak)
    expect(weak).to_have_count(0)
    page.reload()
    expect(page.get_by_label("Hide weak matches")).to_be_checked()
    expect(cards(page)).to_have_count(24 - n_weak)
    page.get_by_label("Hide weak matches").uncheck()
    expect(cards(page)).to_have_count(24)


def test_weak_matches_are_not_offered_without_a_threshold(page: Page, service: Running) -> None:
    page.add_init_script("localStorage.setItem('crossbit-hide-weak', 'true')")
    with page.expect_request("**/api/search") as sent:
        page.goto(f"{service.address}/#/text/red")
    assert "min_similarity" not in options_of(sent.value)
    expect(page.get_by_label("Hide weak matches")).to_have_count(0)


def test_a_signal_is_uploaded(page: Page, readings: Running) -> None:
    page.add_init_script(RECORD_FORMS)
    page.goto(readings.address)
    chooser = page.get_by_label("File to search with")
    expect(page.get_by_role("button", name="Signal…")).to_be_visible()
    expect(chooser).to_have_attribute("accept", ".csv,.tsv,.npy")
    with page.expect_request("**/api/search") as sent:
        chooser.set_input_files({"name": "x.csv", "mimeType": "text/csv", "buffer": SERIES})
    assert sent.value.headers["content-type"].startswith("multipart/form-data")
    assert last_form(page)["modality"] == "signal"
    expect(page.get_by_role("heading", level=1)).to_contain_text("24 results for file x.csv")
    page.get_by_role("button", name="curl").click()
    code = page.get_by_label("The query as code")
    expect(code).to_contain_text("""-F 'file=@x.csv' -F 'options={"modality":"signal","k":24}'""")
    content = io.BytesIO()
    np.save(content, np.arange(6.0))
    drop(page, "Y.NPY", "", content.getvalue())
    expect(page.get_by_role("heading", level=1)).to_contain_text("24 results for file Y.NPY")
    drop(page, "unnamed", "", SERIES)
    expect(page.get_by_role("heading", level=1)).to_contain_text("24 results for file unnamed")


def test_a_file_that_no_modality_takes_is_refused(page: Page, readings: Running) -> None:
    page.goto(readings.address)
    expect(page.get_by_role("button", name="Signal…")).to_be_visible()
    drop(page, "shape.off", "", b"OFF\n0 0 0\n")  # a modality of shapes refuses uploads
    expect(page.get_by_role("alert")).to_contain_text(
        "shape.off: expected signal (.csv, .tsv, .npy), got another format."
    )


@pytest.mark.parametrize(
    ("kind", "name", "type_"),
    [
        ("mesh", "a.stl", "model/stl"),
        ("vector", "a.npy", ""),
        ("audio", "a.flac", ""),
        ("video", "a.mp4", "video/mp4"),
        ("molecule", "a.xyz", "chemical/x-xyz"),  # a kind of somebody's own
    ],
)
def test_files_match_the_kind_of_a_modality(
    page: Page, service: Running, kind: str, name: str, type_: str
) -> None:
    def accept(route: Route) -> None:
        answer = route.fetch().json()
        answer["model"]["modalities"][0]["accepts"] = kind
        route.fulfill(body=json.dumps(answer), content_type="application/json")

    page.add_init_script(RECORD_FORMS)
    page.route("**/api/stats", accept)
    page.goto(service.address)
    expect(page.get_by_role("list", name="Items to start with")).to_be_visible()
    with page.expect_request("**/api/search"):
        drop(page, name, type_, b"content")
    assert last_form(page)["modality"] == "image"


@pytest.mark.parametrize("place", ["", "#/item/0"])
def test_a_caption_that_is_cut_off_unfolds(browser: Browser, readings: Running, place: str) -> None:
    assert len(CAPTION) == 119
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True)
    context.set_default_timeout(PATIENCE)
    phone = context.new_page()
    phone.goto(f"{readings.address}/{place}")
    card = phone.locator("li.card").first
    text = card.locator(".face .text")
    face = card.locator("button.face")
    cut = "element => element.scrollHeight > element.clientHeight + 1"
    more = card.get_by_role("button", name="more", exact=True)
    expect(more).to_have_attribute("aria-expanded", "false")
    assert text.evaluate(cut)
    assert not face.evaluate(cut)  # whole lines
    expect(face).to_have_accessible_name(re.compile(CAPTION))
    more.click()
    assert not text.evaluate(cut)
    assert not face.evaluate(cut)
    card.get_by_role("button", name="less").click()
    assert text.evaluate(cut)
    phone.set_viewport_size({"width": 1280, "height": 740})
    phone.locator(".grid").evaluate("grid => { grid.style.gridTemplateColumns = '1fr'; }")
    expect(more).to_be_hidden()
    context.close()


def test_an_item_as_python_returns_what_the_page_shows(page: Page, service: Running) -> None:
    page.goto(f"{service.address}/{ITEM}")
    page.get_by_role("radio", name="image").check(force=True)
    expect(cards(page).first).to_have_attribute("data-modality", "image")
    page.get_by_role("button", name="Python").click()
    code = page.get_by_label("The query as code").inner_text()
    assert 'target=["image"], exclude=item.id)' in code
    printed = io.StringIO()
    variables: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        exec(code, variables)
    variables["collection"].close()
    lines = printed.getvalue().splitlines()
    distances = [int(line.split()[1]) for line in lines]
    assert not any(line.startswith("small-red-bar+0 ") for line in lines)
    assert distances == [int(each) for each in cards(page).locator(".distance b").all_inner_texts()]


def test_more_results_are_appended(page: Page, readings: Running) -> None:
    page.goto(f"{readings.address}/#/item/0")
    button = page.get_by_role("button", name="More results")
    expect(cards(page)).to_have_count(24)
    button.focus()
    page.keyboard.press("Enter")
    expect(cards(page)).to_have_count(29)
    expect(page.get_by_role("status").first).to_have_text("5 more results, 29 in total")
    expect(page.get_by_role("heading", level=1)).to_contain_text("29 results")
    expect(button).to_be_hidden()
    expect(cards(page).nth(24).locator("button.face")).to_be_focused()
    expect(cards(page).nth(24).locator("button.face")).to_have_accessible_name(
        re.compile("Result 25, ")
    )
    query = {"id": 0, "k": 29}
    answer = page.request.post(f"{readings.address}/api/search", data=query).json()
    distances = [str(hit["distance"]) for hit in answer["hits"]]
    assert cards(page).locator(".distance b").all_inner_texts() == distances


def test_the_button_for_more_results_keeps_the_focus(page: Page, service: Running) -> None:
    page.goto(f"{service.address}/#/text/red")
    button = page.get_by_role("button", name="More results")
    button.click()
    expect(cards(page)).to_have_count(48)
    expect(button).to_be_focused()
    expect(page.get_by_text(re.compile(r"^\d+ of 48 relevant"))).to_be_visible()
    page.route("**/api/search", lambda route: route.abort())
    button.click()
    expect(page.get_by_role("alert")).to_contain_text("The service does not respond")
    page.unroute("**/api/search")
    button.click()
    expect(cards(page)).to_have_count(72)
    expect(page.get_by_role("alert")).to_have_text("")


def test_more_results_of_an_older_query_are_dropped(page: Page, service: Running) -> None:
    page.goto(f"{service.address}/#/text/red")
    expect(cards(page)).to_have_count(24)
    page.route(
        "**/api/search",
        lambda route: None if "offset" in options_of(route.request) else route.continue_(),
    )
    with page.expect_request("**/api/search"):
        page.get_by_role("button", name="More results").click()
    with page.expect_event("requestfailed") as failed:
        search(page, "blue")
    assert "offset" in options_of(failed.value)
    expect(page).to_have_title("“blue” - Crossbit")
    expect(cards(page)).to_have_count(24)


def test_one_result_per_value_of_a_field(page: Page, service: Running) -> None:
    page.goto(f"{service.address}/#/text/red")
    expect(cards(page)).to_have_count(24)
    choice = page.get_by_label("One per")
    expect(choice.locator("option")).to_have_text(["item", "label"])
    choice.select_option("label")
    expect(cards(page)).to_have_count(4)  # circle, square, triangle, bar
    expect(page.get_by_role("button", name="More results")).to_be_hidden()
    choice.select_option("item")
    expect(cards(page)).to_have_count(24)


def test_an_item_is_compared_with_a_text(page: Page, service: Running) -> None:
    page.goto(f"{service.address}/{ITEM}")
    page.get_by_label("Text to compare with").fill("red")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("results? in common$"))
    page.reload()
    for title in ("red, bar, small", "“red”"):
        column = page.get_by_role("list", name=f"Results for {title}, nearest first")
        expect(column.locator("li.card")).to_have_count(24)
    page.get_by_role("link", name="red, bar, small").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("24 results for red, bar, small")
