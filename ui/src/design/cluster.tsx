// The cluster: every network dimension with its links, its groups and its utilization.

import { useState } from "preact/hooks";
import { Card, type Twin } from "../base/card";
import { count, show } from "../base/format";
import type { Cluster, NetworkDimension, ParallelAxis } from "../document";
import { inGroup, type Layout, layOut, type Span, strides } from "./layout";

const SIZE = 240;
const EDGE = 34;
const COLOURS = 5;

export function ClusterCard({ cluster }: { cluster: Cluster }) {
  const [held, setHeld] = useState("");
  const [over, setOver] = useState("");
  const lit = over || held;
  const axis = cluster.axes.find((each) => each.name === lit);
  const fastest = Math.max(...cluster.dims.map(linkBandwidth));
  return (
    <Card id="cluster" title="The cluster" reading={cluster.reading} wide twin={() => clusterTwin(cluster)}>
      <div class="axes" role="group" aria-label="parallel axes">
        {cluster.axes.map((each, place) => (
          <button
            key={each.name}
            type="button"
            class="axis"
            aria-pressed={held === each.name}
            onClick={() => setHeld(held === each.name ? "" : each.name)}
            onPointerEnter={() => setOver(each.name)}
            onPointerLeave={() => setOver("")}
            onFocus={() => setOver(each.name)}
            onBlur={() => setOver("")}
          >
            <Swatch place={place} /> <b>{each.name} {count(each.size)}</b> {each.label}
          </button>
        ))}
        <UseScale />
      </div>
      <p class="axis-sentence" aria-live="polite">{axis ? axisSentence(cluster, axis) : groupSentence(cluster)}</p>
      <div class="dimensions">
        {cluster.dims.map((_, place) => (
          <DimensionView key={place} cluster={cluster} place={place} fastest={fastest} lit={lit} />
        ))}
      </div>
    </Card>
  );
}

function groupSentence({ npus, accelerator }: Cluster): string {
  const filled = "Filled members are the group of accelerator 0 on each axis";
  return `${count(npus)} × ${accelerator}. ${filled}; from dimension 2 on, a box is a whole instance of the dimension before.`;
}

export function axisSentence({ dims }: Cluster, { name, label, size }: ParallelAxis): string {
  const parts = dims.flatMap((dim, place) => {
    const here = dim.axes.find((each) => each.name === name);
    return here ? [`${here.ranks} of the ${dim.npus} members of dimension ${place + 1}`] : [];
  });
  const loads = dims.flatMap((dim) => dim.load.filter((each) => each.axis === name));
  const bytes = loads.reduce((sum, each) => sum + each.bytes, 0);
  const seconds = loads.reduce((sum, each) => sum + each.seconds, 0);
  const lies = parts.length ? `${parts.join(" × ")}` : "no dimension by itself";
  const sends =
    bytes > 0
      ? ` Each accelerator sends ${show(bytes, "B")} per step, in ${show(seconds, "s")} of communication.`
      : " It has no communication.";
  return `${name}, ${label}: ${count(size)} ranks over ${lies}.${sends}`;
}

/** Returns the bandwidth of one link: an accelerator's bandwidth divided by its links. */
function linkBandwidth({ npus, links, bandwidth_bytes_per_s }: NetworkDimension): number {
  const own = links.filter(([from, to]) => from === 0 || to === 0).length;
  return bandwidth_bytes_per_s / Math.max(1, own || (npus > 2 ? 2 : 1));
}

interface DimensionProps {
  cluster: Cluster;
  place: number;
  fastest: number;
  lit: string;
}

