/** An error in one sentence, announced by screen readers. */
export function Failed({ text }: { text: string }) {
  return <p role="alert" class="failure" hidden={!text}>{text}</p>;
}
