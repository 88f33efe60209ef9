// The roofline: achieved flop/s of each operator, against the peak and the memory bandwidth.

import { useEffect, useRef, useState } from "preact/hooks";
import { Card } from "../base/card";
import { digits, show } from "../base/format";
import { scale } from "../base/scale";
import { hideTip, showTip } from "../base/tip";
import type { Roofline } from "../document";
import { type Box, boundsOf, clamped, placeNames, roofBoxes } from "./roof";

const HIGH = 340;
const NARROW = 480;
const EDGE = { left: 70, right: 16, top: 20, bottom: 44 };
const MOST = 200;
const NAMED = 5;

export function RooflineCard({ roofline }: { roofline: Roofline }) {
  const [place, setPlace] = useState(-1);
  const [wide, setWide] = useState(560);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // On a narrow page the picture is narrower, but its letters are as large.
    const observer = new ResizeObserver(() => setWide(box.current!.clientWidth < NARROW ? 350 : 560));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const real = roofline.points.filter((each) => each.intensity > 0 && each.flop_per_s > 0);
  const points = real.sort((a, b) => b.seconds - a.seconds).slice(0, MOST);
  const { peak_flop_per_s: peak, bandwidth_bytes_per_s: bandwidth } = roofline;
  const ridge = peak / bandwidth;
  const bounds = boundsOf(points, peak, bandwidth);
  const x = scale(...bounds.x, EDGE.left, wide - EDGE.right, true);
  const y = scale(...bounds.y, HIGH - EDGE.bottom, EDGE.top, true);
  const longest = points[0]?.seconds ?? 1;
  const marks = points.map((each) => ({
    name: each.name,
    x: x.at(clamped(each.intensity, bounds.x)),
    y: y.at(clamped(each.flop_per_s, bounds.y)),
    r: 4 + 12 * Math.sqrt(each.seconds / longest),
    beyond: clamped(each.intensity, bounds.x) !== each.intensity || clamped(each.flop_per_s, bounds.y) !== each.flop_per_s,
  }));
  const beyond = marks.filter((each) => each.beyond).length;
  const line = (index: number): string[] => {
    const each = points[index];
    const roof = Math.min(peak, bandwidth * each.intensity);
    return [
      each.name,
      `${show(each.seconds, "s")} per step, ${each.bound}-bound`,
      `${show(each.flop_per_s, "FLOP/s")} (${digits((100 * each.flop_per_s) / roof)} % of its roof)`,
      `${digits(each.intensity)} FLOP per byte`,
    ];
  };
  const low = Math.max(x.low, y.low / bandwidth);
  const move = (event: KeyboardEvent): void => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by || !points.length) return;
    event.preventDefault();
    event.stopPropagation();
    setPlace((place + by + points.length) % points.length);
  };
  return (
    <Card
      id="roofline"
      title="Roofline"
      reading={roofline.reading}
      twin={() => ({
        columns: ["operator", "bound by", "time per step", "FLOP/s", "FLOP/B"],
        rows: points.map((each) => [each.name, each.bound, show(each.seconds, "s"), show(each.flop_per_s, "FLOP/s"), digits(each.intensity)]),
      })}
    >
      <div ref={box}>
      <svg
        class="roofline"
        viewBox={`0 0 ${wide} ${HIGH}`}
        tabIndex={0}
        role="application"
        aria-label={`Roofline of ${points.length} operators; arrow keys go through them, longest first`}
        onKeyDown={move}
        onBlur={() => setPlace(-1)}
      >
        {x.ticks(wide / 80).map((tick) => (
          <g key={tick} class="tick">
            <path d={`M${x.at(tick)} ${EDGE.top}V${HIGH - EDGE.bottom}`} />
            <text x={x.at(tick)} y={HIGH - EDGE.bottom + 16} text-anchor="middle">{digits(tick)}</text>
          </g>
        ))}
        {y.ticks(6).map((tick) => (
          <g key={tick} class="tick">
            <path d={`M${EDGE.left} ${y.at(tick)}H${wide - EDGE.right}`} />
            <text x={EDGE.left - 6} y={y.at(tick) + 4} text-anchor="end">{show(tick, "FLOP/s").replace("FLOP/s", "")}</text>
          </g>
        ))}
        <text class="name" x={(EDGE.left + wide - EDGE.right) / 2} y={HIGH - 8} text-anchor="middle">FLOP per byte of memory traffic</text>
        <text class="name" x={-(EDGE.top + HIGH - EDGE.bottom) / 2} y={13} text-anchor="middle" transform="rotate(-90)">FLOP/s</text>
        <path class="roof" d={`M${x.at(low)} ${y.at(low * bandwidth)}L${x.at(ridge)} ${y.at(peak)}H${wide - EDGE.right}`} />
        <text class="roof-name" x={wide - EDGE.right - 4} y={y.at(peak) - 22} text-anchor="end">{show(peak, "FLOP/s")}, {roofline.precision}</text>
        <text class="roof-name" transform={slope(x.at(low), y.at(low * bandwidth), x.at(ridge), y.at(peak))}>{show(bandwidth, "B/s")} memory</text>
        {points.map((each, index) => (
          <Mark
            key={index}
            bound={each.bound}
            {...marks[index]}
            lit={place === index}
            on={{ onPointerEnter: (event) => showTip(event, line(index)), onPointerLeave: hideTip }}
          />
        )).reverse()}
        <Names marks={marks} wide={wide} roof={roofBoxes([x.at(low), y.at(low * bandwidth)], [x.at(ridge), y.at(peak)], wide - EDGE.right)} />
      </svg>
      </div>
      <p class="roofline-sentence" aria-live="polite">
        {place >= 0 ? line(place).join("; ") : <><i class="mark compute" /> compute-bound <i class="mark memory" /> memory-bound; larger marks take more of the step{beyond > 0 && `; ${beyond} hollow ${beyond === 1 ? "mark lies" : "marks lie"} beyond the edge`}</>}
      </p>
    </Card>
  );
}

