/* The elements of a long JSON array, objects, as rows of integers: as in `cosmic.traces.profiles.json_stream`.

   What is not as usual (an escaped character, a number with an exponent, a value of another type, a syntax error) is not
   judged here: its row is marked, and Python decodes the element again. */
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "native.h"

enum { TEXT = 0, RAW = 1, WHOLE = 2, TIME = 3, FUNCTION = 4 };                /* kinds of columns */
enum { START = 0, STOP = 1, IRREGULAR = 2, FIRST = 3 };                       /* columns of every row */
enum { MORE = 0, CLOSED = 1, FULL = 2, BROKEN = 3 };                          /* why it stopped */
enum { CUT = -1, WRONG = -2, NO_ROOM = -3 };                                  /* the text ends; a syntax error */
enum { DEEPEST = 60, LONGEST_KEY = 64, MICRO = 1000, MOST_DIGITS = 18, TIME_DIGITS = 16 };
static const int64_t MOST_MICROS = 2000000000000000; /* as in `cosmic.traces.profiles.kineto` */
#define ABSENT INT64_MIN

typedef struct {
    uint8_t *bytes;
    int64_t room, used;
    int64_t *stops;
    uint64_t *hashes;
    int64_t most, count;
    int64_t *slots; /* numbers of texts plus one, by hash */
    int64_t mask;
} Texts;

typedef struct {
    const uint8_t *text;
    int64_t size, at, parted; /* parted: whether an element must follow */
    const uint8_t *keys;
    const int64_t *key_stops, *key_levels, *key_kinds;
    int64_t key_count;
    const uint8_t *nested; /* the key of the object whose keys are of level 1 */
    int64_t nested_size;
    int64_t *rows;
    int64_t width, most, count;
    Texts *texts;
} Rows;

/* Columns, one bit each, by what is seen first of a key. */
typedef struct {
    uint64_t first[2][256]; /* by level and first byte */
    uint64_t size[LONGEST_KEY];
} Columns;

/* ------------------------------------------------------------------------------------------------- texts */

static uint64_t hash_of(const uint8_t *text, int64_t size) {
    uint64_t hash = 0x9E3779B97F4A7C15u ^ (uint64_t)size;
    int64_t at = 0;
    for (; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, text + at, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    uint64_t word = 0;
    memcpy(&word, text + at, (size_t)(size - at));
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return hash ^ hash >> 29;
}

/* The number of a text, which is added if it is new; -1 if there is no room. */
static int64_t number_of(Texts *texts, const uint8_t *text, int64_t size) {
    uint64_t hash = hash_of(text, size);
    int64_t slot = (int64_t)(hash >> 7) & texts->mask;
    for (; texts->slots[slot]; slot = (slot + 1) & texts->mask) {
        int64_t number = texts->slots[slot] - 1;
        if (texts->hashes[number] != hash) continue;
        int64_t start = number ? texts->stops[number - 1] : 0;
        if (texts->stops[number] - start == size && !memcmp(texts->bytes + start, text, (size_t)size)) return number;
    }
    if (texts->count == texts->most || texts->used + size > texts->room) return -1;
    memcpy(texts->bytes + texts->used, text, (size_t)size);
    texts->used += size;
    texts->stops[texts->count] = texts->used;
    texts->hashes[texts->count] = hash;
    texts->slots[slot] = ++texts->count;
    return texts->count - 1;
}

COSMIC_EXPORT int64_t cosmic_texts_number(Texts *texts, const uint8_t *text, int64_t size) {
    return number_of(texts, text, size);
}

/* Fill the slots, which were made anew. */
COSMIC_EXPORT void cosmic_texts_rehash(Texts *texts) {
    for (int64_t number = 0; number < texts->count; number++) {
        int64_t slot = (int64_t)(texts->hashes[number] >> 7) & texts->mask;
        while (texts->slots[slot]) slot = (slot + 1) & texts->mask;
        texts->slots[slot] = number + 1;
    }
}

/* ------------------------------------------------------------------------------------------------- JSON */

static int64_t space(const uint8_t *text, int64_t at, int64_t size) {
    while (at < size && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) at++;
    return at;
}

static int64_t escape(const uint8_t *text, int64_t at, int64_t size) {
    if (at + 1 >= size) return CUT;
    if (text[at + 1] != 'u') return memchr("\"\\/bfnrt", text[at + 1], 8) ? at + 2 : WRONG;
    if (at + 6 > size) return CUT;
    for (int digit = 2; digit < 6; digit++) {
        uint8_t c = text[at + digit] | 0x20;
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return WRONG;
    }
    return at + 6;
}

#define ONES 0x0101010101010101u
#define HAS_ZERO(word) (((word) - ONES) & ~(word) & (ONES << 7))

/* Where a string ends, from behind its first quote to behind its last; *escapes* is set if it has any. */
static inline int64_t string(const uint8_t *text, int64_t at, int64_t size, int *escapes) {
    for (;;) {
#ifdef __SSE2__
        while (at + 16 <= size) {
            __m128i word = _mm_loadu_si128((const __m128i *)(text + at));
            __m128i is_quote = _mm_cmpeq_epi8(word, _mm_set1_epi8('"'));
            int found = _mm_movemask_epi8(_mm_or_si128(is_quote, _mm_cmpeq_epi8(word, _mm_set1_epi8('\\'))));
            if (found) {
                at += __builtin_ctz((unsigned)found);
                break;
            }
            at += 16;
        }
#elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        while (at + 8 <= size) {
            uint64_t word;
            memcpy(&word, text + at, 8);
            uint64_t found = HAS_ZERO(word ^ (ONES * '"')) | HAS_ZERO(word ^ (ONES * '\\'));
            if (found) {
                at += __builtin_ctzll(found) >> 3;
                break;
            }
            at += 8;
        }
#endif
        while (at < size && text[at] != '"' && text[at] != '\\') at++;
        if (at >= size) return CUT;
        if (text[at] == '"') return at + 1;
        *escapes = 1;
        at = escape(text, at, size);
        if (at < 0) return at;
    }
}

