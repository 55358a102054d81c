// A worker for the test: its activities do what the charge of the shop never does.

import { consumerOf, decodeWord, encodeWord, Pending, Worker } from "./rondo.mjs";

const [servers, queues] = process.argv.slice(2);
for (const { tag, activity } of JSON.parse(queues)) {
  console.log("name", consumerOf(tag, activity), encodeWord(activity), decodeWord(encodeWord(activity)) === activity);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

await Worker.start({
  servers,
  name: "odd",
  tag: "odd",
  log: (...words) => console.log(...words),
  activities: {
    hang: () => new Promise(() => {}),
    silent: () => new Promise(() => {}),
    later: (_, { token }) => {
      console.log("token", token);
      throw new Pending();
    },
    beat: async (times, { heartbeat }) => {
      for (let i = 0; i < times; i++) {
        await pause(50);
        heartbeat();
      }
      return times;
    },
  },
});
console.log("ready");
