-- Tables of package todo. A todo's content is written once (todo), what changes
-- while it is open stands in a small row of its own (todo_live), and its end in
-- a third (todo_outcome), so that claiming costs the same whatever is finished.
-- Whatever a todo leaves behind lies in partitions by the week in its id
-- (UUIDv7), which retention drops whole.
-- +goose Up
CREATE TABLE queue (
    owner          uuid             NOT NULL,
    name           text COLLATE "C" NOT NULL CHECK (name ~ '^[a-z0-9-]{1,63}$'),
    description    text             NOT NULL DEFAULT '',
    paused         boolean          NOT NULL DEFAULT false,
    max_attempts   integer          NOT NULL DEFAULT 5 CHECK (max_attempts BETWEEN 1 AND 100),
    retention_days integer          NOT NULL DEFAULT 30 CHECK (retention_days BETWEEN 1 AND 3650),
    created_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
    version        bigint           NOT NULL DEFAULT 1,
    PRIMARY KEY (owner, name)
);

-- What makes a creation happen once: the key of each todo within its line. It
-- cannot be partitioned by time, because the key must be unique over all time, so it
-- is small: name stands for line and key (todo_key_name), digest for the content.
-- ordinal counts the creations of a limited line, so that "how many in the last
-- hour" is two look-ups and not a count.
CREATE TABLE todo_key (
    owner      uuid        NOT NULL,
    name       uuid        NOT NULL,
    id         uuid        NOT NULL,
    digest     uuid        NOT NULL,
    line       uuid        NOT NULL,
    ordinal    bigint,     -- null in a line that is not limited
    created_at timestamptz NOT NULL,
    CONSTRAINT todo_key_once PRIMARY KEY (owner, name)
);
-- The predicate leaves unlimited lines out. It also keeps the planner from looking a
-- key up through this index when statistics are stale: that does not name ordinal.
CREATE INDEX todo_key_by_time ON todo_key (line, created_at, id) WHERE ordinal >= 0;

CREATE TABLE todo (
    owner        uuid             NOT NULL,
    id           uuid             NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL DEFAULT 'work', -- or friend_request
    line         uuid             NOT NULL,
    endpoint     uuid,            -- that created it; null when the human did
    grant_id     uuid,            -- null unless it is a friend's
    subject      uuid,            -- the friend request that a consent todo is about
    key          text COLLATE "C" NOT NULL DEFAULT '',
    title        text             NOT NULL,
    body         text             NOT NULL DEFAULT '',
    payload      text,            -- JSON as it was sent
    priority     smallint         NOT NULL,
    deadline     timestamptz,
    identity     text             NOT NULL DEFAULT '',
    calls_itself text             NOT NULL DEFAULT '',
    trace        text             NOT NULL DEFAULT '',
    created_at   timestamptz      NOT NULL,
    PRIMARY KEY (owner, id)
) PARTITION BY RANGE (id);

-- An open todo. There are no CHECKs here: they are parsed anew in every statement.
-- No column that a claim or a heartbeat changes is in an index,
-- so that both stay heap-only updates; hence the room in each page.
CREATE TABLE todo_live (
    owner            uuid             NOT NULL,
    id               uuid             NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    line             uuid             NOT NULL,
    subject          uuid,
    rank             smallint         NOT NULL, -- 10 - priority: what is claimed first is least
    vstart           bigint           NOT NULL, -- virtual start: shares a queue between lines
    weight           integer          NOT NULL DEFAULT 0, -- bytes of body and payload
    limited          boolean          NOT NULL DEFAULT false, -- counts against the limits of its line
    claimable        boolean          NOT NULL, -- false: due later, waiting for an answer, or for the human alone
    state            text COLLATE "C" NOT NULL, -- ready, leased, input_required
    version          bigint           NOT NULL DEFAULT 1,
    attempt          integer          NOT NULL DEFAULT 0, -- claims so far
    spent            integer          NOT NULL DEFAULT 0, -- attempts charged to the budget
    free_lapses      integer          NOT NULL DEFAULT 0, -- lapses without a heartbeat, which were not charged
    artifacts        integer          NOT NULL DEFAULT 0,
    questions        integer          NOT NULL DEFAULT 0,
    not_before       timestamptz,
    deadline         timestamptz,
    cancel_requested boolean          NOT NULL DEFAULT false,
    cancel_reason    text,
    token            uuid,
    worker           uuid,
    started_at       timestamptz,
    lease_expires_at timestamptz,
    lease_seconds    integer,
    beaten           boolean          NOT NULL DEFAULT false, -- a heartbeat came in this lease
    progress         text,
    question_id      uuid,
    question         text,
    asked_at         timestamptz,
    public_message   text,
    PRIMARY KEY (owner, id)
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);
-- The order in which todos are claimed.
CREATE INDEX todo_live_order ON todo_live (owner, queue, rank, vstart, id) WHERE claimable;
-- The open todos of a line, counted against max_open, and its newest virtual start in a queue.
CREATE INDEX todo_live_line ON todo_live (line, queue, rank, vstart) WHERE limited;
-- No more indexes here than those that every todo needs: each statement that changes
-- a row opens them all, also those whose predicate leaves the row out.

