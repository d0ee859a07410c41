#!/usr/bin/env node
// Checks a JobLedger's log without JobLedger: docs/audit.md has the formula, this has nothing else of it.
//
//   PGTZ=UTC psql "$DSN" -qAt -v FETCH_COUNT=1000 -c 'select row_to_json(e) from public.job_events e order by position' \
//     | node verify.js [--after POSITION:HASH] [--anchor POSITION:HASH]
//
// One row a line, ascending. --after: where the first row follows on, if it is not the log's first; --anchor: a head
// that was noted earlier and must be there still. Prints one line of JSON: ok, checked, first_bad, reason, head.
// Exit status: 0 whole, 1 not whole, 2 misused.
'use strict';
const { createHash } = require('node:crypto');

const int4 = (n) => { const b = Buffer.alloc(4); b.writeInt32BE(n); return b; };
const int8 = (n) => { const b = Buffer.alloc(8); b.writeBigInt64BE(BigInt(n)); return b; };
const lengthPrefixed = (b) => (b === null ? int4(-1) : Buffer.concat([int4(b.length), b]));
const utf8 = (text) => (text === null ? null : Buffer.from(text, 'utf8'));
const bytea = (hex) => Buffer.from(hex.slice(2), 'hex'); // psql writes \x…

// Microseconds since 1970 of "2023-05-01T08:00:00.000001+08:00", which a Date would cut to milliseconds; -1 for what
// no event has, such as infinity.
function microseconds(text) {
  const given = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?([+-]\d\d:\d\d)$/.exec(text);
  if (given === null) return -1n;
  return BigInt(Date.parse(given[1] + given[3])) * 1000n + BigInt((given[2] ?? '').padEnd(6, '0'));
}

function expectedHash(previous, row) {
  const parts = [bytea(row.signal), ...['hccl', 'detail', 'region', 'account_id', 'user_id', 'publisher']
    .map((column) => utf8(row[column]))];
  return createHash('sha256').update(Buffer.concat([
    previous, int8(row.position), Buffer.from(row.uuid.replaceAll('-', ''), 'hex'), bytea(row.content_hash),
    int8(microseconds(row.recorded_at)), ...parts.map(lengthPrefixed),
  ])).digest();
}

// The fields of a protobuf message: number → the bytes of its last value, none for a number.
function fieldsOf(message) {
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      if (at >= message.length || shift > 63n) throw new Error('cut off');
      const octet = message[at++];
      value |= BigInt(octet & 127) << shift;
      if (octet < 128) return value;
    }
  };
  const fields = new Map();
  while (at < message.length) {
    const tag = varint();
    const [number, kind] = [Number(tag >> 3n), Number(tag & 7n)];
    if (number === 0 || (number <= 15 && kind !== 2)) throw new Error('wrong kind');
    const length = kind === 2 ? Number(varint()) : { 0: 0, 1: 8, 5: 4 }[kind];
    if (kind === 0) varint();
    if (length === undefined || at + length > message.length) throw new Error('cut off');
    fields.set(number, message.subarray(at, at + length));
    at += length;
  }
  return fields;
}

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const COLUMNS = ['uuid', 'job_id', 'job_name', 'namespace', 'framework', 'job_status', 'job_time', 'cm_index', 'total',
  null, 'delete_time', 'shared_tor_ip', 'master_addr', 'operator', 'sid']; // field 1, 2 …
const lastOf = new Map(); // job id → its last event, for what an event says that the job left

// Each server's id and name, in their order, of 1 to 256 characters, a line each.
function namedIn(hccl) {
  const servers = hccl === null ? [] : JSON.parse(hccl).server_list ?? [];
  const names = servers.flatMap((each) => [each.server_id, each.server_name]);
  return names.filter((name) => name && [...name].length <= 256).join('\n');
}

