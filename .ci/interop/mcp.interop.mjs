// The official MCP clients, unmodified: @modelcontextprotocol/sdk in the eras with a handshake, @modelcontextprotocol/client in the newest.
import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { check, main, thrown } from './report.mjs';
import { Agent, publish, signIn } from './people.mjs';

const base = process.argv[2];
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

const headers = (token) => ({ requestInit: { headers: { authorization: `Bearer ${token}` } } });

async function old({ url, token }) {
  const client = new OldClient(me);
  const transport = new OldTransport(url, headers(token));
  await client.connect(transport);
  return { client, version: transport.protocolVersion, session: transport.sessionId };
}

const fresh = (mode) => async ({ url, token }) => {
  const client = new Client(me, { versionNegotiation: { mode } });
  const transport = new StreamableHTTPClientTransport(url, headers(token));
  await client.connect(transport);
  return { client, version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion, session: transport.sessionId };
};

async function drive(title, dial, era, place, friend) {
  const it = (what, ok, seen) => check(`${title}: ${what}`, ok, seen);
  const { client, version, session } = await dial(friend);
  it(`speaks ${era} without a session`, version === era && !session, [version, session]);
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

  const worker = await dial({ url: new URL(place.home.url), token: place.home.credential });
  const work = (name, args) => worker.client.callTool({ name, arguments: args });
  it("the worker's list", (await worker.client.listTools()).tools.length === 14);
  const claim = (await work('claim', { todo_id, lease_seconds: 60 })).structuredContent;
  it('the worker claims it', claim.from_friend?.payload?.pr === 7 && claim.lease_token, claim);
  const seen = (await call('todo_status', { todo_id })).structuredContent;
  let told;
  if (era === '2026-07-28') {
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

let bob;
await main(`@modelcontextprotocol/sdk ${versionOf('@modelcontextprotocol/sdk/client/index.js')}, @modelcontextprotocol/client ${versionOf('@modelcontextprotocol/client')}`, async () => {
  bob = await signIn(base, 'bob');
  const place = await publish(bob, `interop-mcp-${run}`);
  const friend = await befriend('alice', place);
  const clients = [
    await drive('sdk', old, '2025-11-25', place, friend),
    await drive('client', fresh({ pin: '2026-07-28' }), '2026-07-28', place, friend),
    await drive('client, finding out', fresh('auto'), '2026-07-28', place, friend),
    await drive('client, as before', fresh('legacy'), '2025-11-25', place, friend),
  ];
  await bob('POST', `/v1/grants/${friend.grantId}/revoke`, {});
  for (const client of clients) {
    const gone = await thrown(() => client.callTool({ name: 'whoami', arguments: {} }));
    check('after revoke no client gets anything', /401|unauthorized|invalid_token/i.test(`${gone?.name} ${gone?.code} ${gone?.message}`), String(gone));
    await client.close();
  }
});
