// A field of a form with its label, and a note.

interface FieldProps {
  label: string;
  for: string;
  note?: string;
  children: preact.ComponentChildren;
}

export function Field({ label, for: id, note, children }: FieldProps) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children}
      {note && <small>{note}</small>}
    </div>
  );
}