// The first column that contradicts the signal, or null. `whole`: no earlier event of the job is out of sight.
function contradiction(row, whole) {
  const signal = bytea(row.signal);
  let said;
  try {
    const fields = fieldsOf(signal);
    for (const own of [10, 100, 101]) if (fields.has(own)) return `signal holds field ${own}`;
    said = COLUMNS.map((_, n) => strict.decode(fields.get(n + 1) ?? Buffer.alloc(0)));
  } catch {
    return 'signal is not a JobSummarySignal';
  }
  if (row.hccl === '') return 'hccl is empty, not null';
  for (const [n, column] of COLUMNS.entries()) {
    if (column === null) continue;
    let kept = row[column] ?? '';
    if (column.endsWith('_time') && kept !== '') {
      const moment = microseconds(kept);
      kept = moment % 1000000n === 0n ? moment / 1000000n : kept;
    }
    if (String(kept) !== said[n]) return `${column} is ${kept}, the signal says ${said[n]}`;
  }
  const hccl = utf8(row.hccl);
  const varintBytes = (n) => (n < 128 ? 1 : 1 + varintBytes(Math.floor(n / 128)));
  const size = signal.length + (hccl === null ? 0 : 1 + varintBytes(hccl.length) + hccl.length);
  if (row.size !== size) return `size is ${row.size}, not ${size}`;
  if ((row.servers ?? null) !== null && row.servers !== namedIn(row.hccl)) return 'servers is not what hccl names';
  const before = lastOf.get(row.job_id);
  for (const column of ['namespace', 'framework']) {
    const left = before?.operator === 'add' && before[column] !== row[column] ? before[column] : null;
    if ((before || whole) && row[`left_${column}`] !== left) return `left_${column} is not what the job left`;
  }
  return null;
}

// Lines end with \n alone: readline would also end them at U+2028, which a name may hold.
async function* lines(stream) {
  let rest = [];
  for await (const chunk of stream) {
    let start = 0;
    for (let end; (end = chunk.indexOf(10, start)) >= 0; start = end + 1) {
      yield Buffer.concat([...rest, chunk.subarray(start, end)]).toString('utf8');
      rest = [];
    }
    rest.push(chunk.subarray(start));
  }
  yield Buffer.concat(rest).toString('utf8');
}

function option(name) {
  const at = process.argv.indexOf(name);
  if (at < 0) return null;
  const [, position, hash] = /^(\d+):([0-9a-f]{64})$/.exec(process.argv[at + 1] ?? '') ?? process.exit(2);
  return { position: Number(position), hash };
}

async function main() {
  const [after, anchor] = [option('--after'), option('--anchor')];
  let position = after?.position ?? 0;
  let previous = after ? Buffer.from(after.hash, 'hex') : Buffer.alloc(32);
  const result = { ok: true, checked: 0, first_bad: null, reason: null };
  const fail = (at, reason) => Object.assign(result, { ok: false, first_bad: at, reason });
  const meets = () => !anchor || anchor.position !== position || anchor.hash === previous.toString('hex');
  if (!meets()) fail(position, 'the hash is not the anchor\'s');
  for await (const line of lines(process.stdin)) {
    if (line === '' || !result.ok) continue;
    const row = JSON.parse(line);
    if (row.position !== position + 1) fail(position + 1, 'missing');
    else if (!expectedHash(previous, row).equals(bytea(row.hash))) fail(row.position, 'hash does not follow');
    else {
      const reason = contradiction(row, after === null);
      if (reason !== null) fail(row.position, reason);
    }
    if (!result.ok) continue;
    position = row.position;
    previous = bytea(row.hash);
    lastOf.set(row.job_id, { operator: row.operator, namespace: row.namespace, framework: row.framework });
    result.checked += 1;
    if (!meets()) fail(position, 'the hash is not the anchor\'s');
  }
  if (result.ok && anchor && anchor.position > position) fail(position + 1, 'missing: the log ends before the anchor');
  console.log(JSON.stringify({ ...result, head: `${position}:${previous.toString('hex')}` }));
  process.exit(result.ok ? 0 : 1);
}

main();
