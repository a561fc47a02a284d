// Mounts the editor; `element`, `props`, `watch` and `trigger` are given to js_on_load. The server follows the
// edits once they pause: it draws other things than the tree itself.

const PAUSE = 250; // milliseconds
const editorHost = element.querySelector(".tree-edit-host");
let telling = 0;
let treeEditor = mountTreeEditor(editorHost, tellSoon);
LANGUAGE.listen(() => {
  if (!element.isConnected) return false;
  treeEditor = mountTreeEditor(editorHost, tellSoon, treeEditor);
});

function tellSoon() {
  clearTimeout(telling);
  telling = setTimeout(() => trigger("edit"), PAUSE);
}

function receiveTree() {
  if (!props.value) return;
  const message = JSON.parse(props.value);
  if (message.id !== treeEditor.state.id) clearTimeout(telling); // a pending message belongs to the previous tree
  if (!treeEditor.receive(message)) tellSoon(); // a finished measurement returns the tree that it began with
}
watch("value", receiveTree);
receiveTree();
