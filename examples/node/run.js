#!/usr/bin/env node
// submit, follow, cancel: see README.md

import { parseArgs } from "node:util";
import { Client, NoAnswer, Refused, readKey } from "./coalloc.js";

const USAGE = `usage: run.js [options] submit [--procs N] [--time-limit SECONDS] -- COMMAND [ARGUMENT...]
       run.js [options] follow JOB
       run.js [options] cancel JOB
options: --endpoint, --events, --key FILE, --timeout SECONDS`;

const RUNTIME = "ipc:///run/coalloc";

class Usage extends Error {}

async function main() {
  const text = { type: "string" };
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      endpoint: { ...text, default: process.env.COALLOC_ENDPOINT ?? `${RUNTIME}/coalloc.sock` },
      events: { ...text, default: process.env.COALLOC_EVENTS ?? `${RUNTIME}/events.sock` },
      key: { ...text, default: process.env.COALLOC_KEY ?? "" },
      timeout: { ...text, default: "10" },
      procs: { ...text, default: "1" },
      "time-limit": text,
    },
  });
  const [verb, ...words] = positionals;
  const command = { submit, follow, cancel }[verb];
  const timeoutMs = 1000 * positive("--timeout", values.timeout);
  if (!command || words.length === 0 || (verb !== "submit" && words.length > 1)) {
    throw new Usage("a command and what it is for are wanted");
  }
  const client = new Client({
    endpoint: values.endpoint,
    events: values.events,
    key: values.key ? await readKey(values.key) : {},
    timeoutMs,
  });
  try {
    return await command(client, words, values);
  } finally {
    client.close();
  }
}

async function submit(client, argv, values) {
  const job = {};
  if (values["time-limit"]) job.time_limit = positive("--time-limit", values["time-limit"]);
  const answer = await client.submit(argv, { procs: positive("--procs", values.procs), job });
  console.log(answer.job);
  for (const warning of answer.warnings ?? []) console.error(`run.js: ${warning}`);
  return 0;
}

async function follow(client, [job]) {
  await client.ask("show", { job }); // there is such a job
  for await (const event of client.follow(job)) {
    console.log(JSON.stringify({ seq: event.seq, kind: event.kind, ...event.fields }));
    if (event.kind === "job_ended") return event.fields.exit_code ?? 1;
  }
  return 1;
}

async function cancel(client, [job]) {
  console.log((await client.cancel(job)).join(" "));
  return 0;
}

function positive(option, text) {
  const value = Number(text);
  if (!(value > 0 && Number.isFinite(value))) throw new Usage(`${option}: a number above 0, not ${text}`);
  return value;
}

try {
  process.exitCode = await main();
} catch (error) {
  const isUsage = error instanceof Usage || error.code?.startsWith?.("ERR_PARSE_ARGS");
  if (error instanceof TypeError && !isUsage) throw error;
  console.error(`run.js: ${error.message}`);
  if (isUsage) console.error(USAGE);
  process.exitCode = isUsage ? 2 : 1;
}
