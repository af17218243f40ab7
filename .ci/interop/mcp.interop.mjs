// The official MCP clients, unmodified: @modelcontextprotocol/sdk in the eras with a handshake, @modelcontextprotocol/client in the newest.
// Each with tokens by an agent's key, signing its person in by itself (code flow), and through `switchboard connect` over stdio.
import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { StdioClientTransport as OldStdio } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Client, DpopSession, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { check, main, thrown } from './report.mjs';
import { Agent, publish, signIn } from './people.mjs';
import { Provider, serveDocument } from './signin.mjs';

const base = process.argv[2];
const program = process.env.SWITCHBOARD ?? new URL('../../.bin/switchboard', import.meta.url).pathname;
const run = Date.now().toString(36);
const me = { name: 'interop', version: '1' };
const versionOf = (name) => {
  const path = createRequire(import.meta.url).resolve(name).replaceAll('\\', '/');
  return JSON.parse(readFileSync(`${path.slice(0, path.lastIndexOf(`/${name.split('/').slice(0, 2).join('/')}/`))}/${name.split('/').slice(0, 2).join('/')}/package.json`)).version;
};

/** A friend of bob's persona, with its endpoint and a token. */
async function befriend(human, place) {
  const card = await (await fetch(`${base}/a2a/${place.slug}/.well-known/agent-card.json`)).json();
  const { params } = card.capabilities.extensions.find((e) => e.uri === 'urn:switchboard:a2a:friend-request:v1');
  const agent = new Agent(human);
  const sent = await fetch(`${base}/v1/a2a/${place.slug}/friend-requests`, {
    method: 'POST', headers: { 'content-type': 'application/json', 'idempotency-key': randomUUID() }, body: JSON.stringify(await agent.request(params)),
  });
  const { id } = await sent.json();
  const grant = await bob('POST', `/v1/friend-requests/${id}/approve`, {});
  const artifact = grant.artifact ?? await (await fetch(`${base}/v1/a2a/${place.slug}/friend-requests/${id}`, {
    headers: { authorization: `Bearer ${await agent.token(base, `${base}/a2a/${place.slug}`)}` },
  })).json().then((r) => r.artifact);
  return { url: new URL(artifact.mcp_endpoint), token: await agent.token(base, artifact.mcp_endpoint), grantId: artifact.grant_id };
}

/** A friend of bob's persona whose key `switchboard connect` holds. */
async function befriendByCommand(human, place) {
  const state = mkdtempSync(join(tmpdir(), 'interop-'));
  const friend = async (...args) => JSON.parse((await promisify(execFile)(program, ['friend', ...args, '--json', '--state', state])).stdout);
  const { id } = await friend('request', `${base}/a2a/${place.slug}`, '--headless', human, '--name', `${human}-bot`, '--reason', 'Hand you pull requests.', '--yes');
  await bob('POST', `/v1/friend-requests/${id}/approve`, {});
  const { grant } = await friend('status', id);
  return { url: new URL(grant.mcp_endpoint), connect: { command: program, args: ['connect', grant.mcp_endpoint, '--state', state], stderr: 'pipe' }, grantId: grant.grant_id, state };
}

// How a client gets in: with a token that it is given, by signing its person in, or through `connect`.
const headers = ({ token }) => ({ requestInit: { headers: { authorization: `Bearer ${token}` } } });

const old = async (target) => {
  const client = new OldClient(me);
  const dial = () => (target.connect ? new OldStdio(target.connect) : new OldTransport(target.url, target.provider ? { authProvider: target.provider } : headers(target)));
  const transport = await enter(client, dial, target.provider, (t, answer) => t.finishAuth(answer.get('code')));
  return { client, version: transport.protocolVersion ?? transport._protocolVersion, session: transport.sessionId, finish: () => transport.finishAuth(target.provider.answer.get('code')) };
};

const fresh = (mode) => async (target) => {
  const client = new Client(me, { versionNegotiation: { mode } });
  const dial = () => (target.connect ? new StdioClientTransport(target.connect) : new StreamableHTTPClientTransport(target.url, target.provider ? { authProvider: target.provider } : headers(target)));
  const transport = await enter(client, dial, target.provider, (t, answer) => t.finishAuth(answer));
  return { client, version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion, session: transport.sessionId, finish: () => transport.finishAuth(target.provider.answer) };
};

/** Connects; a client without a token is sent to sign in, comes back with a code, and connects again. */
async function enter(client, dial, provider, finish) {
  let transport = dial();
  const refused = provider && await thrown(() => client.connect(transport));
  if (refused) {
    if (refused.name !== 'UnauthorizedError' && refused.constructor.name !== 'UnauthorizedError') throw refused;
    await finish(transport, provider.answer);
    transport = dial();
  }
  if (refused || !provider) await client.connect(transport);
  return transport;
}

