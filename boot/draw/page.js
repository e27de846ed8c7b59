(() => {
'use strict';
const svg = document.getElementById('plot'), tip = document.getElementById('tip');
const $ = (q, at) => [...(at || document).querySelectorAll(q)];
const num = (e, a) => parseFloat(e.getAttribute(a));
const NS = 'http://www.w3.org/2000/svg';
const L = D.left, R = D.right, W = R - L, H = D.rowHeight;
const parent = document.getElementById('rows');
const top0 = num(parent, 'data-top');
let k = 1, off = 0, show = 'some', find = '';

// What moves with the time axis, with the places that it was drawn at.
const moving = [], groups = new Array(D.rows.length);
function adopt(g) {
  groups[+g.dataset.i] = g;
  for (const e of g.children) {
    if (e.tagName === 'rect' && !e.classList.contains('bg') && !e.classList.contains('gut')) moving.push([e, 'rect', num(e, 'x'), num(e, 'width')]);
    else if (e.tagName === 'circle') moving.push([e, 'cx', num(e, 'cx')]);
    else if (e.classList.contains('d')) moving.push([e, 'text', num(e, 'x'), e.getAttribute('text-anchor') === 'end' ? -6 : 6]);
  }
}
for (const g of parent.children) adopt(g);
for (const e of $('[data-b]', svg)) { const [a, b] = e.dataset.b.split(' ').map(Number); moving.push([e, 'rect', a, b - a]); }
for (const e of $('[data-x]', svg)) moving.push([e, 'at', +e.dataset.x]);
const links = $('[data-c]', svg).map(e => [e, ...e.dataset.c.split(' ').map(Number)]);
const X = x => L + (x - L - off) * k;

function time(t) {
  const s = t < 0 ? '−' : ''; t = Math.abs(t);
  if (t < 1000) return s + t + ' µs';
  if (t < 1e6) return s + Math.floor(t / 1e3) + ' ms';
  if (t < 6e7) return s + (t / 1e6).toFixed(3) + ' s';
  return s + Math.floor(t / 6e7) + ' min ' + (t % 6e7 / 1e6).toFixed(3) + ' s';
}
function clock(t) {
  const s = t < 0 ? '−' : ''; t = Math.abs(t);
  if (t < 6e7) return s + +(t / 1e6).toFixed(4) + (t ? 's' : '');
  const sec = Math.floor(t / 1e6), two = n => String(n).padStart(2, '0'), rest = +((t % 1e6) / 1e6).toFixed(3);
  const f = rest ? String(rest).slice(1) : '';
  return s + (sec < 3600 ? Math.floor(sec / 60) : Math.floor(sec / 3600) + ':' + two(Math.floor(sec / 60) % 60)) + ':' + two(sec % 60) + f;
}

// The page comes with the rows that matter; the others are drawn here when they are asked for.
function el(tag, attributes, text) {
  const e = document.createElementNS(NS, tag);
  for (const a in attributes) e.setAttribute(a, attributes[a]);
  if (text !== undefined) e.textContent = text;
  return e;
}
function place(t) {
  for (const p of D.pieces) if (t <= p[1]) return p[2] + (p[3] - p[2]) * (Math.max(t, p[0]) - p[0]) / (p[1] - p[0]);
  return R;
}
function span(t) {
  if (t < 1000) return t + 'us';
  if (t < 1e6) return Math.floor(t / 1e3) + 'ms';
  const sec = t % 6e7, s = (Math.floor(sec / 1e3) / 1e3).toFixed(sec % 1e6 ? 3 : 0) + 's';
  return t < 6e7 ? s : Math.floor(t / 6e7) + 'min' + (sec >= 1e3 ? ' ' + s : '');
}
function clip(name, n) {
  const r = [...name], tail = Math.floor(n * 2 / 5);
  return r.length <= n ? name : r.slice(0, n - tail - 1).join('') + '…' + r.slice(-tail).join('');
}
function build(i) {
  const [name, start, done, net, parked, , flags] = D.rows[i], g = el('g', { 'data-i': i });
  g.append(el('rect', { class: 'bg', width: D.width, height: H }));
  if (done <= start) g.append(el('circle', { class: 'dot', cx: place(start), cy: H / 2, r: 3 }));
  else {
    const cls = flags & 2 ? 'task' : 'bar';
    let at = start;
    const bar = to => { if (to > at) g.append(el('rect', { class: cls, x: place(at), y: D.barTop, width: Math.max(place(to) - place(at), 1.5), height: D.barHeight })); };
    for (const p of D.pieces) if (p[4] === 'parked' && p[1] > at && p[0] < done) { bar(p[0]); at = Math.min(p[1], done); }
    bar(done);
    const text = span(net) + (parked ? ' + parked' : ''), x = place(done) + 6;
    g.append(x + text.length * 6 > D.width ? el('text', { class: 'd', 'text-anchor': 'end', x: place(start) - 6, y: 14 }, text) : el('text', { class: 'd', x: x, y: 14 }, text));
  }
  g.append(el('rect', { class: 'gut', width: L - 5, height: H }), el('text', { class: 'n', 'text-anchor': 'end', x: L - 12, y: 14 }, clip(name, 44)));
  parent.append(g);
  adopt(g);
}

// Round moments on the part of the axis that is in sight.
const steps = [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 1.5e7, 3e7, 6e7, 1.2e8, 3e8, 6e8, 1.8e9, 3.6e9, 7.2e9, 2.16e10, 8.64e10];
function grid(bottom) {
  const g = document.getElementById('grid'); g.textContent = '';
  let scale = 0;
  for (const p of D.pieces) if (!p[4] && p[1] > p[0]) scale = (p[3] - p[2]) / (p[1] - p[0]) * k;
  const step = steps.find(s => s * scale >= 84) || 8.64e10 * Math.ceil(84 / (8.64e10 * scale));
  let last = -1e9;
  for (const p of D.pieces) {
    if (p[4]) { last = Math.max(last, X(p[3]) - 42); continue; }
    const inv = (p[1] - p[0]) / (p[3] - p[2]), net = p[5];
    const from = Math.max(p[0], p[0] + (L + off - p[2]) * inv) - net, to = Math.min(p[1], p[0] + (L + off + (D.width - L) / k - p[2]) * inv) - net;
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      const x = X(p[2] + (t + net - p[0]) / inv);
      if (x < last + 50) continue;
      last = x;
      g.append(el('line', { class: 'grid', x1: x, x2: x, y1: 20, y2: bottom }), el('text', { class: 'x', x: x, y: 16 }, clock(t)));
    }
  }
}

// A moment without what was parked before it.
function netOf(t) {
  for (const p of D.pieces) if (t <= p[1]) return (p[4] === 'parked' ? Math.min(t, p[0]) : t) - p[5];
  return t;
}

let bottom = 0;
function zoom() {
  off = Math.min(Math.max(off, 0), W - W / k);
  for (const [e, kind, x, w] of moving) {
    if (kind === 'rect') { e.setAttribute('x', X(x)); e.setAttribute('width', Math.max(w * k, 1.5)); }
    else if (kind === 'cx') e.setAttribute('cx', X(x));
    else if (kind === 'text') e.setAttribute('x', X(x - w) + w);
    else e.setAttribute('transform', 'translate(' + X(x) + ',0)');
  }
  wires(); grid(bottom);
  svg.dataset.zoom = k.toFixed(3);
}

// Which rows are in sight, and where.
const y = new Array(D.rows.length).fill(-1);
function rows() {
  let at = top0, n = 0;
  D.rows.forEach((r, i) => {
    const on = find ? r[0].toLowerCase().includes(find) : show === 'all' || (show === 'chain' ? r[6] & 1 : r[6] & 4);
    y[i] = on ? at : -1;
    if (on && !groups[i]) build(i);
    const g = groups[i];
    if (!g) return;
    g.style.display = on ? '' : 'none';
    if (on) { g.setAttribute('transform', 'translate(0,' + at + ')'); at += H; n++; }
  });
  bottom = at;
  svg.setAttribute('height', at + 26); svg.setAttribute('viewBox', '0 0 ' + D.width + ' ' + (at + 26));
  for (const e of $('#breaks rect', svg)) e.setAttribute('height', at - num(e, 'y'));
  for (const e of $('#flags line', svg)) e.setAttribute('y2', at);
  svg.dataset.rows = n;
  zoom();
}
function wires() {
  for (const [g, from, to, x0, x1] of links) {
    const on = y[from] >= 0 && y[to] >= 0;
    g.style.display = on ? '' : 'none';
    if (!on) continue;
    const a = X(x0), b = X(x1), y0 = y[from] + H / 2 + 3.5, y1 = y[to] + H / 2;
    g.children[0].setAttribute('d', 'M' + a + ' ' + y0 + 'V' + y1);
    g.children[1].setAttribute('d', 'M' + a + ' ' + y1 + 'H' + b);
  }
}

// Hovering a row shows its dependencies, in the list and in the picture.
function line(cls, text) { const d = document.createElement('div'); d.className = cls; d.textContent = text; return d; }
function hover(i, ev) {
  for (const g of $('.hot,.dep', parent)) g.classList.remove('hot', 'dep');
  if (i < 0) { tip.hidden = true; return; }
  const [name, start, done, net, parked, idle, flags, after, note, cause, deps] = D.rows[i];
  groups[i].classList.add('hot');
  for (const d of deps) if (groups[d]) groups[d].classList.add('dep');
  tip.textContent = '';
  const b = document.createElement('b'); b.textContent = name; tip.append(b);
  if (flags & 1) tip.append(line('w', 'on the critical chain'));
  if (note) tip.append(line('m', flags & 2 ? 'task in ' + note : note));
  tip.append(line('', 'began ' + time(netOf(start)) + ', ' + time(netOf(start) - netOf(D.zero)) + ' after userspace'));
  tip.append(line('', done > start ? 'took ' + time(net) + (parked ? ', besides ' + time(parked) + ' parked' : '') : 'took no time'));
  if (idle >= 1e5) tip.append(line('w', 'before it ' + time(idle) + ' in which nothing known kept it'));
  if (cause >= 0) tip.append(line('', 'waited for ' + D.rows[cause][0]));
  if (deps.length) {
    tip.append(line('m', 'ordered after ' + after + ', of which were up before it began:'));
    const ul = document.createElement('ul');
    for (const d of deps.slice(0, 8)) { const li = document.createElement('li'); li.textContent = D.rows[d][0] + ', up ' + time(netOf(start) - netOf(D.rows[d][2])) + ' before'; ul.append(li); }
    if (deps.length > 8) { const li = document.createElement('li'); li.textContent = 'and ' + (deps.length - 8) + ' more'; ul.append(li); }
    tip.append(ul);
  } else if (after) tip.append(line('m', 'ordered after ' + after + ' units, none of them up before it'));
  tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(ev.clientX + 16, innerWidth - w - 8)) + 'px';
  tip.style.top = Math.max(4, ev.clientY + 18 + h > innerHeight ? ev.clientY - h - 12 : ev.clientY + 18) + 'px';
}
svg.addEventListener('mousemove', ev => {
  if (drag) return;
  const g = ev.target.closest('#rows > g');
  hover(g ? +g.dataset.i : -1, ev);
});
svg.addEventListener('mouseleave', () => hover(-1));

