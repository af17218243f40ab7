#!/usr/bin/env node
// Verifies vectors.json with nothing but Node (20 or newer): a second implementation of the friend request's rules, written from
// README.md and sharing no code with the server. Usage: node verify_vectors.mjs [vectors.json]
import { createHash, createPublicKey, verify as verifySignature, constants } from 'node:crypto';
import { readFileSync } from 'node:fs';

const file = JSON.parse(readFileSync(process.argv[2] ?? new URL('vectors.json', import.meta.url), 'utf8'));
const LEEWAY = 60;

class Refusal extends Error {
  constructor(reason, why, notJson = false) { super(`${reason}: ${why}`); this.reason = reason; this.notJson = notJson; }
}
const refuse = (reason, why) => { throw new Refusal(reason, why); };
const invalid = (why) => refuse('invalid_argument', why);

// ---- strict I-JSON (RFC 7493) ----

function parseStrict(bytes, { numbers = true, limit = 262144 } = {}) {
  if (bytes.length > limit) refuse('payload_too_large', 'body');
  const text = bytes.toString('latin1'); // bytes, so that what is no UTF-8 is seen where it stands
  let at = 0;
  const found = []; // what makes it no I-JSON, told only when it is JSON at all
  const notJson = () => { throw new Refusal('invalid_argument', `no JSON at ${at}`, true); };
  const space = () => { while (' \t\n\r'.includes(text[at]) && at < text.length) at++; };
  const take = (c) => { if (text[at] !== c) notJson(); at++; };

  function string() {
    take('"');
    const out = [];
    let run = at;
    const flush = () => { if (run < at) out.push(bytes.subarray(run, at)); };
    for (;;) {
      if (at >= text.length || text.charCodeAt(at) < 0x20) notJson();
      if (text[at] === '"') { flush(); at++; break; }
      if (text[at] !== '\\') { at++; continue; }
      flush();
      const simple = { '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }[text[at + 1]];
      if (simple !== undefined) { out.push(Buffer.from(simple)); at += 2; } else {
        let units = '';
        do {
          const m = /^\\u([0-9a-fA-F]{4})/.exec(text.slice(at, at + 6));
          if (!m) notJson();
          units += String.fromCharCode(parseInt(m[1], 16));
          at += 6;
        } while (units.length === 1 && /[\ud800-\udbff]/.test(units) && /^\\u[dD][c-fC-F]/.test(text.slice(at, at + 4)));
        if (!units.isWellFormed()) found.push('a lone surrogate');
        out.push(Buffer.from(units.toWellFormed()));
      }
      run = at;
    }
    const raw = Buffer.concat(out);
    let s = '';
    try { s = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(raw); } catch { found.push('invalid UTF-8'); s = raw.toString(); }
    for (const c of s) {
      const cp = c.codePointAt(0);
      if ((cp >= 0xfdd0 && cp <= 0xfdef) || (cp & 0xfffe) === 0xfffe) found.push('a noncharacter');
    }
    return s;
  }

  function number() {
    const m = /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/.exec(text.slice(at));
    if (!m) notJson();
    at += m[0].length;
    const n = Number(m[0]);
    if (numbers) {
      if (!Number.isFinite(n) || Math.abs(n) > Number.MAX_SAFE_INTEGER) found.push('a number beyond 2^53-1');
      if (Object.is(n, -0)) found.push('negative zero');
      if (n === 0 && /[1-9]/.test(m[0].split(/e/i)[0])) found.push('a number too small');
    }
    return n;
  }

  function value(depth) {
    space();
    const open = text[at];
    if (open === '{' || open === '[') {
      if (depth >= 32) invalid('nested deeper than 32');
      at++;
      const object = open === '{' ? new Map() : null;
      const array = object ? null : [];
      const close = object ? '}' : ']';
      space();
      if (text[at] === close) at++;
      else {
        for (;;) {
          space();
          if (object) {
            const name = string();
            if (object.has(name)) found.push('a duplicate member');
            space(); take(':');
            object.set(name, value(depth + 1));
          } else array.push(value(depth + 1));
          space();
          if (text[at] === close) { at++; break; }
          take(',');
        }
      }
      return object ? Object.fromEntries([...object].map(([k, v]) => [k, v])) : array;
    }
    if (open === '"') return string();
    for (const [word, v] of [['true', true], ['false', false], ['null', null]]) {
      if (text.startsWith(word, at)) { at += word.length; return v; }
    }
    return number();
  }

  const v = value(0);
  space();
  if (at !== text.length) notJson();
  if (found.length) invalid(found[0]);
  return v;
}

// ---- JCS (RFC 8785), digests, base64url ----

function canonicalize(v) {
  if (Array.isArray(v)) return `[${v.map(canonicalize).join(',')}]`;
  if (v && typeof v === 'object') return `{${Object.keys(v).sort().map((k) => `${JSON.stringify(k)}:${canonicalize(v[k])}`).join(',')}}`;
  return JSON.stringify(v); // ECMAScript's own numbers and strings are those of RFC 8785
}
const hash = (v) => createHash('sha256').update(canonicalize(v)).digest('base64url');
function decode64(text) {
  const b = Buffer.from(text, 'base64url');
  if (b.toString('base64url') !== text) throw new Error('no canonical base64url');
  return b;
}
const nonceOf = ({ aud, persona, jkt, digest, salt }) => hash({ v: 1, aud, persona, jkt, digest, salt });

// ---- the agent's key ----

const P = 2n ** 255n - 19n;
const mod = (a, m = P) => ((a % m) + m) % m;
function power(b, e, m = P) { let r = 1n; for (b = mod(b, m); e > 0n; e >>= 1n) { if (e & 1n) r = mod(r * b, m); b = mod(b * b, m); } return r; }
const D = mod(-121665n * power(121666n, P - 2n));

/** The point of an Ed25519 key (RFC 8032 §5.1.3), refused in a second spelling and when its order is small. */
function checkEdwards(bytes) {
  let y = BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`);
  const sign = y >> 255n;
  y &= (1n << 255n) - 1n;
  if (y >= P) throw new Error('second spelling');
  const u = mod(y * y - 1n), v = mod(D * y * y + 1n);
  let x = mod(u * power(v, 3n) * power(u * power(v, 7n), (P - 5n) / 8n));
  if (mod(v * x * x) !== u) { if (mod(v * x * x) !== mod(-u)) throw new Error('no point'); x = mod(x * power(2n, (P - 1n) / 4n)); }
  if (x === 0n && sign) throw new Error('second spelling');
  if ((x & 1n) !== sign) x = mod(-x);
  let p = [x, y];
  for (let i = 0; i < 3; i++) { // times 8
    const [a, b] = p;
    const t = mod(D * a * a * b * b);
    p = [mod(2n * a * b * power(1n + t, P - 2n)), mod((b * b + a * a) * power(1n - t, P - 2n))];
  }
  if (p[0] === 0n && p[1] === 1n) throw new Error('small order');
}

const Q = 2n ** 256n - 2n ** 224n + 2n ** 192n + 2n ** 96n - 1n;
const B = 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn;
function checkP256(xb, yb) {
  const [x, y] = [xb, yb].map((b) => BigInt(`0x${b.toString('hex')}`));
  if (x >= Q || y >= Q || mod(y * y, Q) !== mod(x * x * x - 3n * x + B, Q)) throw new Error('no point');
}

function checkKey(key) {
  const shape = { OKP: ['crv', 'kty', 'x'], EC: ['crv', 'kty', 'x', 'y'] }[key?.kty];
  if (!shape || canonicalize(Object.keys(key).sort()) !== canonicalize(shape) || key.crv !== { OKP: 'Ed25519', EC: 'P-256' }[key.kty]) invalid('key');
  try {
    const [x, y] = ['x', 'y'].filter((n) => shape.includes(n)).map((n) => decode64(key[n]));
    if (x.length !== 32 || (y && y.length !== 32)) throw new Error('length');
    if (key.kty === 'OKP') checkEdwards(x); else checkP256(x, y);
  } catch (e) { invalid(`key: ${e.message}`); }
}

// ---- the part's schema ----

const VERBS = ['create_for', 'todo_status', 'list_created', 'answer', 'cancel_todo'];
const length = (s) => [...s].length;
function object(v, name, members) {
  if (!v || typeof v !== 'object' || Array.isArray(v)) invalid(`${name} is no object`);
  for (const k of Object.keys(v)) if (!members.includes(k)) invalid(`unknown member ${name}.${k}`);
  return v;
}
function text(v, name, most) {
  if (typeof v !== 'string' || v === '' || length(v) > most) invalid(name);
}
function everywhere(v, test) {
  if (test(v)) invalid('null or U+0000');
  if (v && typeof v === 'object') for (const [k, below] of Object.entries(v)) { if (test(k)) invalid('U+0000'); everywhere(below, test); }
}

function decodePart(bytes) {
  const part = parseStrict(bytes);
  everywhere(part, (v) => v === null || (typeof v === 'string' && v.includes('\0')));
  object(part, 'part', ['type', 'from', 'reason', 'scope', 'key', 'supersedes', 'provenance']);
  if (part.type !== 'friend-request') invalid('type');
  object(part.from, 'from', ['name', 'card']);
  text(part.from.name, 'from.name', 100);
  if ('card' in part.from) {
    text(part.from.card, 'from.card', 2048);
    if (!/^https?:\/\/[^/?#@\s]+([/?#]\S*)?$/i.test(part.from.card) || !URL.canParse(part.from.card)) invalid('from.card');
  }
  text(part.reason, 'reason', 2000);
  const { queues, verbs, limits = {} } = object(part.scope, 'scope', ['queues', 'verbs', 'limits']);
  const list = (l, good, most) => Array.isArray(l) && l.length > 0 && l.length <= most && new Set(l).size === l.length && l.every(good);
  if (!list(queues, (q) => typeof q === 'string' && /^[a-z0-9-]{1,63}$/.test(q) && !q.includes('\n'), 32)) invalid('scope.queues');
  if (!list(verbs, (v) => VERBS.includes(v), 5)) invalid('scope.verbs');
  object(limits, 'limits', ['max_open', 'per_hour', 'max_payload_bytes', 'max_priority', 'max_delay_days', 'expires_in_days']);
  for (const [k, n] of Object.entries(limits)) {
    const [low, high] = k === 'expires_in_days' ? [1, 365] : [0, 1e9];
    if (!Number.isInteger(n) || n < low || n > high) invalid(`limits.${k}`);
  }
  checkKey(part.key);
  if ('supersedes' in part && !(typeof part.supersedes === 'string' && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(part.supersedes))) invalid('supersedes');
  if ('provenance' in part) {
    const p = object(part.provenance, 'provenance', ['method', 'id_token', 'salt', 'statement']);
    if (p.method === 'oidc-nonce') text(p.id_token, 'id_token', 32768);
    else if (p.method !== 'sign-in' || 'id_token' in p) invalid('method');
    text(p.statement, 'statement', 8192);
    let salt;
    try { salt = decode64(p.salt); } catch { invalid('salt'); }
    if (salt.length < 16 || salt.length > 64) invalid('salt');
  }
  const { provenance, ...digested } = part;
  return { part, provenance, digest: hash(digested), jkt: hash(part.key) };
}

// ---- compact JWS ----

function openJws(token, reason) {
  try {
    const segments = token.split('.');
    if (segments.length !== 3) throw new Error('segments');
    const [h, p, signature] = segments.map(decode64);
    const [header, payload] = [h, p].map((b) => parseStrict(b, { numbers: false, limit: Infinity }));
    for (const v of [header, payload]) if (!v || typeof v !== 'object' || Array.isArray(v)) throw new Error('no object');
    for (const name of ['alg', 'typ', 'kid']) if (name in header && typeof header[name] !== 'string') throw new Error(name);
    if ('crit' in header) throw new Error('crit');
    return { header, payload, bytes: p, signature, input: Buffer.from(`${segments[0]}.${segments[1]}`) };
  } catch (e) { return refuse(reason, e.message); }
}

/** Whether jwk made the signature with alg; the key's type must be that of the algorithm. */
function made(jws, jwk, alg) {
  const kind = { RS: 'RSA', PS: 'RSA', ES: 'EC', Ed: 'OKP' }[alg.slice(0, 2)];
  if (jwk.kty !== kind || (jwk.kty === 'EC' && jwk.crv !== { ES256: 'P-256', ES384: 'P-384', ES512: 'P-521' }[alg])) return false;
  const key = createPublicKey({ key: jwk, format: 'jwk' });
  if (kind === 'RSA' && key.asymmetricKeyDetails.modulusLength < 2048) return false;
  const options = kind === 'EC' ? { key, dsaEncoding: 'ieee-p1363' } : alg.startsWith('PS') ? { key, padding: constants.RSA_PKCS1_PSS_PADDING } : key;
  return verifySignature(kind === 'OKP' ? null : `sha${alg.slice(2)}`, jws.input, options, jws.signature);
}

// ---- rows 2 to 7, 9 and 11 ----

const templated = (spelling, tid) => spelling.includes('{tenantid}')
  ? (typeof tid === 'string' && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(tid) ? spelling.replaceAll('{tenantid}', tid) : null) : spelling;
const string = (v) => (typeof v === 'string' ? v : '');
const date = (v) => (typeof v === 'number' && v >= 0 && v <= 253402300799 ? Math.floor(v) : null);

function checkToken({ provenance, digest, jkt }, target) {
  const jws = openJws(provenance.id_token, 'id_token_signature');
  if (!['', 'JWT', 'jwt'].includes(jws.header.typ ?? '')) refuse('id_token_signature', 'typ');
  const c = jws.payload;
  const entry = file.issuers.find((i) => [i.issuer, ...(i.aliases ?? [])].some((s) => templated(s, c.tid) === c.iss && c.iss));
  if (!entry?.provenance || ![entry.issuer, ...(entry.aliases ?? [])].some((s) => target.may_ask.includes(s))) refuse('issuer_untrusted', c.iss);
  const { alg, kid } = jws.header;
  if (!entry.algs.includes(alg)) refuse('id_token_signature', 'alg');
  const keys = file.jwks.keys.filter((k) => (k.use ?? 'sig') === 'sig' && (!kid || k.kid === kid));
  if (!keys.some((k) => made(jws, k, alg))) refuse('id_token_signature', 'no key verifies');
  const aud = Array.isArray(c.aud) ? (c.aud.length === 1 ? c.aud[0] : '') : c.aud;
  if (typeof aud !== 'string' || !entry.client_ids.includes(aud) || aud === entry.login_client) refuse('id_token_audience', 'aud');
  if ('azp' in c && c.azp !== aud) refuse('id_token_audience', 'azp');
  if (!string(c.sub)) refuse('nonce_mismatch', 'sub');
  if (c.nonce !== nonceOf({ aud: target.aud, persona: target.persona, jkt, digest, salt: provenance.salt })) refuse('nonce_mismatch', 'nonce');
  if (!entry.identity.every((name) => name === 'iss' || string(c[name]))) refuse('issuer_condition', 'identity');
  return { claims: c, entry };
}

function checkStatement({ part, provenance, digest }, target) {
  const bad = (why) => refuse('statement_invalid', why);
  const jws = openJws(provenance.statement, 'statement_invalid');
  const algs = part.key.kty === 'OKP' ? ['EdDSA', 'Ed25519'] : ['ES256'];
  if (Object.keys(jws.header).some((h) => !['alg', 'typ', 'kid'].includes(h)) || jws.header.typ !== 'friend-statement+jwt') bad('header');
  if (!algs.includes(jws.header.alg) || !made(jws, part.key, jws.header.alg)) bad('signature');
  let c;
  try { c = parseStrict(jws.bytes, { limit: Infinity }); } catch (e) { bad(e.message); }
  if (!string(c.jti) || length(c.jti) > 128 || !Number.isInteger(c.iat) || !Number.isInteger(c.exp)) bad('jti, iat or exp');
  for (const [name, want] of Object.entries({ aud: target.aud, persona: target.persona, digest, salt: provenance.salt })) if (c[name] !== want) bad(name);
  if (c.exp <= c.iat || c.exp - c.iat > 600) bad('life');
  if (c.iat > target.now + LEEWAY || ('nbf' in c && !(Number.isInteger(c.nbf) && c.nbf <= target.now + LEEWAY))) bad('from the future');
  return c;
}

function checkTokenTimes({ claims: c, entry }, now) {
  const late = (why) => refuse('id_token_expired', why);
  const [exp, iat] = [date(c.exp), date(c.iat)];
  if (exp === null || now > exp + LEEWAY) late('exp');
  if (iat === null || iat > now + LEEWAY || now - iat > 600 + LEEWAY) late('iat');
  if ('nbf' in c && (date(c.nbf) === null || date(c.nbf) > now + LEEWAY)) late('nbf');
  if (!entry.max_auth_age) return;
  const auth = date(c.auth_time);
  if (auth === null || auth > now + LEEWAY || now - auth > entry.max_auth_age + LEEWAY) late('auth_time');
}

function checkConditions({ claims: c, entry }) {
  const unmet = (why) => refuse('issuer_condition', why);
  const email = string(c.email);
  const at = email.lastIndexOf('@');
  const domain = at > 0 ? email.slice(at + 1).toLowerCase() : '';
  if (entry.email_domain && !([true, 'true'].includes(c.email_verified) && entry.email_domain.includes(domain))) unmet('email');
  if (entry.hosted_domain && !entry.hosted_domain.includes(string(c.hd).toLowerCase())) unmet('hd');
  if (entry.tenant && !entry.tenant.includes(c.tid)) unmet('tid');
  if (entry.acr && !entry.acr.includes(c.acr)) unmet('acr');
  if (entry.amr && !entry.amr.every((m) => Array.isArray(c.amr) && c.amr.includes(m))) unmet('amr');
}

function check(bytes, target) {
  const request = decodePart(bytes);
  if (!request.provenance) refuse('provenance_missing', 'provenance');
  if (request.provenance.method === 'sign-in') {
    const s = checkStatement(request, target);
    if ('iss' in s || 'sub' in s) refuse('statement_invalid', 'iss or sub');
    if (target.now > s.exp + LEEWAY) refuse('statement_invalid', 'exp');
    return;
  }
  const token = checkToken(request, target);
  const s = checkStatement(request, target);
  if (s.iss !== token.claims.iss || s.sub !== token.claims.sub) refuse('statement_invalid', 'iss or sub');
  checkTokenTimes(token, target.now);
  if (target.now > s.exp + LEEWAY) refuse('statement_invalid', 'exp');
  checkConditions(token);
}

// ---- run ----

let passed = 0;
const failures = [];
const expect = (name, got, want) => { if (got === want) passed++; else failures.push(`${name}: ${got}, expected ${want}`); };

for (const { in: text, out } of file.canonical) expect('canonical form', canonicalize(JSON.parse(text)), out);
for (const { jwk, thumbprint } of file.thumbprints) { checkKey(jwk); expect('thumbprint', hash(jwk), thumbprint); }
for (const n of file.nonces) expect('nonce', nonceOf(n), n.nonce);
for (const r of file.requests) {
  const bytes = r.part_base64 === undefined ? Buffer.from(r.part ?? '') : Buffer.from(r.part_base64, 'base64');
  let reason = null;
  let notJson = false;
  try { check(bytes, file.target); } catch (e) {
    if (!(e instanceof Refusal)) throw new Error(`${r.name}: ${e.stack}`);
    ({ reason, notJson } = e);
  }
  expect(r.name, reason, r.reason);
  if (r.reason === 'invalid_argument') expect(`${r.name}, no JSON at all`, notJson, r.not_json ?? false);
  if (r.digest) {
    const { digest, jkt, provenance } = decodePart(bytes);
    expect(`${r.name}, digest`, digest, r.digest);
    expect(`${r.name}, thumbprint`, jkt, r.jkt);
    if (r.nonce) expect(`${r.name}, nonce`, nonceOf({ ...file.target, jkt, digest, salt: provenance.salt }), r.nonce);
  }
}
for (const f of failures) console.log(`not ok - ${f}`);
console.log(`${passed} passed, ${failures.length} failed (${file.requests.length} requests)`);
process.exit(failures.length ? 1 : 0);
