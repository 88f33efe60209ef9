// A container: JSON and the binary numbers that it points to. Python's side: cosmic/report/container.py.
//
//   "CSMC"   u32 length of the JSON   JSON, UTF-8   the binary part
//
// Numbers wider than a byte are in byte planes (all lowest bytes, then all next ones …): that halves the gzipped size.

import type { Packed } from "./document";

const WIDTH = { u8: 1, u16: 2, u32: 4, f32: 4, f64: 8 } as const;

export type Numbers = Uint8Array | Uint16Array | Uint32Array | Float32Array | Float64Array;

export interface Container<T> {
  json: T;
  binary: Uint8Array;
}

export function open<T>(bytes: Uint8Array): Container<T> {
  const head = new DataView(bytes.buffer, bytes.byteOffset, 8);
  if (head.getUint32(0) !== 0x43534d43) throw new Error("not a container of COSMIC");
  const end = 8 + head.getUint32(4, true);
  const json = JSON.parse(new TextDecoder().decode(bytes.subarray(8, end))) as T;
  return { json, binary: bytes.subarray(end) };
}

export function unpack(packed: Packed, binary: Uint8Array): Numbers {
  const { offset, count, type } = packed;
  const width = WIDTH[type];
  const planes = binary.subarray(offset, offset + width * count);
  if (planes.length !== width * count) throw new Error("a container of COSMIC ends too early");
  if (width === 1) return planes;
  const bytes = new Uint8Array(width * count);
  for (let plane = 0; plane < width; plane++) {
    const from = plane * count;
    for (let place = 0, to = plane; place < count; place++, to += width) bytes[to] = planes[from + place];
  }
  if (type === "u16") return new Uint16Array(bytes.buffer);
  if (type === "u32") return new Uint32Array(bytes.buffer);
  return type === "f32" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
}
