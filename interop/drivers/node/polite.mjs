// Take a lock with the client of level 1, say its fence, and hold it until a line comes: `node polite.mjs URL NAME`.
import { once } from 'node:events';
import { createRequire } from 'node:module';
import path from 'node:path';
import { locked } from '../../clients/node/polite.mjs';

const Redis = createRequire(path.join(process.env.MODULES, 'package.json'))('ioredis');
const redis = new Redis(process.argv[2]);
await locked(redis, process.argv[3], async (fence) => {
  console.log(fence);
  await once(process.stdin, 'data');
});
process.exit(0);