static int is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static int64_t number(const uint8_t *text, int64_t at, int64_t size) {
    if (text[at] == '-') at++;
    if (at >= size) return CUT;
    if (!is_digit(text[at])) return WRONG;
    if (text[at] == '0' && at + 1 < size && is_digit(text[at + 1])) return WRONG;
    while (at < size && is_digit(text[at])) at++;
    if (at < size && text[at] == '.') {
        if (++at >= size) return CUT;
        if (!is_digit(text[at])) return WRONG;
        while (at < size && is_digit(text[at])) at++;
    }
    if (at < size && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        if (at < size && (text[at] == '+' || text[at] == '-')) at++;
        if (at >= size) return CUT;
        if (!is_digit(text[at])) return WRONG;
        while (at < size && is_digit(text[at])) at++;
    }
    return at < size ? at : CUT;
}

static int64_t literal(const uint8_t *text, int64_t at, int64_t size) {
    const char *word = text[at] == 't' ? "true" : text[at] == 'f' ? "false" : "null";
    int64_t length = (int64_t)strlen(word);
    if (at + length > size) return CUT;
    return memcmp(text + at, word, (size_t)length) ? WRONG : at + length;
}

/* Where a value ends. */
static int64_t value(const uint8_t *text, int64_t at, int64_t size) {
    uint64_t objects = 0; /* of the containers around, the innermost last: whether it is an object */
    int depth = 0, escapes;
    for (;;) {
        at = space(text, at, size);
        if (at >= size) return CUT;
        uint8_t c = text[at];
        if (c == '"') at = string(text, at + 1, size, &escapes);
        else if (is_digit(c) || c == '-') at = number(text, at, size);
        else if (c == '[' || c == '{') {
            if (++depth > DEEPEST) return WRONG;
            objects = objects << 1 | (c == '{');
            at = space(text, at + 1, size);
            if (at >= size) return CUT;
            if (text[at] != (c == '{' ? '}' : ']')) {
                if (c == '[') continue;
                goto key;
            }
            at++, depth--, objects >>= 1;
        } else if (c == 't' || c == 'f' || c == 'n') at = literal(text, at, size);
        else return WRONG;
        if (at < 0) return at;
        for (;;) { /* after a value */
            if (!depth) return at;
            at = space(text, at, size);
            if (at >= size) return CUT;
            c = text[at++];
            if (c == ',') break;
            if (c != (objects & 1 ? '}' : ']')) return WRONG;
            depth--, objects >>= 1;
        }
        if (!(objects & 1)) continue;
        at = space(text, at, size);
        if (at >= size) return CUT;
    key:
        if (text[at] != '"') return WRONG;
        at = string(text, at + 1, size, &escapes);
        if (at < 0) return at;
        at = space(text, at, size);
        if (at >= size) return CUT;
        if (text[at++] != ':') return WRONG;
    }
}

