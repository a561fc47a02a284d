// Files made in the browser: the steps as a table, tree and mask as pictures. Nothing is sent anywhere.

const STYLED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "display", "visibility",
  "font-family", "font-size", "font-weight", "font-style", "text-anchor", "white-space"];
const PIXELS = 2; // pixels of the PNG for one of the SVG
const MASK_CELL = 24;

function saveFile(name, blob) {
  const link = html("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// One line per step. The text is a JSON string, so that it stays on its line and no spreadsheet takes it for a formula.
function stepsAsCsv({ steps }) {
  const phases = Object.keys(steps[0].ms);
  const head = ["step", "nodes", "accepted_guesses", "tokens", "token_ids", "emitted_text", "cache_length", ...phases.map((name) => name + "_ms")];
  const rows = steps.map((step) => {
    const text = emittedNodes(step).map((node) => node.text).join("");
    return [step.index + 1, sizeOf(step), step.path.length - 1, step.emitted.length, step.emitted.join(" "), JSON.stringify(text),
      step.cache_length, ...phases.map((name) => step.ms[name])];
  });
  const field = (value) => `"${String(value).replaceAll('"', '""')}"`;
  return [head, ...rows].map((row) => row.map(field).join(",") + "\r\n").join("");
}

// A self-contained picture on the card's background.
function standalone(width, height, ground, ...parts) {
  return svg("svg", { xmlns: SVG_NS, viewBox: `0 0 ${width} ${height}`, width, height },
    svg("rect", { width, height, fill: ground }), ...parts);
}

// The tree as it is on the screen, whole: its rules are written into each part.
function treePicture(root, ground) {
  const picture = root.querySelector(".mdv-treepic");
  const columns = root.querySelector(".mdv-columns");
  const [, , width, height] = picture.getAttribute("viewBox").split(" ").map(Number);
  const head = 28;
  return standalone(width, height + head, ground, svg("g", {}, ...[...columns.children].map(styledCopy)),
    svg("g", { transform: `translate(0,${head})` }, ...[...picture.children].map(styledCopy)));
}

function styledCopy(node) {
  const copy = document.createElementNS(SVG_NS, node.localName);
  const style = getComputedStyle(node);
  for (const { name, value } of node.attributes) {
    if (!/^(id|class|role|tabindex|style|aria-.*|data-.*|on.*)$/.test(name)) copy.setAttribute(name, value);
  }
  copy.setAttribute("style", STYLED.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  for (const child of node.childNodes) copy.append(child instanceof Element ? styledCopy(child) : child.textContent);
  return copy;
}

// The mask as the screen's painter paints it, wide enough for all labels.
function maskPicture(scene, ground) {
  const plan = planMask(scene, 92 + 64 + MASK_CELL * scene.step.nodes.length);
  const pen = svgPen();
  paintMask({ style: {}, getContext: () => pen }, scene, plan);
  return standalone(plan.width, plan.height, ground, pen.picture);
}

// Characters that XML forbids, which a model may still write, would make the file unreadable.
const NOT_IN_XML = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu;
const svgText = (picture) => new XMLSerializer().serializeToString(picture).replace(NOT_IN_XML, "\ufffd");

async function loaded(picture) {
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svgText(picture));
  await image.decode();
  return image;
}

async function asPng(picture) {
  const image = await loaded(picture);
  const canvas = html("canvas", { width: image.width * PIXELS, height: image.height * PIXELS });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error(say`the picture is too large`))), "image/png"));
}
