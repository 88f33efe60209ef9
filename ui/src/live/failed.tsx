/** What went wrong, in a sentence, where a reader and a screen reader meet it. */
export function Failed({ text }: { text: string }) {
  return <p role="alert" class="failure" hidden={!text}>{text}</p>;
}
