// Runs in browsers, in workers and in Node:
//
//     const model = await load();
//     const outputs = model.run({ name: new Float32Array(…), … });
//     const outputs = model.run({ name: new Float32Array(…), … }, { batch: 2, … });      where sizes are open
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

function placed(module, level, weights) {
  const { memory } = module, { sizes: names, inputs, outputs } = ABOUT, everything = [...inputs, ...outputs];
  const kind = argument => ARRAYS[argument.dtype] ?? Uint8Array;
  let at = module.__heap_base.value;
  const next = bytes => {
    const start = Math.ceil(at / 64) * 64;
    at = start + bytes + 64;
    return start;
  };
  const reserved = () => {
    const pages = Math.ceil(at / PAGE) - memory.buffer.byteLength / PAGE;
    if (pages <= 0) return;
    try {
      memory.grow(pages);
    } catch {
      throw new RangeError(`${ABOUT.name}: the arrays take ${at} bytes, which this engine does not have`);
    }
  };

  const words = everything.length + level.numbers + 2;
  const table = next(8 * words), told = next(8 * names.length);
  const extents = next(8 * (everything.reduce((sum, argument) => sum + argument.shape.length, 0) + level.numbers));
  const weightsAt = level.weightsBytes === null ? [] : [next(level.weightsBytes)], arenaAt = next(level.arenaBytes), arraysAt = at;
  reserved();
  if (weights) new Uint8Array(memory.buffer).set(weights, weightsAt[0]);

  /** Return the shapes of all arrays for some sizes, inputs first, and the numbers that the code is told. */
  function measured(sizes) {
    if (!names.length) return [everything.map(argument => argument.shape), []];
    const values = names.map(name => {
      if (!Number.isSafeInteger(sizes?.[name])) throw new TypeError(`${ABOUT.name}: the size ${name} is to be a whole number`);
      return BigInt(sizes[name]);
    });
    new BigInt64Array(memory.buffer, told, names.length).set(values);
    const code = module.sizes(told, extents);
    if (code) throw new RangeError(`${ABOUT.name}: ${level.refused[code]}`);
    let place = extents;
    const read = count => {
      const found = Array.from(new BigInt64Array(memory.buffer, place, count), Number);
      place += 8 * count;
      return found;
    };
    return [everything.map(argument => read(argument.shape.length)), read(level.numbers)];
  }

  let known = null, arrays = [];
  function arranged(sizes) {
    const key = JSON.stringify(names.map(name => sizes?.[name]));
    if (key === known) return;
    known = null;
    const [shapes, numbers] = measured(sizes);
    const counts = shapes.map(shape => shape.reduce((product, extent) => product * extent, 1));
    at = arraysAt;
    const starts = everything.map((argument, k) => next(counts[k] * argument.bytes));
    reserved();
    const order = [...starts.slice(inputs.length), ...starts.slice(0, inputs.length), ...weightsAt, ...numbers, arenaAt];
    new BigInt64Array(memory.buffer, table, order.length).set(order.map(BigInt));
    arrays = everything.map((argument, k) => ({ shape: shapes[k], view: new (kind(argument))(memory.buffer, starts[k], counts[k]) }));
    known = key;
  }

  function checked(input, { shape, view }, array) {
    if (!(array instanceof kind(input)) || array.length !== view.length) {
      throw new TypeError(`${ABOUT.name}: ${input.name} is to be ${kind(input).name} of ${view.length} elements, ${shape.join(" x ")}`);
    }
    return array;
  }
  return {
    sizes: names, inputs, outputs, target: level.target,
    /** Return the shapes of the inputs and of the outputs by name, for these sizes. */
    shapes(sizes) {
      const [found] = measured(sizes);
      const named = (side, first) => Object.fromEntries(side.map((argument, k) => [argument.name, found[first + k]]));
      return { inputs: named(inputs, 0), outputs: named(outputs, inputs.length) };
    },
    run(given, sizes) {
      arranged(sizes);
      inputs.forEach((input, k) => arrays[k].view.set(checked(input, arrays[k], given[input.name])));
      const code = module.run(table);
      if (code) throw new Error(`${ABOUT.name}: ${level.checks[code >> level.bits]?.[(code & (1 << level.bits) - 1) - 1] ?? `code ${code}`}`);
      return Object.fromEntries(outputs.map((output, k) => [output.name, arrays[inputs.length + k].view.slice()]));
    },
  };
}