-- What time will do to an open todo: make it due, end it at its deadline or when its
-- question was not answered. A row that the todo has outlived is dropped when its time
-- comes.
CREATE TABLE todo_timer (
    owner uuid             NOT NULL,
    todo  uuid             NOT NULL,
    what  text COLLATE "C" NOT NULL CHECK (what IN ('due', 'deadline', 'question')),
    queue text COLLATE "C" NOT NULL,
    at    timestamptz      NOT NULL,
    PRIMARY KEY (owner, todo, what)
);
CREATE INDEX todo_timer_at ON todo_timer (what, at);
CREATE INDEX todo_timer_queue ON todo_timer (owner, what, queue, at);

-- The open consent todo of a friend request.
CREATE TABLE todo_consent (
    owner          uuid NOT NULL,
    friend_request uuid NOT NULL,
    todo           uuid NOT NULL,
    PRIMARY KEY (owner, friend_request)
);

-- The end of a todo, and its last attempt when that completed it.
CREATE TABLE todo_outcome (
    owner          uuid             NOT NULL,
    id             uuid             NOT NULL,
    state          text COLLATE "C" NOT NULL, -- done, failed, canceled
    version        bigint           NOT NULL,
    attempt        integer          NOT NULL,
    artifacts      integer          NOT NULL DEFAULT 0,
    questions      integer          NOT NULL DEFAULT 0,
    worker         uuid,
    token          uuid,
    digest         bytea,           -- of the completion, so that a repeat is known
    started_at     timestamptz,
    lease_seconds  integer,
    progress       text,
    result         text,            -- JSON as the worker sent it
    public_message text,
    error          text,
    cancel_reason  text,
    finished_at    timestamptz      NOT NULL,
    PRIMARY KEY (owner, id)
) PARTITION BY RANGE (id);

-- Attempts that ended otherwise than by completion.
CREATE TABLE todo_attempt (
    owner         uuid             NOT NULL,
    todo          uuid             NOT NULL,
    attempt       integer          NOT NULL,
    worker        uuid             NOT NULL,
    token         uuid             NOT NULL,
    digest        bytea,           -- of the call that ended it; null when none did
    started_at    timestamptz      NOT NULL,
    ended_at      timestamptz      NOT NULL,
    lease_seconds integer          NOT NULL,
    outcome       text COLLATE "C" NOT NULL CHECK (outcome IN ('failed', 'released', 'asked', 'lapsed', 'canceled')),
    error         text,
    progress      text,
    state         text COLLATE "C" NOT NULL, -- of the todo afterwards
    version       bigint           NOT NULL,
    PRIMARY KEY (owner, todo, attempt)
) PARTITION BY RANGE (todo);

CREATE TABLE todo_exchange (
    owner       uuid        NOT NULL,
    todo        uuid        NOT NULL,
    id          uuid        NOT NULL,
    question    text        NOT NULL,
    asked_at    timestamptz NOT NULL,
    answer      text,
    payload     text,
    answered_at timestamptz,
    answer_key  text COLLATE "C",
    PRIMARY KEY (owner, todo, id)
) PARTITION BY RANGE (todo);

CREATE TABLE todo_artifact (
    owner    uuid             NOT NULL,
    todo     uuid             NOT NULL,
    name     text COLLATE "C" NOT NULL,
    artifact text             NOT NULL, -- JSON as the contract shows it
    position bigint           NOT NULL,
    PRIMARY KEY (owner, todo, name)
) PARTITION BY RANGE (todo);