// Dragging zooms to the stretch; with shift it moves.
let drag = null;
const at = ev => { const r = svg.getBoundingClientRect(); return (ev.clientX - r.left) * D.width / r.width; };
svg.addEventListener('mousedown', ev => {
  if (ev.button || at(ev) < L) return;
  hover(-1);
  drag = { x: at(ev), off, move: ev.shiftKey, box: null };
  if (!drag.move) { drag.box = el('rect', { class: 'sel', y: 20, height: bottom - 20 }); svg.append(drag.box); }
  ev.preventDefault();
});
addEventListener('mousemove', ev => {
  if (!drag) return;
  const x = at(ev);
  if (drag.move) { off = drag.off - (x - drag.x) / k; zoom(); return; }
  drag.box.setAttribute('x', Math.min(x, drag.x)); drag.box.setAttribute('width', Math.abs(x - drag.x));
});
addEventListener('mouseup', ev => {
  if (!drag) return;
  const d = drag; drag = null;
  if (d.box) d.box.remove();
  const a = Math.max(Math.min(at(ev), d.x), L), b = Math.min(Math.max(at(ev), d.x), D.width);
  if (!d.move && b - a > 8) { off += (a - L) / k; k = Math.min(k * W / (b - a), 5000); zoom(); }
});
function by(f, x) { const p = (x - L) / k + off; k = Math.min(Math.max(k * f, 1), 5000); off = p - (x - L) / k; zoom(); }
svg.addEventListener('wheel', ev => { if (ev.ctrlKey || ev.metaKey) { ev.preventDefault(); by(ev.deltaY < 0 ? 1.25 : 0.8, Math.max(at(ev), L)); } }, { passive: false });
const fit = () => { k = 1; off = 0; zoom(); };
svg.addEventListener('dblclick', fit);
document.getElementById('reset').onclick = fit;
document.getElementById('in').onclick = () => by(1.6, (L + R) / 2);
document.getElementById('out').onclick = () => by(0.625, (L + R) / 2);
for (const b of $('[data-show]')) b.onclick = () => { show = b.dataset.show; for (const o of $('[data-show]')) o.setAttribute('aria-pressed', o === b); rows(); };
const pan = d => { off += d * W / k / 4; zoom(); };
document.getElementById('earlier').onclick = () => pan(-1);
document.getElementById('later').onclick = () => pan(1);

