// Check the reference client's keys against docs/wire/names.json: `node names.mjs NAMES`.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { helperKey, keyOf } from '../../clients/node/pawlock.mjs';

const { names } = JSON.parse(readFileSync(process.argv[2], 'utf8'));
for (const { namespace, name, key, helpers } of names) {
  if (key === undefined) {
    assert.throws(() => keyOf(namespace, name), RangeError, `${namespace} ${name}`);
    continue;
  }
  assert.equal(keyOf(namespace, name), key);
  for (const [suffix, helper] of Object.entries(helpers)) assert.equal(helperKey(key, suffix), helper);
}
console.log(`${names.length} names`);