-- Claims that carried a claim_id, so that a repeat returns the same leases.
CREATE TABLE todo_claim (
    owner      uuid             NOT NULL,
    endpoint   uuid             NOT NULL,
    claim_id   text COLLATE "C" NOT NULL,
    todos      uuid[]           NOT NULL,
    tokens     uuid[]           NOT NULL,
    created_at timestamptz      NOT NULL,
    PRIMARY KEY (owner, endpoint, claim_id)
);
CREATE INDEX todo_claim_age ON todo_claim (created_at);

CREATE TABLE todo_default          PARTITION OF todo          DEFAULT;
CREATE TABLE todo_outcome_default  PARTITION OF todo_outcome  DEFAULT;
CREATE TABLE todo_attempt_default  PARTITION OF todo_attempt  DEFAULT;
CREATE TABLE todo_exchange_default PARTITION OF todo_exchange DEFAULT;
CREATE TABLE todo_artifact_default PARTITION OF todo_artifact DEFAULT;

-- +goose StatementBegin
-- Ends a transaction whose caller is no longer whom it was resolved as.
CREATE FUNCTION todo_stale() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the endpoint has changed since its caller was resolved' USING ERRCODE = 'SB001';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- What stands for an idempotency key of a line in todo_key.
CREATE FUNCTION todo_key_name(line uuid, key text) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT encode(substring(sha256(uuid_send(line) || convert_to(key, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The smallest UUIDv7 of a moment.
CREATE FUNCTION todo_first_id(moment timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Makes sure of the partitions of this week and the next. The serving role may
-- call it though it may not change the schema itself. A week that already has
-- rows in the default partition stays there.
CREATE FUNCTION todo_make_partitions(moment timestamptz) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    start timestamptz;
    base  text;
    part  text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('todo_partitions', 0));
    FOR week IN 0..1 LOOP
        start := date_trunc('week', moment AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + week * interval '7 days';
        FOREACH base IN ARRAY ARRAY['todo', 'todo_outcome', 'todo_attempt', 'todo_exchange', 'todo_artifact'] LOOP
            part := base || '_' || to_char(start AT TIME ZONE 'UTC', 'YYYYMMDD');
            CONTINUE WHEN to_regclass(part) IS NOT NULL;
            BEGIN
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                    part, base, todo_first_id(start), todo_first_id(start + interval '7 days'));
            EXCEPTION WHEN check_violation THEN
                RAISE NOTICE 'partition % not made: the default partition has rows of that week', part;
            END;
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Drops the partitions of one week, named by its first day (YYYYMMDD), if nothing
-- in it is open or ended after the moment given.
CREATE FUNCTION todo_drop_partitions(week text, moment timestamptz) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    start timestamptz := to_date(week, 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC';
    low   uuid;
    high  uuid;
    keep  boolean;
    base  text;
BEGIN
    low := todo_first_id(start);
    high := todo_first_id(start + interval '7 days');
    PERFORM pg_advisory_xact_lock(hashtextextended('todo_partitions', 0));
    IF start + interval '7 days' >= moment OR to_regclass('todo_' || week) IS NULL THEN
        RETURN false;
    END IF;
    SELECT EXISTS (SELECT FROM todo_live WHERE id >= low AND id < high)
        OR EXISTS (SELECT FROM todo_outcome o JOIN todo t USING (owner, id) JOIN queue q ON q.owner = t.owner AND q.name = t.queue
                   WHERE o.id >= low AND o.id < high AND o.finished_at > moment - make_interval(days => q.retention_days)) INTO keep;
    IF keep THEN
        RETURN false;
    END IF;
    EXECUTE format('DELETE FROM todo_key k USING %I t WHERE k.owner = t.owner AND k.name = todo_key_name(t.line, t.key) AND k.id = t.id', 'todo_' || week);
    FOREACH base IN ARRAY ARRAY['todo', 'todo_outcome', 'todo_attempt', 'todo_exchange', 'todo_artifact'] LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I', base || '_' || week);
    END LOOP;
    RETURN true;
END
$$;
-- +goose StatementEnd

SELECT todo_make_partitions(clock_timestamp());

-- +goose Down
DROP FUNCTION todo_drop_partitions, todo_make_partitions;
DROP TABLE todo_claim, todo_consent, todo_timer, todo_artifact, todo_exchange, todo_attempt, todo_outcome, todo_live, todo, todo_key, queue;
DROP FUNCTION todo_first_id, todo_key_name, todo_stale;
