// A client of coalloc, as docs/PROTOCOL.md describes it.

import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import * as zmq from "zeromq";

const PROTOCOL = 1;
const MAX_ANSWER_BYTES = 256 * 1024 * 1024;
const QUIET_MS = 5000; // a silence after which the end of the stream may have been lost
const AWAY_MS = 60_000; // how long the daemon may be away while events are followed
const PAGE = 1000;
const TOO_FAST_MS = { first: 50, longest: 1000, giveUp: 120_000 };
const ENDED = "job_ended";

/** The daemon did not do what was asked; `code` is one of the table of section 2. */
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** The daemon did not answer, so whether it did what was asked is not known. */
export class NoAnswer extends Error {}

/** Read a key's file: what a socket needs to speak CURVE. */
export async function readKey(path) {
  const key = JSON.parse(await readFile(path, "utf8"));
  if (key.format !== "coalloc-key/1") throw new Error(`${path}: is not a key file (coalloc-key/1)`);
  if (!key.server) throw new Error(`${path}: does not name the daemon's key`);
  return { curvePublicKey: key.public, curveSecretKey: key.secret, curveServerKey: key.server };
}

/** A connection for requests, and one for events once they are followed. */
export class Client {
  #dealer;
  #answers = new Map(); // by the id of the request: what waits for its answer
  #sending = Promise.resolve(); // a socket takes one message at a time
  #next = 1;
  #broken = null;

  /**
   * @param {object} options
   * @param {string} options.endpoint where the daemon answers
   * @param {string} options.events where it publishes
   * @param {object} [options.key] of readKey, where the daemon is in multi-user mode
   * @param {number} [options.timeoutMs] for one answer
   */
  constructor({ endpoint, events, key = {}, timeoutMs = 10_000 }) {
    Object.assign(this, { endpoint, publishes: events, key, timeoutMs });
    this.#dealer = new zmq.Dealer({ linger: 0, maxMessageSize: MAX_ANSWER_BYTES, ...key });
    // A refused handshake is told to the socket's monitor alone.
    for (const fault of ["auth", "protocol"]) {
      this.#dealer.events.on(`handshake:error:${fault}`, () => this.#fail(fault));
    }
    this.#dealer.connect(endpoint);
    this.#read();
  }

  close() {
    this.#fail("closed");
    this.#dealer.close();
  }

  /** Send a request; resolves to its answer, unless that is a refusal. */
  async ask(type, fields = {}, timeoutMs = this.timeoutMs) {
    const giveUp = Date.now() + TOO_FAST_MS.giveUp;
    for (let pause = TOO_FAST_MS.first; ; pause = Math.min(2 * pause, TOO_FAST_MS.longest)) {
      const answer = await this.#exchange({ ...fields, type }, timeoutMs);
      if (answer.type !== "refused") return answer;
      if (answer.code !== "too_fast" || Date.now() > giveUp) {
        throw new Refused(answer.code, answer.message);
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /**
   * Queue a rigid job; on return it is on the daemon's disk.
   * Sent again where no answer comes in time: the token makes that the same job.
   */
  async submit(argv, { procs = 1, job = {}, launch = {}, ...fields } = {}) {
    const body = {
      token: randomUUID(),
      job: { kind: "rigid", procs, ...job },
      launch: { argv, cwd: process.cwd(), env: process.env, ...launch },
      ...fields,
    };
    try {
      return await this.ask("submit", body);
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      return await this.ask("submit", body);
    }
  }

  /** End a job, waiting or running; the ids concerned. */
  async cancel(job) {
    return (await this.ask("cancel", { job })).jobs;
  }

  /**
   * All events behind a number, or those of one job, then those that happen, in order and without gaps.
   * The subscription stands before the store is read, so that nothing falls in between.
   */
  async *events({ since = 0, job = "" } = {}) {
    const watcher = new zmq.Subscriber({ linger: 0, receiveTimeout: QUIET_MS, ...this.key });
    const position = { last: since };
    try {
      watcher.connect(this.publishes);
      watcher.subscribe("event.");
      yield* this.#stored(position, job);
      for (;;) {
        const body = await heard(watcher);
        if (body?.seq === position.last + 1) {
          position.last = body.seq;
          if (!job || body.job === job) yield body;
        } else if (!body || body.welcome || body.seq > position.last) {
          // silence, subscribed anew, or something was lost: the store has what is missing
          yield* this.#stored(position, job);
        }
      }
    } finally {
      watcher.close();
    }
  }

  /** The events of one job up to its end. */
  async *follow(job) {
    for await (const event of this.events({ job })) {
      yield event;
      if (event.kind === ENDED) return;
    }
  }

  /** The events of the store behind a position, page after page; the position moves along. */
  async *#stored(position, job) {
    for (;;) {
      const { events, last } = await this.#patiently("events", { since: position.last, limit: PAGE, job });
      for (const event of events) {
        position.last = event.seq;
        yield event;
      }
      if (events.length < PAGE) {
        position.last = Math.max(position.last, last);
        return;
      }
    }
  }

  /** Ask again while the daemon is away: it may be being restarted. */
  async #patiently(type, fields) {
    for (const giveUp = Date.now() + AWAY_MS; ; ) {
      try {
        return await this.ask(type, fields);
      } catch (error) {
        if (!(error instanceof NoAnswer) || this.#broken || Date.now() > giveUp) throw error;
      }
    }
  }

  #exchange(body, timeoutMs) {
    const id = `${process.pid}-${this.#next++}`;
    const frame = JSON.stringify({ ...body, id, protocol: PROTOCOL });
    return new Promise((resolve, reject) => {
      if (this.#broken) return reject(new NoAnswer(this.#broken));
      const timer = setTimeout(() => {
        this.#answers.delete(id);
        reject(new NoAnswer(`no answer from ${this.endpoint} within ${timeoutMs / 1000} s`));
      }, timeoutMs);
      this.#answers.set(id, { resolve, reject, timer });
      // where nobody listens the message is kept, and the time limit tells
      this.#sending = this.#sending.then(() => this.#dealer.send(frame)).catch(() => {});
    });
  }

  async #read() {
    try {
      for await (const frames of this.#dealer) {
        const answer = JSON.parse(frames[0]);
        const waits = this.#answers.get(answer.id);
        if (!waits) continue; // its request was given up
        this.#answers.delete(answer.id);
        clearTimeout(waits.timer);
        waits.resolve(answer);
      }
    } catch (error) {
      this.#fail(`unreadable answer: ${error.message}`);
    }
  }

  #fail(why) {
    const words = {
      auth: `the daemon at ${this.endpoint} refuses this key`,
      protocol: `the daemon at ${this.endpoint} ends the connection: no key, or another daemon's`,
    };
    this.#broken = words[why] ?? why;
    for (const { reject, timer } of this.#answers.values()) {
      clearTimeout(timer);
      reject(new NoAnswer(this.#broken));
    }
    this.#answers.clear();
  }
}

/** The next publication; undefined after a silence. */
async function heard(watcher) {
  try {
    const [, frame] = await watcher.receive();
    return JSON.parse(frame);
  } catch (error) {
    if (error.code === "EAGAIN") return undefined;
    throw error;
  }
}
