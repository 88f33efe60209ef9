/* Where the containers of a JSON text's outermost object begin, end, and part their elements: as in
   `cosmic.traces.profiles.json_stream`. */
#include "native.h"

enum { OPENED = 1, PARTED = 2, CLOSED = 3 };

/* Notes marks of *text*, each its place times four plus what it is; returns how many, or -1 where a bracket closes
   nothing. *state* holds what goes on from block to block: the depth, whether a string is open, whether its next
   character is escaped; and, on return, how far it got: all of *text*, or less where *most* marks were noted. */
COSMIC_EXPORT int64_t cosmic_json_marks(const uint8_t *text, int64_t size, int64_t *state, int64_t *marks, int64_t most) {
    int64_t depth = state[0], open = state[1], escaped = state[2], count = 0, at = 0;
    for (; at < size && count < most; at++) {
        uint8_t c = text[at];
        if (open) {
            if (escaped) escaped = 0;
            else if (c == '\\') escaped = 1;
            else if (c == '"') open = 0;
        } else if (c == '"') {
            open = 1;
        } else if (c == '{' || c == '[') {
            if (++depth == 2) marks[count++] = at * 4 + OPENED;
        } else if (c == '}' || c == ']') {
            if (depth == 2) marks[count++] = at * 4 + CLOSED;
            if (--depth < 0) return -1;
        } else if (c == ',' && depth == 2) {
            marks[count++] = at * 4 + PARTED;
        }
    }
    state[0] = depth, state[1] = open, state[2] = escaped, state[3] = at;
    return count;
}
