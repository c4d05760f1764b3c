// Figures and elements of the page, for tables and explorer.
const pageText = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const whole = (v) => v.toLocaleString("en-US", { maximumFractionDigits: 0 });
  const superscript = (n) => String(n).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);

  // the same formats as in wording.py
  function figure(value) {
    const size = Math.abs(value);
    let text;
    if (size !== 0 && (size < 1e-4 || size >= 1e9)) {
      const [mantissa, exponent] = value.toExponential(2).split("e");
      text = `${Number(mantissa)}×10${superscript(Number(exponent))}`;
    } else {
      text = size >= 1000 ? whole(value) : String(Number(value.toPrecision(3)));
    }
    return text.replace(/-/g, "−");
  }
  function percent(share) {
    if (share > 0 && share < 0.01) return "under 1 %";
    if (share > 0.99 && share < 1) return `${Math.min(100 * share, 99.9).toFixed(1)} %`;
    return `${Math.floor(100 * share + 0.5)} %`;
  }

  // ids and names are untrusted: they are only ever inserted as text
  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }
  function shape(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }
  return { element, figure, percent, shape, whole };
})();
