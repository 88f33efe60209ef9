/** Whether a bundle can show serving: the script of a report about training leaves it out. */
declare const SERVING: boolean;

interface Window {
  /** The document of a page, unpacked by the lines that started its script. */
  cosmicDocument?: Promise<ArrayBuffer>;
}