function DimensionView({ cluster, place, fastest, lit }: DimensionProps) {
  const dim = cluster.dims[place];
  const before = cluster.dims.slice(0, place).reduce((product, each) => product * each.npus, 1);
  const layout = layOut(dim.topology, dim.npus, dim.links);
  const within = cluster.dims[place - 1];
  const inner = within ? layOut(within.topology, within.npus, within.links) : null;
  const width = 1.2 + 5 * Math.sqrt(linkBandwidth(dim) / fastest);
  const spans = strides(dim.axes);
  const use = `${Math.round(100 * dim.utilization)}%`;
  const here = !lit || spans.some((span) => span.name === lit);
  const most = Math.max(...dim.load.map((each) => each.bytes), 1);
  return (
    <figure class={here ? "dimension" : "dimension away"} tabIndex={0} aria-label={dimensionSentence(dim, place)}>
      <figcaption>
        <b>{place + 1}</b> {dim.label}
        <span class="faint"> {place ? `of ${count(before)} each` : "accelerators"}</span>
      </figcaption>
      <svg viewBox={`0 0 ${SIZE} ${SIZE}`} aria-hidden="true" style={{ "--use": use }}>
        <Wires layout={layout} width={width} />
        {layout.places.map(([x, y], member) => (
          <Member
            key={member}
            x={at(x)}
            y={at(y)}
            size={memberSize(layout)}
            member={member}
            layout={layout}
            inner={inner}
            spans={spans}
            order={cluster.axes.map((axis) => axis.name)}
            lit={lit}
          />
        ))}
        {layout.symbolic && <text x={SIZE - 4} y={SIZE - 6} text-anchor="end" class="many">×{count(dim.npus)}</text>}
      </svg>
      <Bands cluster={cluster} spans={spans} npus={dim.npus} lit={lit} />
      <div class="use">
        <span class="track" aria-hidden="true">
          <span style={{ width: `${Math.min(100, 100 * dim.utilization)}%`, "--use": use }} />
        </span>
        <span class="number">{show(dim.utilization, "share")}</span> used
      </div>
      <dl>
        <dt>bandwidth</dt><dd class="number">{show(dim.bandwidth_bytes_per_s, "B/s")}</dd>
        <dt>latency</dt><dd class="number">{show(dim.latency_s, "s")}</dd>
        <dt>algorithm</dt><dd>{dim.algorithm.replaceAll("_", " ")}</dd>
      </dl>
      <ul class="loads">
        {dim.load.map((each, line) => (
          <li key={line} class={lit && each.axis !== lit ? "away" : ""}>
            <Swatch place={cluster.axes.findIndex((axis) => axis.name === each.axis)} /> {each.label}
            <span class="number">{show(each.bytes, "B")} · {show(each.seconds, "s")}</span>
            <span class="track" aria-hidden="true">
              <span class={`axis-${tint(cluster, each.axis)}`} style={{ width: `${(100 * each.bytes) / most}%` }} />
            </span>
          </li>
        ))}
        {!dim.load.length && <li class="faint">no traffic</li>}
      </ul>
    </figure>
  );
}

function tint(cluster: Cluster, name: string): number {
  const place = cluster.axes.findIndex((axis) => axis.name === name);
  return place < 0 ? COLOURS : Math.min(place, COLOURS);
}

function Swatch({ place }: { place: number }) {
  return <span class={`swatch axis-${place < 0 ? COLOURS : Math.min(place, COLOURS)}`} aria-hidden="true" />;
}

function at(share: number): number {
  return EDGE + share * (SIZE - 2 * EDGE);
}

/** The side of a member: as large as its neighbours allow. */
function memberSize(layout: Layout): number {
  return Math.max(7, Math.min(40, 0.62 * nearest(layout) * (SIZE - 2 * EDGE)));
}

/** How near the nearest two accelerators are, as a share of the picture. */
function nearest({ places, npus }: Layout): number {
  let near = 1;
  for (let one = 0; one < npus; one++)
    for (let other = one + 1; other < npus; other++)
      near = Math.min(near, Math.max(Math.abs(places[one][0] - places[other][0]), Math.abs(places[one][1] - places[other][1])));
  return near;
}

function Wires({ layout, width }: { layout: Layout; width: number }) {
  const thick = Math.min(width, layout.wires.length > 60 ? 1.2 : layout.wires.length > 24 ? 2.4 : 7);
  return (
    <g class="wires" stroke-width={thick}>
      {layout.wires.map(({ from, to, bend }, place) => {
        const [[x0, y0], [x1, y1]] = [layout.places[from], layout.places[to]].map(([x, y]) => [at(x), at(y)]);
        const [x, y] = [(x0 + x1) / 2 + bend * (y1 - y0) * 2, (y0 + y1) / 2 - bend * (x1 - x0) * 2];
        return <path key={place} class={bend ? "round" : ""} d={bend ? `M${x0} ${y0}Q${x} ${y} ${x1} ${y1}` : `M${x0} ${y0}L${x1} ${y1}`} />;
      })}
    </g>
  );
}

interface MemberProps {
  x: number;
  y: number;
  size: number;
  member: number;
  layout: Layout;
  inner: Layout | null;
  spans: Span[];
  /** Names of the axes, in the order of their colours. */
  order: string[];
  lit: string;
}

function Member({ x, y, size, member, layout, inner, spans, order, lit }: MemberProps) {
  if (member >= layout.npus) {
    const few = layout.places.length - layout.npus < 7;
    const [wide, high] = few ? [Math.max(22, size), 15] : [13, 9];
    return (
      <g class="member switch">
        <rect x={x - wide / 2} y={y - high / 2} width={wide} height={high} rx="3" />
        {few && <text x={x} y={y + 3.5} text-anchor="middle">sw</text>}
      </g>
    );
  }
  const groups = spans.filter((span) => inGroup(member, span) && (!lit || span.name === lit));
  const stripe = size / Math.max(1, groups.length);
  return (
    <g class="member">
      <rect class="ground" x={x - size / 2} y={y - size / 2} width={size} height={size} rx="3" />
      {groups.map((span, place) => (
        <rect
          key={span.name}
          class={`axis-${Math.min(order.indexOf(span.name), COLOURS)}`}
          x={x - size / 2 + place * stripe}
          y={y - size / 2}
          width={stripe}
          height={size}
          rx={groups.length > 1 ? 0 : 3}
        />
      ))}
      {inner && size >= 15 && <Inside inner={inner} x={x} y={y} size={size} filled={groups.length > 0} />}
      <rect class="frame" x={x - size / 2} y={y - size / 2} width={size} height={size} rx="3" />
      {!inner && size >= 15 && <text class={groups.length ? "on" : ""} x={x} y={y + 4} text-anchor="middle">{member}</text>}
    </g>
  );
}