async function drive(title, dial, era, place, friend) {
  const it = (what, ok, seen) => check(`${title}: ${what}`, ok, seen);
  const { client, version, session } = await dial(friend);
  it(`speaks ${era} without a session`, (version ?? era) === era && !session, [version, session]);
  const { tools } = await client.listTools();
  it('lists the granted tools in order', tools.map((t) => t.name).join() === 'create_for,todo_status,list_created,answer,cancel_todo,whoami', tools.map((t) => t.name));

  const call = (name, args) => client.callTool({ name, arguments: args });
  const key = `${title} ${run}`;
  const made = await call('create_for', { queue: place.queue, title: 'Review 7', idempotency_key: key, payload: { pr: 7 } });
  const { todo_id } = made.structuredContent;
  it('hands work over', made.structuredContent.state === 'ready' && made.content[0].text === JSON.stringify(made.structuredContent), made);
  const batch = await call('create_for', { items: [{ queue: place.queue, title: 'Review 7', idempotency_key: key, payload: { pr: 7 } }, { queue: 'inbox', title: 'No', idempotency_key: key }] });
  it('a batch has an outcome an item', batch.structuredContent.results[0].deduplicated === true && batch.structuredContent.results[1].error.code === 'not_found', batch);
  const refused = await call('todo_status', { todo_id: randomUUID() });
  it('an error of the domain is a result', refused.isError === true && refused.structuredContent.error.code === 'not_found', refused);
  const invalid = await call('create_for', { queue: place.queue, title: 'x', idempotency_key: 'y', contextBudgetTokens: 5 });
  it('a member that cannot be honoured is refused', invalid.isError === true && invalid.structuredContent.error.code === 'invalid_argument', invalid);
  const unknown = await thrown(() => call('claim_next', {}));
  it("somebody else's tool is an unknown one", unknown?.code === -32602, String(unknown));

  const worker = await dial(friend.worker?.() ?? { url: new URL(place.home.url), token: place.home.credential });
  const work = (name, args) => worker.client.callTool({ name, arguments: args });
  it("the worker's list", (await worker.client.listTools()).tools.length === 14);
  const claim = (await work('claim', { todo_id, lease_seconds: 60 })).structuredContent;
  it('the worker claims it', claim.from_friend?.payload?.pr === 7 && claim.lease_token, claim);
  const seen = (await call('todo_status', { todo_id })).structuredContent;
  let told;
  if (era === '2026-07-28' && !friend.connect) {
    const notice = new Promise((resolve) => { client.setNotificationHandler('notifications/resources/updated', (n) => resolve(n.params.uri)); });
    const stream = await client.listen({ resourceSubscriptions: [`todo:${todo_id}`] });
    told = { notice, stream };
  }
  const waiting = call('todo_status', { todo_id, wait_seconds: 30, since_version: seen.version });
  await new Promise((resolve) => { setTimeout(resolve, 200); });
  const done = await work('complete', { todo_id, lease_token: claim.lease_token, result: { verdict: 'approved' } });
  it('the worker completes it', done.structuredContent.state === 'done', done);
  const end = (await waiting).structuredContent;
  it('the waiting call sees the result', end.state === 'done' && end.result.verdict === 'approved', end);
  if (told) {
    it('the stream told of it', await told.notice === `todo:${todo_id}`);
    await told.stream.close();
    const read = await client.readResource({ uri: `todo:${todo_id}` });
    it('and it can be read as a resource', JSON.parse(read.contents[0].text).state === 'done', read);
  }
  await worker.client.close();
  return client;
}

/** What is particular to clients that sign their person in. */
async function signsIn(title, dial, place, friend, alice, document) {
  const it = (what, ok, seen) => check(`${title}: ${what}`, ok, seen);
  const provider = new Provider(alice, document);
  const before = document.read();
  const { client } = await dial({ url: friend.url, provider });
  const { asked, answers: [first], kept } = provider;
  it('it learned the way from the 401', asked?.origin === base && asked.pathname === '/oauth/authorize' && asked.searchParams.get('resource') === friend.url.href && asked.searchParams.get('code_challenge_method') === 'S256', asked?.href);
  it('its id is the URL of its document', asked?.searchParams.get('client_id') === document.id && (before > 0 || document.read() > 0), asked?.href);
  it('the answer names us (RFC 9207)', first.answer.get('iss') === base && first.answer.get('state') === 'a-state-of-its-own', String(first.answer));
  it('it has a token to refresh', kept?.refresh_token?.startsWith('sbr_') && kept.token_type === 'Bearer', kept && Object.keys(kept));
  provider.kept = { ...kept, access_token: kept.access_token.replace(/.$/, (c) => (c === 'A' ? 'B' : 'A')) }; // as if it had expired
  const who = await client.callTool({ name: 'whoami', arguments: {} });
  it('it refreshes by itself', who.structuredContent?.direction === 'in' && provider.answers.length === 1 && provider.kept.refresh_token !== kept.refresh_token, who);
  await client.close();

  const again = new Provider(alice, document);
  await (await dial({ url: friend.url, provider: again })).client.close();
  it('consent is remembered', again.answers.length === 1 && again.answers[0].asked === false, again.answers);

  const other = new Provider(await signIn(base, 'carol'), document);
  await thrown(() => dial({ url: friend.url, provider: other }));
  it("somebody else's sign-in opens nothing", other.answer?.get('error') === 'invalid_target' && !other.kept, String(other.answer));

  const little = new Provider(alice, document, { scope: `todo_status:${place.queue}` });
  const narrow = await dial({ url: friend.url, provider: little });
  it('it may ask for less', (await narrow.client.listTools()).tools.map((t) => t.name).join() === 'todo_status,whoami', little.kept);
  const create = (c) => c.callTool({ name: 'create_for', arguments: { queue: place.queue, title: 'x', idempotency_key: `${title} ${run} more` } });
  const beyond = await thrown(() => create(narrow.client));
  if (dial === old) { // has a refresh token and tries that instead, which never widens anything
    it('more is refused', /403/.test(String(beyond)) && little.answers.length === 1, String(beyond));
    await narrow.client.close();
    return provider;
  }
  it('more needs the person again', beyond !== undefined && little.answers.length === 2 && little.answers[1].asked && little.asked.searchParams.get('scope').includes(`create_for:${place.queue}`), `${beyond} ${little.asked}`);
  await narrow.finish();
  const more = await create(narrow.client);
  it('and is there then', more.structuredContent?.state === 'ready', more);
  await narrow.client.close();
  return provider;
}

