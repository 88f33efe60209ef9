// The positions of the members of a network dimension, in closed form for every topology.

export type Place = [number, number];

export interface Wire {
  from: number;
  to: number;
  /** Distance of the middle from the straight line, as a share of its length. */
  bend: number;
}

export interface Layout {
  /** Of every member, accelerators first, in a square of side 1. */
  places: Place[];
  /** How many are accelerators; the others are switches. */
  npus: number;
  wires: Wire[];
  /** Whether a few members are drawn for many. */
  symbolic: boolean;
}

/** Dimensions with more accelerators are drawn with a few of them. */
const MOST = 64;

/** Returns numbers whose product is `count`, as equal as they can be, smaller first: the sides of a grid. */
export function evenSplit(count: number, parts: number): number[] {
  if (parts === 1) return [count];
  for (let side = Math.floor(count ** (1 / parts) + 1e-9); side >= 1; side--)
    if (count % side === 0) return [side, ...evenSplit(count / side, parts - 1)];
  return [count];
}

/** Returns the prime factors of a number, smaller first. */
function factors(count: number): number[] {
  for (let factor = 2; factor * factor <= count; factor++)
    if (count % factor === 0) return [factor, ...factors(count / factor)];
  return count > 1 ? [count] : [];
}

function sidesOf(topology: string, npus: number): number[] | null {
  const grid = /^(?:mesh|torus)_([23])d$/.exec(topology);
  if (grid) return evenSplit(npus, Number(grid[1]));
  if (topology === "hypercube") return factors(npus);
  if (topology === "line") return [npus];
  return null;
}

/** Returns the positions of the members of one instance of a dimension, and their links. */
export function layOut(topology: string, npus: number, links: [number, number][]): Layout {
  if (!links.length || npus > MOST) return symbolic(topology, npus);
  const members = Math.max(npus, ...links.flat().map((member) => member + 1));
  const places = fitted(placesOf(topology, npus, members, links));
  return { places, npus, wires: wiresOf(topology, npus, places, links), symbolic: false };
}

function placesOf(topology: string, npus: number, members: number, links: [number, number][]): Place[] {
  const sides = sidesOf(topology, npus);
  if (sides) return gridPlaces(sides);
  if (topology === "hybrid_cube_mesh" && npus === 8) return cubeMesh();
  if (topology === "dragonfly" && members > npus) return dragonflyPlaces(npus, members, links);
  return members - npus > 1 ? treePlaces(npus, members, links) : circle(npus, members);
}

/** Accelerators round a circle, from the top on; a switch in the middle. */
function circle(npus: number, members: number): Place[] {
  const places: Place[] = [];
  const turn = npus === 4 ? Math.PI / 4 : 0;
  for (let member = 0; member < npus; member++) {
    const angle = (2 * Math.PI * member) / npus - Math.PI / 2 - turn;
    places.push([Math.cos(angle), Math.sin(angle)]);
  }
  while (places.length < members) places.push([0, 0]);
  return places;
}

/** A grid: across, down, into the depth, and whole copies beside each other for each side more. */
function gridPlaces(sides: number[]): Place[] {
  const [wide, high] = [sides[0] ?? 1, sides[1] ?? 1];
  // One long line is folded, back and forth.
  if (sides.length === 1 && wide > 8) {
    const across = Math.ceil(Math.sqrt(wide));
    return Array.from({ length: wide }, (_, member): Place => {
      const row = Math.floor(member / across);
      return [row % 2 ? across - 1 - (member % across) : member % across, row];
    });
  }
  const steps: Place[] = [[1, 0], [0, 1], [0.42, -0.36], [wide + 0.9, 0], [0, -(high + 0.9)], [0.9 * wide + 1.6, -0.7 * high - 1.2]];
  const count = sides.reduce((product, side) => product * side, 1);
  return Array.from({ length: count }, (_, member): Place => {
    let [x, y, rest] = [0, 0, member];
    sides.forEach((side, axis) => {
      const along = rest % side;
      rest = Math.floor(rest / side);
      x += along * steps[Math.min(axis, 5)][0];
      y += along * steps[Math.min(axis, 5)][1];
    });
    return [x, y];
  });
}

