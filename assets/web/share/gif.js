// Frames of one size as an animated GIF. Each frame but the first holds only what changed since the one before, with
// colours chosen for that: flat drawings then stay small, and still parts do not flicker.

const EXACT = 128; // the commonest colours of a frame stay exact: a background that is not quite white would be noticed
const NEAR = 96; // colours for all others; both together below 256, as one more index is "unchanged"

function makeGif(width, height) {
  const encoder = gifenc.GIFEncoder();
  let before = null;

  // `rgba`: bytes of an opaque picture, `ms`: how long it is shown.
  function add(rgba, ms) {
    const pixels = new Uint32Array(rgba.slice().buffer); // one number each
    const changed = []; // places of pixels; all of them in the first frame
    pixels.forEach((pixel, place) => { if (pixel !== before?.[place]) changed.push(place); });
    const { palette, chosen } = coloursOf(Uint32Array.from(changed, (place) => pixels[place]));
    const index = new Uint8Array(width * height).fill(palette.length);
    changed.forEach((pixel, i) => { index[pixel] = chosen[i]; });
    encoder.writeFrame(index, width, height, {
      palette: [...palette, [0, 0, 0]], transparent: Boolean(before), transparentIndex: palette.length, delay: ms, dispose: 1,
    });
    before = pixels;
  }

  function finished() {
    encoder.finish();
    return new Blob([encoder.bytes()], { type: "image/gif" });
  }

  return { add, finished, size: () => encoder.bytesView().length };
}

// A palette for these pixels and, for each of them, its place in it.
function coloursOf(pixels) {
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  const exact = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, EXACT);
  const places = new Map(exact.map((pixel, i) => [pixel, i]));
  const others = [...counts.keys()].filter((pixel) => !places.has(pixel));
  const palette = exact.map((pixel) => [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255]);
  if (others.length) {
    const bytes = new Uint8ClampedArray(Uint32Array.from(others).buffer);
    const near = gifenc.quantize(bytes, NEAR);
    gifenc.applyPalette(bytes, near).forEach((place, i) => places.set(others[i], exact.length + place));
    palette.push(...near);
  }
  return { palette, chosen: Uint8Array.from(pixels, (pixel) => places.get(pixel)) };
}
