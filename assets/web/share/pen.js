// A canvas context that writes SVG: what paints the mask on the screen paints it for a file.

const ANCHORS = { left: "start", center: "middle", right: "end" };
const PEN = { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "10px sans-serif", textAlign: "left", textBaseline: "alphabetic" };

function svgPen() {
  const picture = svg("g", {});
  const clips = svg("defs", {});
  const saved = [];
  let place = []; // transforms, outermost first
  let clipped = null;
  let path = "";
  const pen = { ...PEN, picture: svg("g", {}, clips, picture), scale: () => {} }; // a file has no device pixels

  function add(tag, attributes, ...children) {
    const node = svg(tag, { ...attributes, transform: place.join(" ") || null, "clip-path": clipped }, ...children);
    picture.append(node);
  }
  const filled = () => ({ fill: pen.fillStyle, "fill-opacity": pen.globalAlpha === 1 ? null : pen.globalAlpha });
  const stroked = () => ({ fill: "none", stroke: pen.strokeStyle, "stroke-width": pen.lineWidth });

  pen.save = () => saved.push({ ...pen, place: [...place], clipped });
  pen.restore = () => {
    const before = saved.pop();
    if (!before) return;
    for (const name of Object.keys(PEN)) pen[name] = before[name];
    ({ place, clipped } = before);
  };
  pen.translate = (x, y) => place.push(`translate(${x},${y})`);
  pen.rotate = (angle) => place.push(`rotate(${(angle * 180) / Math.PI})`);
  pen.beginPath = () => { path = ""; };
  pen.moveTo = (x, y) => { path += `M${x},${y}`; };
  pen.lineTo = (x, y) => { path += `L${x},${y}`; };
  pen.rect = (x, y, w, h) => { path += `M${x},${y}h${w}v${h}h${-w}z`; };
  pen.fill = (given) => add("path", { d: given ? given.text() : path, ...filled() });
  pen.newPath = () => { // in the place of a Path2D, which cannot be read
    let text = "";
    return { rect: (x, y, w, h) => { text += `M${x},${y}h${w}v${h}h${-w}z`; }, text: () => text };
  };
  pen.stroke = () => add("path", { d: path, ...stroked() });
  pen.clip = () => {
    clipped = `url(#clip${clips.childElementCount})`;
    clips.append(svg("clipPath", { id: `clip${clips.childElementCount}`, transform: place.join(" ") || null }, svg("path", { d: path })));
  };
  pen.fillRect = (x, y, width, height) => add("rect", { x, y, width, height, ...filled() });
  pen.strokeRect = (x, y, width, height) => add("rect", { x, y, width, height, ...stroked() });
  pen.fillText = (words, x, y) => add("text", {
    x, y, ...filled(), style: "font: " + pen.font, "text-anchor": ANCHORS[pen.textAlign],
    "dominant-baseline": pen.textBaseline === "middle" ? "central" : null,
  }, words);
  return pen;
}