/** Two quads side by side. */
function cubeMesh(): Place[] {
  const quad: Place[] = [[0, 0], [1, 0], [1, 1], [0, 1]];
  return [...quad, ...quad.map(([x, y]): Place => [x + 1.9, y])];
}

/** Levels of switches above the accelerators, each centred over those below it. */
function treePlaces(npus: number, members: number, links: [number, number][]): Place[] {
  const level = new Array<number>(members).fill(0);
  for (let round = 0; round < 8; round++)
    for (const [from, to] of links) {
      const [low, high] = from < to ? [from, to] : [to, from];
      if (high >= npus && level[high] < level[low] + 1 && level[low] === round) level[high] = round + 1;
    }
  const rows = new Map<number, number>();
  const widest = Math.max(...level.map((each) => level.filter((other) => other === each).length));
  const deepest = Math.max(...level);
  return level.map((each): Place => {
    const count = level.filter((other) => other === each).length;
    const place = rows.get(each) ?? 0;
    rows.set(each, place + 1);
    return [((place + 0.5) * widest) / count, (deepest - each) * (widest / 3)];
  });
}

/** Groups of routers round a circle, the routers of each round a smaller one, and their accelerators outside. */
function dragonflyPlaces(npus: number, members: number, links: [number, number][]): Place[] {
  const routerOf = new Map(links.filter(([from, to]) => from < npus && to >= npus).map(([from, to]) => [from, to]));
  const perRouter = Math.max(1, [...routerOf.values()].filter((router) => router === npus).length);
  const routers = members - npus;
  const perGroup = Math.min(routers, 2 * perRouter);
  const groups = Math.ceil(routers / perGroup);
  const [reach, own] = [groups > 1 ? 1 : 0, groups > 1 ? Math.min(0.36, 1.6 / groups) : 0.6];
  const at = (router: number, out: number, turn = 0): Place => {
    const group = (2 * Math.PI * Math.floor(router / perGroup)) / groups - Math.PI / 2;
    const angle = group + (2 * Math.PI * ((router % perGroup) + turn)) / perGroup;
    return [reach * Math.cos(group) + out * Math.cos(angle), reach * Math.sin(group) + out * Math.sin(angle)];
  };
  const places: Place[] = [];
  for (let npu = 0; npu < npus; npu++) {
    const router = (routerOf.get(npu) ?? npus) - npus;
    places.push(at(router, own * 1.75, perRouter > 1 ? ((npu % perRouter) / (perRouter - 1) - 0.5) * 0.5 : 0));
  }
  for (let router = 0; router < routers; router++) places.push(at(router, own));
  return places;
}

/** Links that go round the edge of a torus, or past members of a grid, are bent out of the way. */
function wiresOf(topology: string, npus: number, places: Place[], links: [number, number][]): Wire[] {
  const bent = topology.startsWith("torus") || topology === "hypercube" || topology === "hybrid_cube_mesh";
  const distance = ([from, to]: [number, number]): number => Math.hypot(places[from][0] - places[to][0], places[from][1] - places[to][1]);
  const lengths = links.map(distance);
  const near = Math.min(...lengths);
  return links.map(([from, to], place) => {
    const long = bent && to < npus && lengths[place] > 1.6 * near && between(places, from, to);
    return { from, to, bend: long ? 0.16 : 0 };
  });
}

/** Whether another member lies on the straight line between two. */
function between(places: Place[], from: number, to: number): boolean {
  const [[x0, y0], [x1, y1]] = [places[from], places[to]];
  const length = Math.hypot(x1 - x0, y1 - y0);
  return places.some(([x, y], member) => {
    if (member === from || member === to) return false;
    const along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length ** 2;
    return along > 0.01 && along < 0.99 && Math.abs((x - x0) * (y1 - y0) - (y - y0) * (x1 - x0)) / length < 0.02;
  });
}

