// Formulas as MathML, which browsers render themselves: nothing is fetched for them.

const MATH_NS = "http://www.w3.org/1998/Math/MathML";
const math = (tag, ...children) => fill(document.createElementNS(MATH_NS, tag), {}, children);
const [mi, mn, mo] = ["mi", "mn", "mo"].map((tag) => (text) => math(tag, text));
const sub = (base, index) => math("msub", base, index);
const sup = (base, index) => math("msup", base, index);
const mrow = (...parts) => math("mrow", ...parts);
const call = (name, ...inner) => mrow(mi(name), mo("("), ...inner, mo(")"));
const mt = (text) => math("mtext", text);

const FORMULAS = {
  // p_k = softmax(W_k (h + SiLU(V_k h + b_k)))
  head: () => [sub(mi("p"), mi("k")), mo("="), call("softmax", sub(mi("W"), mi("k")), mo("("), mi("h"), mo("+"),
    call("SiLU", sub(mi("V"), mi("k")), mi("h"), mo("+"), sub(mi("b"), mi("k"))), mo(")"))],
  bar: () => [call("min", mi("ε"), mo(","), mi("δ"), mo("·"), sup(mi("e"), mrow(mo("−"), mi("H"))))],
  entropy: () => [mi("H"), mo("="), mo("−"), math("munder", mo("∑"), mi("x")), call("p", mi("x")), mo("·"), call("ln", call("p", mi("x")))],
  exact: () => [mo("min"), mo("("), mi("p"), mo(","), mi("q"), mo(")"), mo("+"), mo("max"), mo("("), mn("0"), mo(","), mi("p"), mo("−"), mi("q"), mo(")"), mo("="), mi("p")],
  speed: ({ measured, mean, overhead }) => [mt("speedup"), mo("="),
    math("mfrac", mt("tokens per step"), mt("overhead")), ...(measured ? [mo("="), math("mfrac", mn(mean), mn(overhead))] : [])],
  loss: ({ decay }) => [mt("loss"), mo("="), math("munder", mo("∑"), mi("k")), sup(mn(decay), mi("k")), mo("·"), mo("("), mo("−"), mi("ln"),
    sub(mi("p"), mi("k")), mo("("), sub(mi("x"), mrow(mi("t"), mo("+"), mi("k"), mo("+"), mn("1"))), mo(")"), mo(")")],
};

const formula = (id, facts) => math("math", ...FORMULAS[id](facts));
