// Audio with a spectrogram, drawings of signals, and meshes that turn: files that payloads name.

import * as api from "./api.js";
import { h } from "./dom.js";

const WINDOW = 512; // samples of one column of a spectrogram
const MAX_FACES = 4000;
const TILT = [Math.cos(0.4), Math.sin(0.4)]; // seen a little from above
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Elements for the media of an item; they load when they become visible. */
export function media(item, name) {
  const files = item.media ?? {};
  const parts = [];
  if (files.audio) parts.push(player(files.audio, name));
  if (files.mesh) parts.push(drawing(`Mesh of ${name}`, (canvas) => turnMesh(canvas, files.mesh)));
  if (files.signal) parts.push(drawing(`Signal of ${name}`, async (canvas) => drawSignal(canvas, numbers(await text(files.signal)))));
  else if (isSignal(item.payload.signal)) parts.push(drawing(`Signal of ${name}`, (canvas) => drawSignal(canvas, item.payload.signal)));
  return parts;
}

export const isSignal = (value) => Array.isArray(value) && value.length > 1 && value.every((each) => typeof each === "number");

const text = async (url) => new TextDecoder().decode(await api.fetchFile(url));
const numbers = (content) => content.split(/[\s,;[\]]+/).filter((word) => word !== "").map(Number).filter(Number.isFinite);

/** A canvas with a description, drawn once it is visible. */
function drawing(label, draw) {
  const canvas = h("canvas", { class: "drawing", width: 360, height: 200, role: "img", "aria-label": label });
  const watcher = new IntersectionObserver(async ([entry]) => {
    if (!entry.isIntersecting) return;
    watcher.disconnect();
    try {
      await draw(canvas);
    } catch {
      canvas.replaceWith(h("p", { class: "dim small" }, `${label}: the file cannot be shown.`));
    }
  });
  watcher.observe(canvas);
  return canvas;
}

function player(url, name) {
  const audio = h("audio", { controls: true, preload: "none", "aria-label": `Audio of ${name}` });
  if (!api.hasToken()) audio.src = url;
  const canvas = drawing(`Spectrogram of ${name}`, async (target) => {
    const bytes = await api.fetchFile(url);
    if (api.hasToken()) audio.src = URL.createObjectURL(new Blob([bytes]));
    drawSpectrogram(target, await decode(bytes));
  });
  return h("div", { class: "player" }, canvas, audio);
}

