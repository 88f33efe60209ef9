/** Whether a bundle can show serving: the script of a report about training leaves it out. */
declare const SERVING: boolean;