/** Returns a small instance of the topology that stands for a large one. */
function symbolic(topology: string, npus: number): Layout {
  const pairs: [number, number][] = [];
  const round = (count: number): void => {
    for (let member = 0; member < count; member++) pairs.push([member, (member + 1) % count]);
  };
  let shown = 12;
  const sides = /_3d|hypercube/.test(topology) ? [3, 3, 2] : [4, 4];
  if (topology === "fully_connected") {
    shown = 10;
    for (let one = 0; one < shown; one++) for (let other = one + 1; other < shown; other++) pairs.push([one, other]);
  } else if (/^(mesh|torus)|hypercube|hybrid/.test(topology)) {
    shown = sides.reduce((product, side) => product * side, 1);
    let stride = 1;
    for (const side of sides) {
      for (let member = 0; member < shown; member++) {
        const along = Math.floor(member / stride) % side;
        if (along + 1 < side) pairs.push([member, member + stride]);
        else if (topology.startsWith("torus") && side > 2) pairs.push([member - along * stride, member]);
      }
      stride *= side;
    }
  } else if (topology === "line") for (let member = 0; member + 1 < shown; member++) pairs.push([member, member + 1]);
  else if (topology === "fat_tree" || topology === "dragonfly") {
    // Four switches with three accelerators each; above them two more, or each joined to all others.
    for (let member = 0; member < shown; member++) pairs.push([member, shown + Math.floor(member / 3)]);
    for (let leaf = 0; leaf < 4; leaf++)
      if (topology === "fat_tree") pairs.push([shown + leaf, shown + 4], [shown + leaf, shown + 5]);
      else for (let other = leaf + 1; other < 4; other++) pairs.push([shown + leaf, shown + other]);
  } else if (topology === "switch") for (let member = 0; member < shown; member++) pairs.push([member, shown]);
  else round(shown);
  shown = Math.min(shown, npus);
  const members = Math.max(shown, ...pairs.flat().map((member) => member + 1));
  const gridded = /^(mesh|torus)|hypercube|hybrid/.test(topology);
  const places = fitted(gridded ? gridPlaces(sides) : placesOf(topology, shown, members, pairs));
  return { places, npus: shown, wires: wiresOf(topology, shown, places, pairs), symbolic: true };
}

/** Returns places moved and scaled into the unit square, as they are to each other. */
function fitted(places: Place[]): Place[] {
  const [xs, ys] = [places.map(([x]) => x), places.map(([, y]) => y)];
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const size = Math.max(right - left, bottom - top) || 1;
  const [dx, dy] = [(size - (right - left)) / 2, (size - (bottom - top)) / 2];
  return places.map(([x, y]) => [(x - left + dx) / size, (y - top + dy) / size]);
}

export interface Span {
  name: string;
  ranks: number;
  /** Between neighbours of a group, in members of the dimension. */
  stride: number;
}

/** Returns the stride between the ranks of each axis in a dimension; ep lies inside the ranks of other axes. */
export function strides(axes: { name: string; ranks: number }[]): Span[] {
  let stride = 1;
  return axes.map(({ name, ranks }) => {
    if (name === "ep") return { name, ranks, stride: strideOfOthers(axes) };
    const here = { name, ranks, stride };
    stride *= ranks;
    return here;
  });
}

function strideOfOthers(axes: { name: string; ranks: number }[]): number {
  let stride = 1;
  for (const { name, ranks } of axes) {
    if (name === "dp" || name === "cp") return stride;
    stride *= ranks;
  }
  return stride;
}

/** Whether a member of a dimension is in the group of member 0 along an axis. */
export function inGroup(member: number, { ranks, stride }: Span): boolean {
  return member % stride === 0 && member / stride < ranks;
}