/** An instance of the dimension before, drawn small. */
function Inside({ inner, x, y, size, filled }: { inner: Layout; x: number; y: number; size: number; filled: boolean }) {
  const spread = size * 0.62;
  const dot = Math.max(0.9, Math.min(size / 11, 0.42 * spread * nearest(inner)));
  return (
    <g class={filled ? "inside on" : "inside"}>
      {inner.places.slice(0, inner.npus).map(([px, py], place) => (
        <circle key={place} cx={x + (px - 0.5) * spread} cy={y + (py - 0.5) * spread} r={dot} />
      ))}
    </g>
  );
}

/** The placement of each axis on the members: a row of cells, in which those of one group are filled. */
function Bands({ cluster, spans, npus, lit }: { cluster: Cluster; spans: Span[]; npus: number; lit: string }) {
  if (!spans.length) return <p class="faint band">no axis here</p>;
  return (
    <div class="bands">
      {spans.map((span) => (
        <div key={span.name} class={lit && lit !== span.name ? "band away" : "band"}>
          <span class="band-name">{span.name} {span.ranks}</span>
          <svg viewBox={`0 0 ${npus * 10} 10`} preserveAspectRatio="none" aria-hidden="true">
            <path class="ground" d={cellsPath(npus, (cell) => !inGroup(cell, span))} />
            <path class={`axis-${tint(cluster, span.name)}`} d={cellsPath(npus, (cell) => inGroup(cell, span))} />
          </svg>
          <span class="faint">{span.ranks >= npus ? "all" : `of ${npus}`}</span>
        </div>
      ))}
    </div>
  );
}

/** Dimensions with more members have no room between the cells of a strip. */
const MOST_APART = 96;

/** Returns a strip with a cell for each member of a dimension, of which some are drawn: cells of ten units each. */
export function cellsPath(members: number, drawn: (cell: number) => boolean): string {
  const gap = members > MOST_APART ? 0 : 0.6;
  let path = "";
  for (let cell = 0; cell < members; cell++) {
    if (!drawn(cell)) continue;
    const from = cell;
    if (!gap) while (cell + 1 < members && drawn(cell + 1)) cell++; // cells that touch are one
    const wide = 10 * (cell + 1 - from) - 2 * gap;
    path += `M${10 * from + gap} 0.6h${wide}v8.8h${-wide}z`;
  }
  return path;
}

function UseScale() {
  return (
    <span class="use-scale">
      links: wider is faster; used <span class="number">0</span>
      <span class="ramp" aria-hidden="true" />
      <span class="number">100 %</span>
    </span>
  );
}

export function dimensionSentence(dim: NetworkDimension, place: number): string {
  const axes = dim.axes.map((axis) => `${axis.name} ${axis.ranks}`).join(", ") || "no axis";
  const speed = `${show(dim.bandwidth_bytes_per_s, "B/s")}, ${show(dim.latency_s, "s")}, ${dim.algorithm.replaceAll("_", " ")}`;
  return `Dimension ${place + 1}: ${dim.label}, ${speed}, holds ${axes}, ${show(dim.utilization, "share")} used`;
}

function clusterTwin({ dims }: Cluster): Twin {
  const network = ["dimension", "network", "NPUs", "bandwidth", "latency", "algorithm", "axes", "used"];
  const columns = [...network, "traffic", "bytes per step", "seconds per step"];
  const rows = dims.flatMap((dim, place) => {
    const axes = dim.axes.map((axis) => `${axis.name} ${axis.ranks}`).join(", ");
    const speed = [show(dim.bandwidth_bytes_per_s, "B/s"), show(dim.latency_s, "s"), dim.algorithm];
    const own = [place + 1, dim.label, dim.npus, ...speed, axes, show(dim.utilization, "share")];
    const loads = dim.load.length ? dim.load : [{ label: "none", axis: "", bytes: 0, seconds: 0 }];
    return loads.map(({ label, axis, bytes, seconds }) => [...own, axis ? `${label} (${axis})` : label, show(bytes, "B"), show(seconds, "s")]);
  });
  return { columns, rows };
}