// What a mouse does, for keys.
let chosen = -1;
const stage = document.getElementById('stage');
function choose(i) {
  chosen = i;
  const r = groups[i].getBoundingClientRect();
  if (r.top < 60 || r.bottom > innerHeight - 8) groups[i].scrollIntoView({ block: 'center', inline: 'nearest' });
  const g = groups[i].getBoundingClientRect(), s = stage.getBoundingClientRect();
  hover(i, { clientX: s.left + Math.min(s.width / 3, 380), clientY: g.bottom - 14 });
}
stage.addEventListener('keydown', ev => {
  if (ev.ctrlKey || ev.metaKey || ev.altKey) return;
  const shown = D.rows.map((_, i) => i).filter(i => y[i] >= 0), n = shown.indexOf(chosen);
  const todo = {
    ArrowDown: () => choose(shown[Math.min(n + 1, shown.length - 1)]), ArrowUp: () => choose(shown[Math.max(n - 1, 0)]),
    Home: () => choose(shown[0]), End: () => choose(shown[shown.length - 1]),
    ArrowLeft: () => pan(-1), ArrowRight: () => pan(1), '+': () => by(1.6, (L + R) / 2), '-': () => by(0.625, (L + R) / 2), 0: fit,
    Escape: () => { chosen = -1; hover(-1); },
  }[ev.key];
  if (!todo || !shown.length) return;
  ev.preventDefault();
  todo();
});
stage.addEventListener('blur', () => hover(-1));
document.getElementById('find').oninput = ev => { find = ev.target.value.trim().toLowerCase(); rows(); };
rows();
})();
