// Which files a modality accepts, by its kind of input.

const TEXT = "text";

/** Kind of input → values of the attribute "accept": formats that the extractors read. */
const FORMATS = {
  image: ["image/*", ".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm"],
  audio: ["audio/*", ".wav", ".flac", ".ogg"],
  video: ["video/*"],
  mesh: [".off", ".obj", ".ply", ".stl"],
  signal: [".csv", ".tsv", ".npy"],
  vector: [".csv", ".tsv", ".npy"],
};

/** Modalities that accept uploaded files; one whose extractor refuses them accepts null. */
export const uploadModalities = (modalities) =>
  modalities.filter(({ accepts }) => accepts !== null && accepts !== TEXT);

/** Value of the attribute "accept" for these kinds; empty, which is any file, for unknown kinds. */
export const acceptAttribute = (kinds) =>
  (kinds.every((kind) => kind in FORMATS) ? kinds.flatMap((kind) => FORMATS[kind]).join(",") : "");

function matches(file, format) {
  if (format.endsWith("/*")) return file.type.startsWith(format.slice(0, -1));
  return file.name.toLowerCase().endsWith(format);
}

/** The modality that accepts a file, undefined if none does. */
export function modalityOf(file, modalities) {
  const candidates = uploadModalities(modalities);
  const isUnnamed = !file.type && !file.name.includes("."); // the service looks at the content
  return candidates.find(({ accepts }) => FORMATS[accepts]?.some((format) => matches(file, format)))
    ?? candidates.find(({ accepts }) => isUnnamed || !(accepts in FORMATS));
}

const formatsOf = (kind) =>
  (FORMATS[kind][0].endsWith("/*") ? kind : `${kind} (${FORMATS[kind].join(", ")})`);

/** What is wrong with a file that no modality accepts. */
export function refusal(file, modalities) {
  const kinds = [...new Set(uploadModalities(modalities).map(({ accepts }) => accepts))];
  const expected = kinds.map(formatsOf).join(" or ") || "no files";
  return `${file.name}: expected ${expected}, got ${file.type || "another format"}.`;
}
