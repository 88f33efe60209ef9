// Marks on canvases that mean the same in every view: ring for the front, star for the base, diamond for the best.

type Context = CanvasRenderingContext2D;

export function ring(context: Context, x: number, y: number, radius: number, colour: string): void {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.strokeStyle = colour;
  context.stroke();
}

export function diamond(context: Context, x: number, y: number, size: number, fill: string, edge: string): void {
  polygon(context, [[x, y - size], [x + size, y], [x, y + size], [x - size, y]], fill, edge);
}

export function star(context: Context, x: number, y: number, size: number, fill: string, edge: string): void {
  const corners = Array.from({ length: 10 }, (_, corner): [number, number] => {
    const far = corner % 2 ? size * 0.42 : size;
    const angle = (Math.PI * corner) / 5 - Math.PI / 2;
    return [x + far * Math.cos(angle), y + far * Math.sin(angle)];
  });
  polygon(context, corners, fill, edge);
}

export function cross(context: Context, x: number, y: number, size: number): void {
  context.moveTo(x - size, y - size);
  context.lineTo(x + size, y + size);
  context.moveTo(x - size, y + size);
  context.lineTo(x + size, y - size);
}

function polygon(context: Context, corners: [number, number][], fill: string, edge: string): void {
  context.beginPath();
  for (const [x, y] of corners) context.lineTo(x, y);
  context.closePath();
  context.lineWidth = 1.5;
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = edge;
  context.stroke();
}

/** Writes text with an edge in the colour of the ground, so that it can be read on anything. */
export function haloed(context: Context, text: string, x: number, y: number, ink: string, paper: string): void {
  context.lineJoin = "round";
  context.lineWidth = 3;
  context.strokeStyle = paper;
  context.strokeText(text, x, y);
  context.fillStyle = ink;
  context.fillText(text, x, y);
}

/** Returns as much of a text as fits, with an ellipsis where something is left out. */
export function fitting(context: Context, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
