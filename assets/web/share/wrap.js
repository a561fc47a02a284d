// Pieces of text in lines of a given width, for pictures: SVG does not break lines by itself. Pure.

// `pieces`: [{text, ...}], `measure`: the width of a string. Each line is a list of {piece, text, x, width}; a line
// breaks before a word, at a line break of the text (whose sign is shown), and inside a word wider than the line.
function wrapPieces(pieces, room, measure) {
  const lines = [[]];
  let x = 0;
  const put = (piece, text) => {
    const width = measure(text);
    const line = lines.at(-1);
    const last = line.at(-1);
    if (last?.piece === piece) Object.assign(last, { text: last.text + text, width: last.width + width });
    else line.push({ piece, text, x, width });
    x += width;
  };
  const breakLine = () => {
    lines.push([]);
    x = 0;
  };
  for (const piece of pieces) {
    for (let part of partsOf(piece.text)) {
      if (part === "\n") {
        put(piece, GLYPHS["\n"]);
        breakLine();
        continue;
      }
      if (x > 0 && x + measure(part) > room) {
        breakLine();
        part = part.trimStart();
      }
      for (const bit of fittingBits(part, room, measure)) {
        if (x > 0 && x + measure(bit) > room) breakLine();
        put(piece, bit);
      }
    }
  }
  return lines;
}

// Words with the blanks before them, blanks at the end, line breaks. Signs that cannot be seen become visible.
function partsOf(text) {
  const shown = text.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00a0\u200b]/g, (sign) => GLYPHS[sign] || "·");
  return shown.match(/\n|[^\S\n]*\S+|[^\S\n]+/g) || [];
}

function fittingBits(part, room, measure) {
  if (measure(part) <= room) return part ? [part] : [];
  const bits = [""];
  for (const sign of part) {
    if (bits.at(-1) && measure(bits.at(-1) + sign) > room) bits.push("");
    bits[bits.length - 1] += sign;
  }
  return bits;
}
