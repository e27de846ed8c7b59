'use strict';
// The page is asked for again while somebody looks at it; what was opened stays open.
let running = false;
async function renew() {
  if (running || document.visibilityState !== 'visible') return;
  running = true;
  try {
    const answer = await fetch(location.pathname, { cache: 'no-store' });
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('main');
    const now = document.querySelector('main');
    now.querySelectorAll('section').forEach(s => {
      const twin = fresh.querySelector('#' + CSS.escape(s.id));
      if (twin) s.querySelectorAll('details').forEach((d, i) => { const t = twin.querySelectorAll('details')[i]; if (t) t.open = d.open; });
    });
    const focus = document.activeElement && document.activeElement.closest('section');
    const at = focus ? [focus.id, [...focus.querySelectorAll('a,summary,.scroll')].indexOf(document.activeElement)] : null;
    if (!document.getSelection().toString()) now.replaceWith(fresh);
    if (at) { const s = document.getElementById(at[0]); const e = s && s.querySelectorAll('a,summary,.scroll')[at[1]]; if (e) e.focus({ preventScroll: true }); }
    document.body.dataset.renewed = +(document.body.dataset.renewed || 0) + 1;
  } catch (e) {
    document.getElementById('stale').hidden = false;
  } finally {
    running = false;
  }
}
setInterval(renew, 5000);
document.addEventListener('visibilitychange', renew);
