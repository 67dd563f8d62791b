// Runs in browsers, in workers and in Node:
//
//     const model = await load();
//     const outputs = model.run({ name: new Float32Array(…), … });
//
// Arrays are row-major and typed as `ABOUT` says (f16 and bf16 by their bits). What `run` returns is the caller's.

const ABOUT = /*ABOUT*/ null;
const PAGE = 65536;
const ARRAYS = {
  f64: Float64Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array, i64: BigInt64Array, u64: BigUint64Array,
  i32: Int32Array, u32: Uint32Array, i16: Int16Array, u16: Uint16Array, i8: Int8Array, u8: Uint8Array, bool: Uint8Array,
};
const FUNCTIONS = { fmod: (x, y) => x % y };
const functionOf = name => FUNCTIONS[name] ?? Math[name] ?? FUNCTIONS[name.slice(0, -1)] ?? Math[name.slice(0, -1)];

async function beside(file) {
  const place = new URL(file, import.meta.url);
  if (place.protocol === "file:" && typeof process !== "undefined") return (await import("node:fs/promises")).readFile(place);
  return (await fetch(place)).arrayBuffer();
}

/** Return the model, for the first level of instructions that the engine has. `read(file)` returns the bytes of a file. */
export async function load(read = beside) {
  for (const level of ABOUT.levels) {
    const code = await read(level.code);
    if (!WebAssembly.validate(code)) continue;
    const env = new Proxy({}, { get: (_, name) => functionOf(name) });
    const { instance } = await WebAssembly.instantiate(code, { env });
    return placed(instance.exports, level, level.weights && new Uint8Array(await read(level.weights)));
  }
  throw new Error(`${ABOUT.name}: this engine has none of the instructions of ${ABOUT.levels.map(level => level.target).join(", ")}`);
}

function placed({ memory, run, __heap_base }, level, weights) {
  const starts = [];
  let at = __heap_base.value;
  for (const bytes of level.bases) {
    starts.push(at = Math.ceil(at / 64) * 64);
    at += bytes + 64;
  }
  const table = Math.ceil(at / 64) * 64;
  memory.grow(Math.max(0, Math.ceil((table + 8 * starts.length) / PAGE) - memory.buffer.byteLength / PAGE));
  new BigUint64Array(memory.buffer, table, starts.length).set(starts.map(BigInt));
  const { inputs, outputs } = ABOUT;
  if (weights) new Uint8Array(memory.buffer).set(weights, starts[outputs.length + inputs.length]);
  const kind = argument => ARRAYS[argument.dtype] ?? Uint8Array;
  const count = argument => argument.shape.reduce((product, extent) => product * extent, 1);
  const inputAt = inputs.map((input, k) => new (kind(input))(memory.buffer, starts[outputs.length + k], count(input)));
  const outputAt = outputs.map((output, k) => new (kind(output))(memory.buffer, starts[k], count(output)));

  function checked(input, array) {
    if (!(array instanceof kind(input)) || array.length !== count(input)) {
      throw new TypeError(`${ABOUT.name}: ${input.name} is to be ${kind(input).name} of ${count(input)} elements, ${input.shape.join(" x ")}`);
    }
    return array;
  }
  return {
    inputs, outputs, target: level.target,
    run(arrays) {
      inputs.forEach((input, k) => inputAt[k].set(checked(input, arrays[input.name])));
      const code = run(table);
      if (code) throw new Error(`${ABOUT.name}: ${level.checks[code >> level.bits]?.[(code & (1 << level.bits) - 1) - 1] ?? `code ${code}`}`);
      return Object.fromEntries(outputs.map((output, k) => [output.name, outputAt[k].slice()]));
    },
  };
}
