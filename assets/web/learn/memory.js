// What the browser remembers of the tour: the card and the answers. Without storage, as in a private
// window, it is kept until the page is closed.

const KEPT = "medusa-learn";

function makeMemory() {
  const state = { card: 0, answers: {}, ...parsed(readStored(KEPT)) };

  function set(patch) {
    Object.assign(state, patch);
    writeStored(KEPT, JSON.stringify(state));
  }

  return { state, set };
}

// The page's language if there is a text in it, else the first.
const languageOf = (texts) => (LANGUAGE.code in texts ? LANGUAGE.code : Object.keys(texts)[0]);
