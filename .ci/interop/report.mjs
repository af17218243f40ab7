// One line a check; the process ends with 1 when any has failed.
let failed = 0;

export function check(what, ok, seen) {
  if (!ok) failed += 1;
  console.log(`${ok ? 'ok  ' : 'FAIL'} ${what}${ok || seen === undefined ? '' : `: ${typeof seen === 'string' ? seen : JSON.stringify(seen)}`}`);
  return ok;
}

/** The error that f throws, or undefined. */
export async function thrown(f) {
  try { await f(); return undefined; } catch (error) { return error; }
}

export async function main(title, f) {
  console.log(`# ${title}`);
  try { await f(); } catch (error) { check('no surprise', false, error.stack ?? String(error)); }
  process.exitCode = failed ? 1 : 0;
}
