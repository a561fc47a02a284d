// The reader's own model and card: a form, and what the server computes for them (ui/tabs/learn_computed.py).

function yoursPicture({ records, say, ask }) {
  const found = records.expected;
  const field = (name, value, known) => html("label", {}, say("yours_" + name),
    html("input", { type: "text", name, value, list: "learn-known-" + name, maxlength: 100, autocomplete: "off" }),
    html("datalist", { id: "learn-known-" + name }, ...known.map((one) => html("option", { value: one }))));
  const devices = records.computed.devices;
  const bits = html("label", { class: "is-narrow" }, say("yours_bits"), html("select", { name: "bits" }, ...records.computed.weights.map((one) => html("option", { value: one, selected: one === found.bits }, one))));
  const form = html("form", { class: "learn-yourform" }, field("model", found.model, records.computed.models), field("device", devices.find(([name]) => name === found.device)?.[1] ?? found.device, devices.map(([, title]) => title)), bits,
    html("button", { type: "submit", class: "learn-primary" }, say("yours_compute")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const { model, device } = form.elements;
    ask({ model: model.value, device: (devices.find(([, title]) => title === device.value) ?? [device.value])[0], bits: Number(form.elements.bits.value) });
  });
  return [form, html("p", { class: "learn-caption" }, say("yours_help")), html("div", { role: "status" }, ...expectedParts(found, say))];
}

// The sentence to remember, and its table.
function expectedParts(found, say) {
  if (found.error) return [html("p", { class: "learn-lacking" }, LANGUAGE.tell(found.error))];
  const heads = found.rows.find((row) => row.name === "medusa") ?? found.rows[0];
  const plain = found.rows.find((row) => row.name === "none");
  const whole = (rate) => rate.toPrecision(2).includes("e") ? Math.round(rate).toLocaleString("en") : String(Number(rate.toPrecision(2)));
  const cells = (row) => [row.nodes, decimal(row.tokens), decimal(row.overhead), decimal(row.draft), whole(row.rate), decimal(row.speedup)].map((value) => html("td", {}, value));
  return [
    html("p", { class: "learn-expected" }, say("yours_expect", { model: found.model, device: found.device, title: LANGUAGE.tell(heads.title), nodes: heads.nodes, plain: whole(plain.rate), rate: whole(heads.rate), speedup: decimal(heads.speedup) })),
    html("table", { class: "learn-trainings" },
      tableHead(["method", "nodes", "tokens", "overhead", "draft", "rate", "speedup"].map((each) => say("yours_" + each))),
      html("tbody", {}, ...found.rows.map((row) => html("tr", {}, html("th", { scope: "row" }, LANGUAGE.tell(row.title)), ...cells(row))))),
    html("p", { class: "learn-caption" }, [found.before, found.after].map((words) => LANGUAGE.tell(words)).join(" ")),
    html("details", { class: "learn-caption" }, html("summary", {}, say("yours_counted")),
      html("ul", {}, ...found.rows.filter((row) => row.draft > 0).map((row) => html("li", {}, html("b", {}, LANGUAGE.tell(row.title)), ": ", LANGUAGE.tell(row.design))))),
  ];
}

// Ways to draft side by side: who reads what, and the results on the machine that all tabs name.
function methodsPicture({ records, say }) {
  const recorded = records.methods.filter(({ name }) => METHODS[name]?.drafting);
  const others = Object.keys(METHODS).filter((name) => METHODS[name].drafting && !recorded.some((row) => row.name === name)).map((name) => ({ name }));
  const number = (value) => (isKnown(value) ? decimal(value) : "–");
  const table = html("table", { class: "learn-trainings" },
    html("thead", {}, html("tr", {}, ...["method", "who", "reads", "tokens", "overhead", "speedup"].map((each) => html("th", { scope: "col", class: each === "speedup" ? "learn-secret" : null }, say("yours_" + each))))),
    html("tbody", {}, ...[...recorded, ...others].map(({ name, tokens, overhead, speedup }) => {
      const { title, drafting } = METHODS[name];
      return html("tr", {}, html("th", { scope: "row" }, LANGUAGE.tell(title)), html("td", {}, LANGUAGE.tell(drafting.who)), html("td", { class: "learn-reads" }, drafting.reads.map((one) => LANGUAGE.tell(one)).join(" + ")),
        html("td", {}, number(tokens)), html("td", {}, number(overhead)), html("td", { class: "learn-secret" }, number(speedup)));
    })));
  return [table, others.length && html("p", { class: "learn-caption" }, say("methods_unrecorded")), records.source && html("p", { class: "learn-caption" }, LANGUAGE.tell(records.source))];
}
