// The charge activity of the orders example, executed in JavaScript. See main.go beside it.
//
//     npm ci && node worker.mjs nats://127.0.0.1:4222

import { Failure, Worker } from "./rondo.mjs";

const log = (...words) => console.log(...words);

const activities = {
  // charge takes money. The card "declined" is declined for good, "flaky" works at the second attempt, and "slow" takes until somebody cancels it.
  async charge({ card, cents }, { attempt, idempotencyKey, signal, instance }) {
    log("charge", instance, cents, "attempt", attempt);
    if (card === "declined") throw new Failure("card_declined", "the bank declines the card");
    if (card === "flaky" && attempt === 1) throw new Error("the bank does not answer");
    if (card === "slow") await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    return { payment: `payment-${idempotencyKey}`, by: "node" };
  },
};

const [servers = "nats://127.0.0.1:4222", prefix = "rondo"] = process.argv.slice(2);
const worker = await Worker.start({ servers, prefix, name: `node-${process.pid}`, activities, log });
log("ready");
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => worker.stop().then(() => log("ended")));
