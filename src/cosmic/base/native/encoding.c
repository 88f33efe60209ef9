/* The nodes of a trace as messages of protobuf: as in `cosmic.traces.chakra.trace_writer`. */
#include <string.h>

#include "native.h"

enum { NUMBER = 0, ATTRIBUTE = 1, PIECE = 2, LIST = 3 };
enum { LONGEST_VARINT = 10, NO_ROOM = -1 };

typedef struct {
    int64_t kind;
    const int64_t *values; /* of a piece, its number; of a list, where it starts */
    const int64_t *ids;    /* of a list */
    int64_t unwritten;     /* the value that is not written */
    const uint8_t *bytes;  /* what comes first; of pieces, all of them */
    int64_t size;
    const int64_t *stops;  /* of pieces */
} Field;

static int64_t varint_size(uint64_t value) {
    int64_t size = 1;
    for (; value >= 0x80; value >>= 7) size++;
    return size;
}

static uint8_t *varint(uint8_t *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *out++ = (uint8_t)(value | 0x80);
    *out++ = (uint8_t)value;
    return out;
}

static uint8_t *copied(uint8_t *out, const uint8_t *from, int64_t size) {
    memcpy(out, from, (size_t)size);
    return out + size;
}

/* Write a field of a node; NULL if there is no room. Of an attribute, the second byte is its length without the value. */
static uint8_t *write_field(const Field *field, int64_t node, uint8_t *out, const uint8_t *end) {
    int64_t value = field->values[node];
    if (field->kind == LIST) {
        int64_t stop = field->values[node + 1], size = 0;
        if (value == stop) return out;
        for (int64_t at = value; at < stop; at++) size += varint_size((uint64_t)field->ids[at]);
        if (end - out < field->size + LONGEST_VARINT + size) return 0;
        out = varint(copied(out, field->bytes, field->size), (uint64_t)size);
        for (int64_t at = value; at < stop; at++) out = varint(out, (uint64_t)field->ids[at]);
        return out;
    }
    if (value == field->unwritten) return out;
    if (field->kind == PIECE) {
        int64_t start = value ? field->stops[value - 1] : 0, size = field->stops[value] - start;
        return end - out < size ? 0 : copied(out, field->bytes + start, size);
    }
    if (end - out < field->size + LONGEST_VARINT) return 0;
    uint8_t *start = out;
    out = varint(copied(out, field->bytes, field->size), (uint64_t)value);
    if (field->kind == ATTRIBUTE) start[1] += (uint8_t)(out - start - field->size);
    return out;
}

/* Write nodes from *first* on, each after its length, or without it where it is *bare*; note where each ends. Returns how
   many nodes there was room for. */
COSMIC_EXPORT int64_t cosmic_encode_nodes(const Field *fields, int64_t count, int64_t first, int64_t nodes,
                                          const uint8_t *bare, uint8_t *out, int64_t room, int64_t *stops) {
    const uint8_t *end = out + room;
    uint8_t *at = out;
    for (int64_t node = first; node < nodes; node++) {
        uint8_t *start = at + LONGEST_VARINT, *stop = end - at < LONGEST_VARINT ? 0 : start;
        for (int64_t field = 0; stop && field < count; field++) stop = write_field(fields + field, node, stop, end);
        if (!stop) return node - first;
        if (!bare[node]) at = varint(at, (uint64_t)(stop - start));
        memmove(at, start, (size_t)(stop - start));
        at += stop - start;
        stops[node] = at - out;
    }
    return nodes - first;
}
