/* What a host's threads did, one event after the other: as in `cosmic.traces.profiles.event_linking`. */
#include "native.h"

/* The operator around each event; events of a thread follow each other in the order in which they began. */
COSMIC_EXPORT void cosmic_link_around(int64_t count, const int64_t *thread, const int64_t *start, const int64_t *end,
                                      const uint8_t *holds, int64_t *around) {
    int64_t top = -1;
    for (int64_t at = 0; at < count; at++) {
        if (at && thread[at] != thread[at - 1]) top = -1;
        while (top >= 0 && end[top] <= start[at]) top = around[top];
        around[at] = top;
        if (holds[at]) top = at;
    }
}

static int64_t larger(int64_t one, int64_t two) { return one > two ? one : two; }
static int64_t smaller(int64_t one, int64_t two) { return one < two ? one : two; }

/* When nodes begin and end, which share their threads' time. */
COSMIC_EXPORT void cosmic_link_cut(int64_t count, const int64_t *thread, const int64_t *follows, const int64_t *latest,
                                   const int64_t *held, const int64_t *woken, const int64_t *reach, int64_t *start,
                                   int64_t *end) {
    for (int64_t at = 0; at < count; at++) {
        int first = !at || thread[at] != thread[at - 1];
        int64_t begins = first ? start[at] : end[at - 1];
        if (woken[at]) {
            if (!first) end[at - 1] = larger(start[at - 1], smaller(end[at - 1], reach[at]));
            begins = first ? start[at] : larger(start[at], end[at - 1]);
        }
        begins = larger(begins, held[at]);
        start[at] = begins;
        end[at] = larger(begins, smaller(follows[at], latest[at]));
    }
}
