// The URL holds the query, so that back, forward and links work: #/, #/text/red, #/item/"cat",
// #/compare/text/red/item/"cat", and #/compare/red/blue for two texts. Files and vectors are too
// large for it: #/upload, #/vector.

/** Path of a query: {text}, {key}, {compare}, {file}, {features}, or {} for none. */
export function pathOf(query) {
  if (query.file) return "upload";
  if (query.features) return "vector";
  if (query.key !== undefined) return `item/${encodeURIComponent(query.key)}`;
  if (query.compare) return `compare/${query.compare.map(pathOf).join("/")}`;
  return query.text ? `text/${encodeURIComponent(query.text)}` : "";
}

/** The query of a path: {text}, {key}, {compare}, or {} if it has none. */
export function queryOf(path) {
  const [, kind, value] = /^(\w*)\/?(.*)$/.exec(path);
  if (kind === "text" && value) return { text: decodeURIComponent(value) };
  if (kind === "item" && value) return { key: decodeURIComponent(value) };
  return kind === "compare" ? comparisonOf(value.split("/")) : {};
}

function comparisonOf(parts) {
  if (parts.length === 2) return { compare: parts.map((text) => queryOf(`text/${text}`)) };
  const compare = [parts.slice(0, 2), parts.slice(2, 4)].map((each) => queryOf(each.join("/")));
  return compare.every((query) => pathOf(query)) ? { compare } : {};
}