/* ------------------------------------------------------------------------------------------------- columns */

static int64_t digits(const uint8_t *text, int64_t start, int64_t stop) {
    int64_t found = 0;
    for (; start < stop; start++) found = found * 10 + (text[start] - '0');
    return found;
}

/* An integer; ABSENT where it is null; *irregular* is set for anything else. */
static int64_t whole_of(const uint8_t *text, int64_t start, int64_t stop, int *irregular) {
    if (text[start] == 'n') return ABSENT;
    int negative = text[start] == '-';
    start += negative;
    int wrong = stop - start > MOST_DIGITS;
    uint64_t found = 0; /* of no meaning where it is wrong */
    for (; start < stop; start++) {
        wrong |= !is_digit(text[start]);
        found = found * 10 + (uint64_t)(text[start] - '0');
    }
    *irregular |= wrong;
    if (wrong) return 0;
    return negative ? -(int64_t)found : (int64_t)found;
}

/* Nanoseconds of a decimal number of microseconds with up to three digits after its point. */
static int64_t time_of(const uint8_t *text, int64_t start, int64_t stop, int *irregular) {
    int negative = text[start] == '-';
    start += negative;
    int64_t point = start, found;
    while (point < stop && is_digit(text[point])) point++;
    int64_t after = point < stop ? stop - point - 1 : 0;
    *irregular |= point == start || point - start > TIME_DIGITS || after > 3 || (point < stop && text[point] != '.');
    for (int64_t at = point + 1; at < stop; at++) *irregular |= !is_digit(text[at]);
    if (*irregular) return 0;
    found = digits(text, start, point);
    if (found >= MOST_MICROS) {
        *irregular = 1;
        return 0;
    }
    found *= MICRO;
    if (after) found += digits(text, point + 1, stop) * (after == 1 ? 100 : after == 2 ? 10 : 1);
    return negative ? -found : found;
}

static int64_t after_word(const uint8_t *text, int64_t at, int64_t stop, const char *word) {
    int64_t length = (int64_t)strlen(word);
    while (at < stop && text[at] == ' ') at++;
    return at + length <= stop && !memcmp(text + at, word, (size_t)length) ? at + length : stop;
}

/* The number of the function in a list of attributes, as PyTorch writes it. */
static int64_t function_of(const uint8_t *text, int64_t start, int64_t stop, int *irregular) {
    static const char *const words[] = {"\"type\":", "\"uint64\",", "\"value\":"};
    const char *name = "\"rf_id\",";
    for (int64_t at = start; at + 8 <= stop; at++) {
        const uint8_t *quote = memchr(text + at, '"', (size_t)(stop - at - 7));
        if (!quote) break;
        at = quote - text;
        if (memcmp(quote, name, 8)) continue;
        at += 8;
        for (int word = 0; word < 3; word++) at = after_word(text, at, stop, words[word]);
        while (at < stop && text[at] == ' ') at++;
        int64_t end = at;
        while (end < stop && is_digit(text[end])) end++;
        if (end > at && end - at <= MOST_DIGITS) return digits(text, at, end);
        break;
    }
    *irregular = 1;
    return 0;
}

/* Put a value into its column; -1 if there is no room for its text. */
static int put(Rows *rows, int64_t kind, int64_t start, int64_t stop, int escapes, int64_t *into, int *irregular) {
    const uint8_t *text = rows->text;
    if (kind == TEXT || kind == RAW) {
        int quoted = kind == TEXT;
        if (quoted && (text[start] != '"' || escapes)) {
            *irregular = 1;
            return 0;
        }
        *into = number_of(rows->texts, text + start + quoted, stop - start - 2 * quoted);
        return *into < 0 ? -1 : 0;
    }
    int wrong = 0;
    int64_t found = kind == WHOLE  ? whole_of(text, start, stop, &wrong)
                    : kind == TIME ? time_of(text, start, stop, &wrong)
                                   : function_of(text, start, stop, &wrong);
    *irregular |= wrong;
    *into = wrong ? ABSENT : found;
    return 0;
}

static void list_columns(const Rows *rows, Columns *columns) {
    memset(columns, 0, sizeof *columns);
    for (int64_t at = 0, start = 0; at < rows->key_count; start = rows->key_stops[at++]) {
        columns->first[rows->key_levels[at]][rows->keys[start]] |= 1ull << at;
        columns->size[rows->key_stops[at] - start] |= 1ull << at;
    }
}

