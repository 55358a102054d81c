// A worker for Rondo in JavaScript, on the protocol of docs/protocol.md. It takes the work of some activities, executes it, and answers. It has no
// sessions, and it does not note progress for the next worker; what it leaves out is what a worker may leave out.

import { connect, headers, millis, nanos } from "@nats-io/transport-node";
import { hostname } from "node:os";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";

// ---- Words in subjects.

const plain = /[A-Za-z0-9\-_~:@+=,/]/;

// encodeWord makes any text fit into one word of a subject: what is not plain is percent-encoded, byte by byte.
export function encodeWord(text) {
  let out = "";
  for (const byte of new TextEncoder().encode(text)) {
    const c = String.fromCharCode(byte);
    out += plain.test(c) ? c : "%" + byte.toString(16).toUpperCase().padStart(2, "0");
  }
  return out;
}

// decodeWord undoes it.
export function decodeWord(word) {
  const bytes = [];
  for (let i = 0; i < word.length; i++) {
    if (word[i] === "%") {
      bytes.push(parseInt(word.slice(i + 1, i + 3), 16));
      i += 2;
    } else {
      bytes.push(word.charCodeAt(i));
    }
  }
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

// tagWord is a tag in a subject: _ stands for none.
const tagWord = (tag) => (tag === "" ? "_" : tag === "_" ? "%5F" : encodeWord(tag));

// consumerOf is the name of the consumer from which the work of an activity is taken.
export function consumerOf(tag, activity) {
  const durable = (word) => word.replaceAll("/", "%2F").replaceAll("_", "%5F");
  const name = "w_" + (tag === "" || tag === "_" ? tagWord(tag) : durable(tagWord(tag))) + "_" + durable(encodeWord(activity));
  return name.length <= 200 ? name : name.slice(0, 183) + "_" + fnv1a(name);
}

// fnv1a is the FNV-1a hash of 64 bits, in hexadecimal.
function fnv1a(text) {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return hash.toString(16).padStart(16, "0");
}

// ---- Errors.

// Failure is an error that says more than a message: a type that orchestrations and retry policies can tell apart, and whether trying again cannot help.
export class Failure extends Error {
  constructor(type, message, { nonRetryable = false, details } = {}) {
    super(message);
    Object.assign(this, { type, nonRetryable, details });
  }
}

// Pending is what an activity throws when somebody else will complete it, by its token.
export class Pending extends Error {}

const describe = (e) => ({
  kind: e.kind ?? "application",
  type: e.type,
  message: String(e.message ?? e),
  non_retryable: e.nonRetryable || undefined,
  details: e.details,
  stack: e instanceof Failure ? undefined : e.stack,
});

// timeout is the failure of an attempt that took too long.
const timeout = (type, message) => Object.assign(new Failure(type, message), { kind: "timeout" });

// cancelled is why an activity is to stop when nobody waits for its result any more.
const cancelled = new Error("nobody waits for the result any more");
const stopping = new Error("the worker ends");

// ---- The worker.

// The servers' defaults, for consumers that nobody has made yet.
const workWait = 30_000;
const maxAckPending = 100_000;
const maxWaiting = 2048;

// Worker executes activities: an object of functions, activity(input, context). Run it with Worker.start, end it with stop.
export class Worker {
  static async start({ servers, name, prefix = "rondo", tag = "", slots = 10, activities, log = () => {}, ...options }) {
    const nc = await connect({ servers, name, ...options });
    const w = new Worker();
    const work = prefix.toUpperCase().replaceAll("-", "_") + "_TASKS";
    Object.assign(w, { nc, name, prefix, tag, slots, activities, log, work, js: jetstream(nc), held: new Map(), queues: [], ending: false, began: new Date() });
    w.jsm = await jetstreamManager(nc, { checkAPI: false });
    await w.listen();
    for (const activity of Object.keys(activities)) await w.take(activity);
    return w;
  }

  // listen hears which work was withdrawn. A notification is a hint: the stream is what counts.
  async listen() {
    const begin = `${this.prefix}.notification.withdrawn.`;
    this.nc.subscribe(`${begin}${tagWord(this.tag)}.>`, {
      callback: (err, m) => {
        const a = err ? undefined : this.held.get(`${this.prefix}.task.${m.subject.slice(begin.length)}`);
        if (a) this.doubt(a);
      },
    });
    this.nc.subscribe(`${this.prefix}.api.process`, { callback: (err, m) => err || m.respond(JSON.stringify(this.present())) });
    await this.nc.flush();
  }

  // present answers who asks which workers are there.
  present() {
    const holds = [...this.held.values()].map((a) => ({
      instance: decodeWord(a.instance), activity: a.activity, tag: this.tag || undefined, attempt: Number(a.m.headers.get("Rondo-Attempt")), since: new Date(a.since).toISOString(),
    }));
    return {
      kind: "worker", id: this.name, host: hostname(), build: `rondo.mjs, node ${process.version}`, began: this.began.toISOString(), now: new Date().toISOString(),
      works: {
        draining: this.ending || undefined, slots: this.slots * Object.keys(this.activities).length, used: holds.length, tags: this.tag || "without a tag",
        activities: Object.keys(this.activities), queues: Object.keys(this.activities).map((activity) => ({ activity, tag: this.tag || undefined })), holds,
      },
    };
  }

  // take begins to take the work of an activity.
  async take(activity) {
    const subject = `${this.prefix}.task.${tagWord(this.tag)}.${encodeWord(activity)}.>`;
    const durable = consumerOf(this.tag, activity);
    let info;
    try {
      info = await this.jsm.consumers.info(this.work, durable);
    } catch {
      info = await this.jsm.consumers.add(this.work, {
        durable_name: durable, filter_subject: subject, ack_policy: AckPolicy.Explicit, ack_wait: nanos(workWait),
        max_deliver: -1, max_ack_pending: maxAckPending, max_waiting: maxWaiting,
      });
    }
    const wait = millis(info.config.ack_wait);
    const consumer = await this.js.consumers.get(this.work, durable);
    const messages = await consumer.consume({ max_messages: this.slots, callback: (m) => this.arrive(m, activity, wait) });
    this.queues.push(messages);
  }

  // arrive takes an activity task in.
  arrive(m, activity, wait) {
    const rest = Date.parse(m.headers?.get("Rondo-Not-Before") || 0) - Date.now();
    if (this.ending || rest > 0) {
      m.nak(Math.max(rest, 0)); // it is early, or this worker is ending: it comes again
      return;
    }
    const words = m.subject.slice(this.prefix.length + 1).split("."); // work.<tag>.<activity>.<execution>-<event>-<incarnation>.<instance>
    const place = words[3].split("-").slice(0, 2).join("-"); // answers name the incarnation in their header only
    const a = { m, activity, place, instance: words[4], incarnation: m.headers.get("Rondo-Incarnation"), stop: new AbortController(), since: Date.now() };
    this.held.set(m.subject, a);
    // While it is held, the broker must hear of it before its time is over. Every other time, it is asked whether the work is still wanted.
    let beats = 0;
    const lease = setInterval(() => {
      m.working();
      if (beats++ % 2 === 0) this.doubt(a);
    }, wait / 3);
    a.done = this.execute(a)
      .catch((err) => {
        this.log("not answered; it comes again", m.subject, err.message);
        m.nak(1000);
      })
      .finally(() => {
        clearInterval(lease);
        if (this.held.get(m.subject) === a) this.held.delete(m.subject);
      });
  }

  // doubt asks the stream whether work is still there. If it is not, nobody waits for it.
  async doubt(a) {
    try {
      if ((await this.jsm.streams.getMessage(this.work, { seq: a.m.seq })) === null) a.stop.abort(cancelled);
    } catch (err) {
      if (err.code === 10037 || /no message found/i.test(err.message)) a.stop.abort(cancelled);
    }
  }

  // execute calls the activity, says what came of it, and acknowledges the work when that is stored.
  async execute(a) {
    const header = (name) => a.m.headers.get(name);
    const limits = [];
    const limit = (ms, type, message) => {
      if (ms <= 0) return a.stop.abort(timeout(type, message));
      limits.push(setTimeout(() => a.stop.abort(timeout(type, message)), Math.min(ms, 2 ** 31 - 1)));
    };
    if (header("Rondo-Deadline")) limit(Date.parse(header("Rondo-Deadline")) - Date.now(), "schedule_to_close", "it was not done within its time limit from schedule to close");
    if (header("Rondo-Start-By")) {
      const rest = Date.parse(header("Rondo-Start-By")) - Date.now();
      if (rest <= 0 && a.m.info.deliveryCount === 1) a.stop.abort(timeout("schedule_to_start", "no worker took it up in time"));
      await this.say(a, "task-begun");
    }
    const startToClose = header("Rondo-Start-To-Close");
    if (startToClose) limit(duration(startToClose), "start_to_close", `it took longer than ${startToClose}`);
    try {
      a.stop.signal.throwIfAborted();
      const body = a.m.data.length > 0 ? a.m.json() : undefined;
      const stopped = new Promise((_, reject) => a.stop.signal.addEventListener("abort", () => reject(a.stop.signal.reason)));
      const result = await Promise.race([this.activities[a.activity](body, this.contextOf(a)), stopped]);
      await this.say(a, "task-done", result === undefined ? "" : JSON.stringify(result));
    } catch (err) {
      if (err === cancelled) return this.log("cancelled", a.activity, decodeWord(a.instance)); // there is nothing to acknowledge
      if (err === stopping) return a.m.nak();
      if (err instanceof Pending) await this.say(a, "task-begun", "", { "Rondo-Pending": "true" }, "/pending");
      else await this.say(a, "task-failed", JSON.stringify(describe(err)));
    } finally {
      limits.forEach(clearTimeout);
      clearTimeout(a.beating);
    }
    a.m.ack();
  }

  // contextOf is what an activity is told besides its input.
  contextOf(a) {
    const header = (name) => a.m.headers.get(name);
    const silence = header("Rondo-Heartbeat-Timeout") ? duration(header("Rondo-Heartbeat-Timeout")) : 0;
    const heartbeat = () => {
      clearTimeout(a.beating);
      if (silence > 0) a.beating = setTimeout(() => a.stop.abort(timeout("heartbeat", "it gave no heartbeat in time")), silence);
    };
    heartbeat();
    return {
      instance: decodeWord(a.instance),
      attempt: Number(header("Rondo-Attempt")),
      idempotencyKey: header("Rondo-Idempotency-Key"),
      token: `${decodeWord(a.instance)}/${a.incarnation}/${a.place}`,
      signal: a.stop.signal, // it is aborted when nobody waits any more, when time is over, and when the worker ends
      heartbeat,
    };
  }

  // say tells the instance something about an activity task, and returns when that is stored. The id makes it the same when it is said again.
  async say(a, verb, body = "", extra = {}, suffix = "") {
    const h = headers();
    h.set("Rondo-Id", `${verb}/${a.place}/${a.incarnation}/${a.instance}${suffix}`);
    h.set("Rondo-Incarnation", a.incarnation);
    h.set("Rondo-Worker", this.name);
    for (const [name, value] of Object.entries(extra)) h.set(name, value);
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.js.publish(`${this.prefix}.${verb}.${a.place}.${a.instance}`, body, { headers: h });
      } catch (err) {
        if (attempt === 9) throw err;
        await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** Math.min(attempt, 4)));
      }
    }
  }

  // stop takes nothing new, lets what runs go on for a while, gives back the rest, and disconnects.
  async stop(grace = 5000) {
    this.ending = true;
    for (const q of this.queues) q.stop();
    const running = [...this.held.values()];
    const over = setTimeout(() => running.forEach((a) => a.stop.abort(stopping)), grace);
    await Promise.all(running.map((a) => a.done));
    clearTimeout(over);
    await this.nc.drain();
  }
}

// duration reads what Go writes: 1h2m3.5s, 200ms.
export function duration(text) {
  const unit = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, "µs": 0.001, us: 0.001, ns: 0.000001 };
  let total = 0;
  for (const [, n, u] of text.matchAll(/([0-9.]+)(h|ms|m|s|µs|us|ns)/g)) total += Number(n) * unit[u];
  return total;
}