function slope(x0: number, y0: number, x1: number, y1: number): string {
  const angle = (Math.atan2(y1 - y0, x1 - x0) * 180) / Math.PI;
  return `translate(${x0 + (x1 - x0) * 0.1},${y0 + (y1 - y0) * 0.1 - 13}) rotate(${angle})`;
}

interface MarkProps {
  bound: "compute" | "memory";
  x: number;
  y: number;
  r: number;
  beyond: boolean;
  lit: boolean;
  on: { onPointerEnter: (event: PointerEvent) => void; onPointerLeave: () => void };
}

function Mark({ bound, x, y, r, beyond, lit, on }: MarkProps) {
  const style = `point ${bound}${beyond ? " beyond" : ""}${lit ? " lit" : ""}`;
  if (bound === "compute") return <circle class={style} cx={x} cy={y} r={r} {...on} />;
  return <path class={style} d={`M${x} ${y - r * 1.2}L${x + r * 1.1} ${y + r * 0.8}H${x - r * 1.1}Z`} {...on} />;
}

interface Marked {
  name: string;
  x: number;
  y: number;
  r: number;
}

/** Names of the longest operators; of several at one place, the first and how many more. */
function Names({ marks, wide, roof }: { marks: Marked[]; wide: number; roof: Box[] }) {
  const under = roof[roof.length - 1].y1; // what is above the roof is not reached
  const groups: (Marked & { more: number })[] = [];
  for (const each of marks) {
    const near = groups.find((other) => Math.hypot(other.x - each.x, other.y - each.y) < 16);
    if (near) near.more++;
    else groups.push({ ...each, more: 0 });
  }
  const names = groups.slice(0, NAMED).map(({ name, more, ...at }) => ({ ...at, text: more ? `${name} and ${more} more` : name }));
  const taken = [...roof, ...marks.map(({ x, y, r }) => ({ x0: x - r, x1: x + r, y0: y - r, y1: y + r }))];
  const frame = { x0: EDGE.left + 2, x1: wide - EDGE.right, y0: under, y1: HIGH - EDGE.bottom };
  const places = placeNames(names, taken, frame);
  return (
    <g class="names" aria-hidden="true">
      {places.map((at, place) => at && <text key={place} x={at.x} y={at.y}>{names[place].text}</text>)}
    </g>
  );
}