static inline int64_t column_of(
    const Rows *rows, const Columns *columns, int level, const uint8_t *key, int64_t size) {
    if (size <= 0 || size >= LONGEST_KEY) return -1;
    for (uint64_t left = columns->first[level][key[0]] & columns->size[size]; left; left &= left - 1) {
        int64_t at = __builtin_ctzll(left);
        if (!memcmp(rows->keys + rows->key_stops[at] - size, key, (size_t)size)) return at;
    }
    return -1;
}

/* Where an object ends whose values go into *row*; NO_ROOM if there is none for a text. */
static int64_t object(Rows *rows, const Columns *columns, int64_t at, int level, int64_t *row, int *irregular) {
    const uint8_t *text = rows->text;
    int64_t size = rows->size;
    int nested = 0;
    at = space(text, at + 1, size);
    if (at >= size) return CUT;
    if (text[at] == '}') return at + 1;
    for (;;) {
        int escapes = 0;
        if (text[at] != '"') return WRONG;
        int64_t key = at + 1, stop;
        at = string(text, key, size, &escapes);
        if (at < 0) return at;
        stop = at - 1;
        *irregular |= escapes;
        at = space(text, at, size);
        if (at >= size) return CUT;
        if (text[at++] != ':') return WRONG;
        at = space(text, at, size);
        if (at >= size) return CUT;
        int64_t start = at;
        if (level == 0 && stop - key == rows->nested_size && !memcmp(text + key, rows->nested, (size_t)(stop - key))) {
            *irregular |= nested;
            nested = 1;
            if (text[at] == '{') at = object(rows, columns, at, 1, row, irregular);
            else {
                *irregular |= text[at] != 'n';
                at = value(text, at, size);
            }
            if (at < 0) return at;
        } else {
            int64_t column = column_of(rows, columns, level, text + key, stop - key);
            escapes = 0;
            at = text[at] == '"' ? string(text, at + 1, size, &escapes) : value(text, at, size);
            if (at < 0) return at;
            if (column >= 0
                && put(rows, rows->key_kinds[column], start, at, escapes, row + FIRST + column, irregular) < 0)
                return NO_ROOM;
        }
        at = space(text, at, size);
        if (at >= size) return CUT;
        uint8_t c = text[at++];
        if (c == '}') return at;
        if (c != ',') return WRONG;
        at = space(text, at, size);
        if (at >= size) return CUT;
    }
}

/* Where an element ends that is not as it should be: at the next comma or bracket outside of strings and containers. */
static int64_t element_end(const uint8_t *text, int64_t at, int64_t size) {
    int64_t depth = 0;
    for (; at < size; at++) {
        uint8_t c = text[at];
        if (c == '"') {
            for (at++; at < size && text[at] != '"'; at++) at += text[at] == '\\';
        } else if (c == '{' || c == '[') depth++;
        else if (c == '}' || c == ']') {
            if (!depth) return c == ']' ? at : WRONG;
            depth--;
        } else if (c == ',' && !depth) return at;
    }
    return CUT;
}

/* Note the elements from `at` on: until the text, the array or the room for rows or texts ends. */
COSMIC_EXPORT int64_t cosmic_json_rows(Rows *rows) {
    const uint8_t *text = rows->text;
    Columns columns;
    list_columns(rows, &columns);
    for (rows->count = 0;;) {
        int64_t start = space(text, rows->at, rows->size), stop, after = 0;
        if (start >= rows->size) {
            rows->at = start;
            return MORE;
        }
        if (text[start] == ']' && !rows->parted) {
            rows->at = start;
            return CLOSED;
        }
        if (rows->count == rows->most) return FULL;
        int64_t *row = rows->rows + rows->count * rows->width;
        int irregular = 0;
        for (int64_t column = FIRST; column < rows->width; column++) row[column] = ABSENT;
        stop = text[start] == '{' ? object(rows, &columns, start, 0, row, &irregular) : WRONG;
        if (stop == NO_ROOM) return FULL;
        if (stop >= 0) {
            after = space(text, stop, rows->size);
            if (after >= rows->size) stop = CUT;
            else if (text[after] != ',' && text[after] != ']') stop = WRONG;
        }
        if (stop == WRONG) {
            irregular = 1;
            stop = after = element_end(text, start, rows->size);
            if (stop == WRONG) return BROKEN;
        }
        if (stop == CUT) return MORE;
        row[START] = start, row[STOP] = stop, row[IRREGULAR] = irregular;
        rows->parted = text[after] == ',';
        rows->at = after + rows->parted;
        rows->count++;
    }
}