let bob;
await main(`@modelcontextprotocol/sdk ${versionOf('@modelcontextprotocol/sdk/client/index.js')}, @modelcontextprotocol/client ${versionOf('@modelcontextprotocol/client')}`, async () => {
  bob = await signIn(base, 'bob');
  const alice = await signIn(base, 'alice');
  const place = await publish(bob, `interop-mcp-${run}`);
  const friend = await befriend('alice', place);
  const clients = [
    await drive('sdk', old, '2025-11-25', place, friend),
    await drive('client', fresh({ pin: '2026-07-28' }), '2026-07-28', place, friend),
    await drive('client, finding out', fresh('auto'), '2026-07-28', place, friend),
    await drive('client, as before', fresh('legacy'), '2025-11-25', place, friend),
  ];

  const signedIn = [];
  const documents = [];
  for (const [title, dial, era, tls] of [
    ['sdk, signing in', old, '2025-11-25', process.env.INTEROP_TLS],
    ['client, signing in', fresh({ pin: '2026-07-28' }), '2026-07-28', process.env.INTEROP_TLS],
    ['client, finding out and signing in', fresh('auto'), '2026-07-28', ''],
  ]) {
    const document = await serveDocument(title, base, tls);
    documents.push(document);
    const declining = new Provider(alice, document, { decision: 'deny' });
    await thrown(() => dial({ url: friend.url, provider: declining }));
    check(`${title}: declined, it gets nothing`, declining.answer?.get('error') === 'access_denied' && declining.answers[0].html.includes(document.id) && !declining.kept, String(declining.answer));
    const provider = await signsIn(title, dial, place, friend, alice, document);
    const mine = { url: friend.url, provider, worker: () => ({ url: new URL(place.home.url), provider: new Provider(bob, document) }) };
    clients.push(await drive(title, dial, era, place, mine));
    signedIn.push(provider);
  }
  const bound = new Provider(alice, documents[1], { dpop: await DpopSession.create() });
  clients.push(await drive('client, signing in with DPoP', fresh({ pin: '2026-07-28' }), '2026-07-28', place, { url: friend.url, provider: bound }));
  check('its token is bound to its key', bound.kept.token_type === 'DPoP', bound.kept.token_type);
  const stolen = await thrown(() => old({ url: friend.url, token: bound.kept.access_token }));
  check('and worth nothing without it', /401|unauthorized/i.test(`${stolen?.name} ${stolen?.code} ${stolen?.message}`), String(stolen));

  const held = await bob('GET', `/v1/grants/${friend.grantId}`);
  check('the grant is as it was', held.state === 'active', held);

  const carols = await befriendByCommand('carol', place);
  const stdio = [];
  for (const [title, dial, era] of [
    ['sdk, through connect', old, '2025-11-25'],
    ['client, through connect', fresh({ pin: '2026-07-28' }), '2026-07-28'],
    ['client, finding out through connect', fresh('auto'), '2026-07-28'],
  ]) stdio.push([title, await drive(title, dial, era, place, carols)]);

  await bob('POST', `/v1/grants/${friend.grantId}/revoke`, {});
  for (const client of clients) {
    const gone = await thrown(() => client.callTool({ name: 'whoami', arguments: {} }));
    check('after revoke no client gets anything', /401|unauthorized|invalid_token/i.test(`${gone?.name} ${gone?.code} ${gone?.message}`), String(gone));
    await client.close();
  }
  for (const provider of signedIn) {
    check('and signing in again opens nothing', provider.answer.get('error') === 'invalid_target' && !provider.kept, String(provider.answer));
  }
  await bob('POST', `/v1/grants/${carols.grantId}/revoke`, {});
  for (const [title, client] of stdio) {
    const gone = await client.callTool({ name: 'whoami', arguments: {} });
    check(`${title}: after revoke it says so`, gone.isError === true && gone.structuredContent.error.code === 'forbidden' && /revoked/.test(gone.content[0].text), gone);
    await client.close();
  }
  rmSync(carols.state, { recursive: true, force: true });
  for (const document of documents) document.close();
});
