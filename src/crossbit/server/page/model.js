// The model page: health of the codes, measured quality, and architecture.

import * as api from "./api.js";
import { bars, lines } from "./charts.js";
import { count, h, percent } from "./dom.js";

/** Title and elements of the page. */
export async function load() {
  const facts = await api.stats();
  const { collection, model, report } = facts;
  const view = [
    h("h1", {}, `${model.modalities.map((modality) => modality.name).join(", ")} → ${count(model.n_bits, "bit")}`),
    overview(collection, model), quality(report), health(collection), architecture(model),
  ];
  return { title: "Model - Crossbit", view };
}

const section = (title, ...children) => h("section", { class: "panel" }, h("h2", {}, title), ...children);

function overview(collection, model) {
  const facts = [
    [collection.items.toLocaleString("en"), "items"],
    ...Object.entries(collection.modalities).map(([name, n]) => [n.toLocaleString("en"), `with ${name}`]),
    [String(model.n_bits), "bits per code"],
    [`${(collection.nbytes / 2 ** 20).toFixed(1)} MiB`, "on disk"],
    [Math.round(collection.bytes_per_item).toLocaleString("en"), collection.model_nbytes ? "bytes per item without the model" : "bytes per item"]];
  return h("ul", { class: "facts" }, facts.map(([value, what]) => h("li", {}, h("b", {}, value), h("span", {}, what))));
}

function quality(report) {
  const directions = Object.entries(report.directions ?? {}).filter(([, each]) => each.results?.length);
  if (!directions.length) {
    return section("Quality", h("p", { class: "dim" },
      "Not measured. “crossbit learn” evaluates the model on held-out items and stores the results."));
  }
  const names = [...new Set(directions.flatMap(([, each]) => each.results.map((result) => result.name)))];
  const cell = (results, name) => {
    const result = results.find((each) => each.name === name);
    if (!result) return h("td", {}, "–");
    const range = result.low === undefined || result.low === null ? "" : ` ${percent(result.low)} – ${percent(result.high)}`;
    return h("td", { title: result.definition ?? "" }, percent(result.value), range ? h("small", {}, range) : null);
  };
  const chance = directions.some(([, each]) => each.results[0].chance !== undefined && each.results[0].chance !== null);
  return section("Quality on held-out items",
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Quality" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "direction"), names.map((name) => h("th", { scope: "col" }, name)),
        chance ? h("th", { scope: "col" }, "chance") : null)),
      h("tbody", {}, directions.map(([direction, { results }]) => h("tr", {}, h("th", { scope: "row" }, direction),
        names.map((name) => cell(results, name)),
        chance ? h("td", {}, results[0].chance ? percent(results[0].chance) : "–") : null))))),
    h("div", { class: "charts" }, curves(directions), recallAtRanks(directions), lengths(report.bits ?? [])),
    stages(report.stages ?? []));
}

const isAlongRanks = (curve) => Math.max(...(curve.points ?? [])) > 1; // else the points are levels of recall

function curves(directions) {
  const measured = directions.filter(([, { curve }]) => curve?.recall?.length > 1 && !isAlongRanks(curve));
  const series = measured.map(([name, { curve }]) => ({ name, points: curve.recall.map((recall, i) => [recall, curve.precision[i]]) }));
  return series.length
    ? lines({ title: "Precision and recall", x: "recall", y: "precision, %", series, ticks: [0, 0.25, 0.5, 0.75, 1] }) : null;
}

/** Where a query has one right answer: how often it is among the first k. */
function recallAtRanks(directions) {
  const measured = directions.filter(([, { curve }]) => curve?.recall?.length > 1 && isAlongRanks(curve));
  const series = measured.map(([name, { curve }]) => ({ name, points: curve.points.map((k, i) => [k, curve.recall[i]]) }));
  const largest = Math.max(1, ...measured.flatMap(([, { curve }]) => curve.points));
  const ticks = [1, 10, 100, 1000, 10000, 100000].filter((k) => k <= largest);
  return series.length
    ? lines({ title: "Recall of the one right answer", x: "among the first k results", y: "recall@k, %", series, ticks, log: true }) : null;
}

/** Where quality is lost between the features and the results. */
function stages(rows) {
  if (!rows.length) return null;
  const names = [...new Set(rows.map((row) => row.stage))];
  const directions = [...new Set(rows.map((row) => row.direction))];
  const find = (stage, direction) => rows.find((row) => row.stage === stage && row.direction === direction);
  const value = (row) => (row === undefined || row.value === null ? "–" : percent(row.value));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Quality after each stage" }, h("table", {},
    h("caption", {}, `${rows[0].name} after each stage`),
    h("thead", {}, h("tr", {}, ["stage", ...directions, "ranked by"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, names.map((stage) => h("tr", {}, h("th", { scope: "row" }, stage),
      directions.map((direction) => h("td", {}, value(find(stage, direction)))),
      h("td", {}, rows.find((row) => row.stage === stage).about ?? ""))))));
}

function lengths(rows) {
  const names = [...new Set(rows.map((row) => row.direction))];
  const series = names.map((name) => ({
    name, points: rows.filter((row) => row.direction === name).map((row) => [row.n_bits, row.value]).sort((a, b) => a[0] - b[0]) }));
  const measure = rows[0]?.name ?? "mAP";
  return series.length
    ? lines({ title: `Bits and ${measure}`, x: "bits", y: `${measure}, %`, series, ticks: [...new Set(rows.map((row) => row.n_bits))] }) : null;
}

function health(collection) {
  const kinds = Object.entries(collection.health);
  if (!kinds.length) return null;
  return section("Health of the codes", h("div", { class: "charts" }, kinds.map(([name, each]) =>
    h("figure", { class: "chart" }, h("figcaption", {}, name), bars(each.bit_entropy, name),
      h("p", { class: "dim" }, "Entropy of each bit: full height if half of the codes have it set."),
      h("dl", { class: "numbers" }, [
        ["effective bits", `${each.effective_bits.toFixed(1)} of ${each.n_bits}`],
        ["distinct codes", `${each.unique_codes.toLocaleString("en")} of ${each.n_codes.toLocaleString("en")}`],
        ["dead bits", each.dead_bits.length], ["duplicate bits", each.duplicate_bits.length],
        ["mean correlation of bits", each.mean_correlation.toFixed(3)],
      ].flatMap(([what, value]) => [h("dt", {}, what), h("dd", {}, String(value))]))))));
}

function architecture(model) {
  const rows = model.modalities.map(({ name, accepts, recipe, width, layers }) => h("tr", {},
    h("th", { scope: "row" }, name), h("td", {}, accepts ?? "features"), h("td", {}, recipe ?? "–"),
    h("td", {}, width === null ? "–" : String(width)), h("td", {}, layers.join(" → "))));
  return section("Architecture",
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Modalities" }, h("table", {},
      h("thead", {}, h("tr", {}, ["modality", "accepts", "extractor", "features", "layers"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows))),
    Object.keys(model.card).length ? h("details", {}, h("summary", {}, "Model card"), h("pre", { tabindex: "0" }, JSON.stringify(model.card, null, 2))) : null);
}
