// The official JavaScript SDK of A2A, 1.0 and its 0.3 compatibility, unmodified: only the friend request itself is ours.
import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { SendMessageRequest, TaskState, canonicalizeAgentCard, verifyAgentCardSignature } from '@a2a-js/sdk';
import {
  ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, ServiceParameters, createAuthenticatingFetchWithRetry, withA2AExtensions,
} from '@a2a-js/sdk/client';
import { check, main, thrown } from './report.mjs';
import { Agent, publish, signIn } from './people.mjs';

const base = process.argv[2];
const extension = 'urn:switchboard:a2a:friend-request:v1';
const { version } = JSON.parse(readFileSync(createRequire(import.meta.url).resolve('@a2a-js/sdk').replace(/dist\/.*$/, 'package.json')));
const run = Date.now().toString(36);

const message = (data) => SendMessageRequest.fromJSON({
  message: { messageId: randomUUID(), role: 'ROLE_USER', parts: [data] }, configuration: { returnImmediately: true },
});
const state = (task) => TaskState[task?.status?.state] ?? task?.status?.state;
const dataOf = (part) => part?.content?.value ?? part?.data;

async function drive(title, human, slug, legacy) {
  const path = `${legacy ? '/a2a-v03' : '/a2a'}/${slug}/.well-known/agent-card.json`;
  const raw = await (await fetch(base + path)).json();
  const params = raw.capabilities.extensions.find((e) => e.uri === extension).params;
  const agent = new Agent(human);
  let token;
  const authenticated = createAuthenticatingFetchWithRetry(fetch, {
    headers: async () => (token ? { Authorization: `Bearer ${token}` } : {}), shouldRetryWithHeaders: async () => undefined,
  });
  const legacyCompat = { enabled: legacy };
  const cardResolver = new DefaultAgentCardResolver({ legacyCompat });
  const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl: authenticated, legacyCompat })], cardResolver,
  }));
  const client = await factory.createFromUrl(base, path);
  const options = { serviceParameters: ServiceParameters.create(withA2AExtensions(extension)) };
  const it = (what, ok, seen) => check(`${title}: ${what}`, ok, seen);

  const card = await cardResolver.resolve(base, path);
  it('reads the card', card.name === slug && card.capabilities.extensions.some((e) => e.uri === extension && e.required), card);
  if (!legacy) {
    const keys = (await (await fetch(`${base}/.well-known/jwks.json`)).json()).keys;
    const verify = verifyAgentCardSignature(async (kid) => keys.find((k) => k.kid === kid));
    console.debug = () => {}; // it reports each signature that is not over the form that it looks for
    // As served: of the card that its resolver has read, this version leaves securitySchemes out before it verifies.
    const bad = await thrown(() => verify(raw));
    it("verifies the card's signature", bad === undefined, `${bad} ${canonicalizeAgentCard(raw)}`);
    const forged = await thrown(() => verify({ ...raw, name: 'mallory' }));
    it('and finds a forged card out', forged !== undefined);
  }

  const text = await thrown(() => client.sendMessage(message({ text: 'Please review PR 7.' }), options));
  it('work is refused', /data part|no work/.test(String(text?.message)), String(text));
  const bare = await thrown(async () => client.sendMessage(message({ data: await agent.request(params) })));
  it('without the extension it is refused', /A2A-Extensions/.test(String(bare?.message)), String(bare));

  const first = await client.sendMessage(message({ data: await agent.request(params), mediaType: 'application/json' }), options);
  it('send', state(first) === 'TASK_STATE_SUBMITTED', first);
  const early = await thrown(() => client.getTask({ id: first.id, tenant: '' }));
  it('get without a token is refused', early !== undefined);
  token = await agent.token(params.authorization_server, `${params.authorization_server}/a2a/${params.persona}`);
  const got = await client.getTask({ id: first.id, tenant: '' });
  it('get', got.id === first.id && state(got) === 'TASK_STATE_SUBMITTED', got);
  const none = await thrown(() => client.getTask({ id: randomUUID(), tenant: '' }));
  it('get of an unknown task', /not found/i.test(String(none?.message)), String(none));
  const gone = await client.cancelTask({ id: first.id, tenant: '' });
  it('cancel', state(gone) === 'TASK_STATE_CANCELED', gone);
  const twice = await thrown(() => client.cancelTask({ id: first.id, tenant: '' }));
  it('cancel twice', twice !== undefined, String(twice));

  const seen = [];
  let id;
  for await (const e of client.sendMessageStream(message({ data: await agent.request(params), mediaType: 'application/json' }), options)) {
    const { $case: kind, value } = e.payload;
    seen.push(kind === 'artifactUpdate' ? value.artifact.artifactId : state(value));
    if (kind === 'task') {
      id = value.id;
      await bob('POST', `/v1/friend-requests/${id}/approve`, {});
    }
  }
  it('stream to the decision', seen.join() === 'TASK_STATE_SUBMITTED,grant,TASK_STATE_COMPLETED', seen);
  const done = await client.getTask({ id, tenant: '' });
  const grant = dataOf(done.artifacts[0]?.parts[0]);
  it('read the artifact', state(done) === 'TASK_STATE_COMPLETED' && grant?.mcp_endpoint?.startsWith(`${base}/mcp/`) && grant.granted_scope.verbs.length === 5, done);
  const extended = await client.getAgentCard();
  const held = extended.capabilities.extensions.find((e) => e.uri === extension).params.grants;
  it('the extended card shows the grant', held?.length === 1 && held[0].grant_id === grant?.grant_id, held);

  if (legacy) {
    const list = await thrown(() => client.listTasks({ tenant: '', contextId: '', pageToken: '' }));
    it('this client knows no list in 0.3', list !== undefined);
    return;
  }
  const page = await client.listTasks({ tenant: '', contextId: '', status: 0, pageSize: 1, pageToken: '', includeArtifacts: true });
  it('list', page.totalSize === 2 && page.tasks[0].id === id && page.tasks[0].artifacts.length === 1 && page.nextPageToken !== '', page);
  const next = await client.listTasks({ tenant: '', contextId: '', status: 0, pageToken: page.nextPageToken });
  it('the next page', next.tasks[0].id === first.id, next);
}

let bob;
await main(`@a2a-js/sdk ${version}`, async () => {
  bob = await signIn(base, 'bob');
  for (const [title, human, legacy] of [['1.0', 'alice', false], ['0.3', 'carol', true]]) {
    const slug = `interop-a2a-${title.replace('.', '')}-${run}`;
    await publish(bob, slug);
    await drive(title, human, slug, legacy);
  }
});