/** Samples of one channel of an audio file. */
export async function decode(bytes) {
  const context = new OfflineAudioContext(1, 1, 16000);
  return (await context.decodeAudioData(bytes)).getChannelData(0);
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function drawSignal(canvas, values) {
  const pen = canvas.getContext("2d");
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (i) => 8 + (i / (values.length - 1)) * (canvas.width - 16);
  const y = (value) => canvas.height - 12 - ((value - low) / (high - low || 1)) * (canvas.height - 24);
  pen.strokeStyle = color("--accent");
  pen.lineWidth = 2;
  pen.beginPath();
  values.forEach((value, i) => (i ? pen.lineTo(x(i), y(value)) : pen.moveTo(x(i), y(value))));
  pen.stroke();
}

function drawSpectrogram(canvas, samples) {
  const pen = canvas.getContext("2d");
  const wide = canvas.width;
  const high = WINDOW / 4; // up to half of the highest frequency
  const step = Math.max(1, (samples.length - WINDOW) / wide);
  const levels = [];
  for (let x = 0; x < wide; x++) levels.push(magnitudes(samples, Math.floor(x * step)).slice(0, high));
  const loudest = Math.max(1e-9, ...levels.flat());
  for (let x = 0; x < wide; x++) {
    for (let y = 0; y < high; y++) {
      const level = Math.max(0, 1 + Math.log10(levels[x][y] / loudest + 1e-6) / 4);
      pen.fillStyle = `hsl(${260 - 210 * level} 85% ${8 + 62 * level}%)`;
      pen.fillRect(x, canvas.height * (1 - (y + 1) / high), 1.5, canvas.height / high + 1);
    }
  }
}

/** Magnitudes of the Fourier coefficients of one window, by the fast transform. */
function magnitudes(samples, start) {
  const re = Array.from({ length: WINDOW }, (_, i) => (samples[start + i] ?? 0) * (0.5 - 0.5 * Math.cos((2 * Math.PI * i) / WINDOW)));
  const im = new Array(WINDOW).fill(0);
  for (let i = 1, j = 0; i < WINDOW; i++) {
    let bit = WINDOW >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [re[i], re[j]] = [re[j], re[i]];
  }
  for (let size = 2; size <= WINDOW; size *= 2) {
    for (let at = 0; at < WINDOW; at += size) {
      for (let k = 0; k < size / 2; k++) {
        const [cos, sin] = [Math.cos((2 * Math.PI * k) / size), -Math.sin((2 * Math.PI * k) / size)];
        const [a, b] = [at + k, at + k + size / 2];
        const [x, y] = [re[b] * cos - im[b] * sin, re[b] * sin + im[b] * cos];
        [re[b], im[b], re[a], im[a]] = [re[a] - x, im[a] - y, re[a] + x, im[a] + y];
      }
    }
  }
  return re.map((value, i) => Math.hypot(value, im[i]));
}

/** Vertices and triangles of a mesh in the OFF or OBJ format. */
export function parseMesh(content) {
  const lines = content.split("\n").map((line) => line.split("#")[0].trim()).filter(Boolean);
  const triangles = (corners) => corners.slice(2).map((_, i) => [corners[0], corners[i + 1], corners[i + 2]]);
  if (lines[0].startsWith("OFF")) {
    const values = lines.join(" ").slice(3).trim().split(/\s+/).map(Number);
    const [vertices, faces] = values;
    const points = Array.from({ length: vertices }, (_, i) => values.slice(3 + 3 * i, 6 + 3 * i));
    const all = [];
    for (let at = 3 + 3 * vertices, i = 0; i < faces; i++) {
      all.push(...triangles(values.slice(at + 1, at + 1 + values[at])));
      at += 1 + values[at];
    }
    return { points, faces: all };
  }
  const rows = lines.map((line) => line.split(/\s+/));
  return {
    points: rows.filter(([kind]) => kind === "v").map((row) => row.slice(1, 4).map(Number)),
    faces: rows.filter(([kind]) => kind === "f").flatMap((row) => triangles(row.slice(1).map((word) => parseInt(word, 10) - 1))),
  };
}

async function turnMesh(canvas, url) {
  const mesh = parseMesh(await text(url));
  if (!mesh.points.length || !mesh.faces.length) throw new Error("empty mesh");
  const stride = Math.ceil(mesh.faces.length / MAX_FACES);
  const faces = mesh.faces.filter((_, i) => i % stride === 0);
  const axes = [0, 1, 2].map((axis) => {
    const values = mesh.points.map((point) => point[axis]);
    return [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  });
  const size = Math.max(...axes.map(([low, high]) => high - low)) || 1;
  const points = mesh.points.map((point) => point.map((value, axis) => (2 * value - axes[axis][0] - axes[axis][1]) / size));
  const draw = (angle) => drawMesh(canvas, points, faces, angle);
  draw(0.6);
  if (still()) return;
  const turn = (now) => {
    if (!canvas.isConnected) return;
    draw(now / 2500);
    requestAnimationFrame(turn);
  };
  requestAnimationFrame(turn);
}

/** Faces from back to front, shaded by their slope. */
function drawMesh(canvas, points, faces, angle) {
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const turned = points.map(([x, y, z]) => {
    const back = z * cos - x * sin;
    return [x * cos + z * sin, TILT[0] * y - TILT[1] * back, TILT[1] * y + TILT[0] * back];
  });
  const scale = 0.33 * canvas.height;
  const depth = (face) => face.reduce((sum, i) => sum + turned[i][2], 0);
  const ordered = faces.map((face) => [depth(face), face]).sort((a, b) => a[0] - b[0]);
  for (const [, [i, j, k]] of ordered) {
    const [a, b, c] = [turned[i], turned[j], turned[k]];
    const u = b.map((value, axis) => value - a[axis]);
    const v = c.map((value, axis) => value - a[axis]);
    const normal = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
    const light = Math.abs(normal[2]) / (Math.hypot(...normal) || 1);
    pen.fillStyle = pen.strokeStyle = `hsl(232 45% ${28 + 45 * light}%)`;
    pen.beginPath();
    [a, b, c].forEach(([x, y], n) => pen[n ? "lineTo" : "moveTo"](canvas.width / 2 + scale * x, canvas.height / 2 - scale * y));
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
}

/** Record until the button is pressed again; returns a WAV file, which every extractor of audio reads. */
export async function record(button) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recorder = new MediaRecorder(stream);
  const parts = [];
  recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
  recorder.start();
  await new Promise((resolve) => button.addEventListener("click", resolve, { once: true }));
  const stopped = new Promise((resolve) => recorder.addEventListener("stop", resolve, { once: true }));
  recorder.stop();
  await stopped;
  stream.getTracks().forEach((track) => track.stop());
  const samples = await decode(await new Blob(parts).arrayBuffer());
  return new File([wav(samples, 16000)], "recording.wav", { type: "audio/wav" });
}

function wav(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const word = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  word(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  word(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  word(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, i) => view.setInt16(44 + 2 * i, 32767 * Math.max(-1, Math.min(1, sample)), true));
  return view.buffer;
}
