/* Runs recorded programs: see cosmic/recording. A program is a list of instructions over columns of float64; it is run
 * for some designs at a time, so that all columns stay in the processor's cache. Each instruction is one loop.
 *
 * What NumPy would raise (overflow, division by zero, invalid operations) sets a flag of the processor. If a flag is set
 * after some designs, each of them is run by itself, and those that set it again are marked. */
#include "native.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

#define LANES 128        /* designs at a time */
#define MOST_KEYS 12     /* columns of a lookup */
#define MOST_LISTED 68   /* operands of an instruction: 64 virtual stages */
#define WIDTH 5          /* numbers of an instruction: operation, result, three operands */
#define TROUBLE (FE_OVERFLOW | FE_DIVBYZERO | FE_INVALID)

enum {
    NEGATIVE, ABSOLUTE, FLOOR, CEIL, RINT, SQRT, CBRT, EXPM1, LOG, LOG2, TRUNC, ISNAN, LOGICAL_NOT,
    ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, REMAINDER, POWER, MAXIMUM, MINIMUM,
    LESS, LESS_EQUAL, EQUAL, NOT_EQUAL, LOGICAL_AND, LOGICAL_OR, GCD, WHERE, INDEX, GATHER, INTERLEAVED_BYTES
};

/* The distinct combinations of some columns that were met so far, with what functions of them give. */
typedef struct {
    int64_t keys;          /* columns of a combination */
    int64_t mask;          /* slots - 1; a power of two */
    int64_t room;          /* combinations that there is room for */
    const double *rows;    /* keys numbers each */
    const int64_t *slots;  /* hash table: the hash of a row, and the row; -1 where there is none */
    const double *values;  /* of each function, one number for each row; NaN where it is not known */
} Table;

typedef struct {
    double *scalars;             /* one for each node: constants, what is the same in all designs, and room for one */
    double *registers;           /* columns of LANES designs */
    const int32_t *single;       /* the instructions, on scalars */
    const int32_t *vector;       /* the same instructions, on registers, or on scalars: ~place */
    const int32_t *single_lists; /* operands of instructions that have more than three */
    const int32_t *vector_lists;
    const Table *const *tables;
    const int32_t *input_nodes, *input_registers, *input_columns;
    const int32_t *outputs, *vector_outputs;
    const int32_t *guards, *vector_guards;
    const double *least, *most;
    int64_t instructions, inputs, measured, results, guarded;
    /* the first `measured` of all `results` are numbers of a design that is run; a design in trouble has none */
    int64_t own; /* inputs that each design has for itself; the others it shares with designs of the same mapping */
} Program;

/* The designs to run: rows of columns, and where their results are written. */
typedef struct {
    const double *columns; /* of inputs, `stride` apart */
    int64_t stride, count;
    const int64_t *rows;
    double *results;
    int64_t results_stride;
    const int64_t *places; /* of the results: the rows, unless it is given */
    const double *shared;  /* what mappings share, `shared_stride` apart: last, NaN for a mapping in trouble */
    int64_t shared_stride;
    const int64_t *mappings; /* the mapping of each design */
} Designs;

typedef struct {
    double *keys; /* table and keys of combinations that are not known yet */
    int64_t room, count;
} Missing;

/* ------------------------------------------------------------------------------------------ numbers */

/* The cube root, to the last bit or the one beside it. x = m 2^(3 e) with m in [1/8, 1): a quadratic guess of the root of
 * m, two steps of Halley, one of Newton. There is no branch, so that loops over it become vectors. */
static inline double cube_root(double x) {
    union {
        double number;
        int64_t bits;
    } parts, power;
    double size = fabs(x);
    int usual = size >= 0x1p-1000 && size < INFINITY;
    parts.number = usual ? size : 1.0;
    int64_t exponent = (parts.bits >> 52) - 1022;
    int64_t third = ((exponent + 3072) * 21846 >> 16) - 1024 + 1; /* more than a third of it, by less than one */
    parts.bits = (parts.bits & 0xfffffffffffffLL) | ((1022 + exponent - 3 * third) << 52);
    power.bits = (1023 + third) << 52;
    double m = parts.number, root = 0.31447 + m * (1.32 - m * 0.64), cube;
    cube = root * root * root;
    root = root * (cube + 2 * m) / (2 * cube + m);
    cube = root * root * root;
    root = root * (cube + 2 * m) / (2 * cube + m);
    root = root - (root * root * root - m) / (3 * root * root);
    double found = copysign(root * power.number, x);
    return usual ? found : x; /* 0, and what is no number; no time is as short as 1e-300 s */
}

/* As NumPy divides: the remainder has the sign of the divisor. */
static inline double floor_division(double a, double b) {
    double quick = floor(a / b);
    if (fabs(a) < 0x1p52 && fabs(b) < 0x1p52 && a == floor(a) && b == floor(b)) return quick;
    double rest = fmod(a, b);
    if (b == 0) return a / b;
    double quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign(0.0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static inline double remainder_of(double a, double b) {
    if (fabs(a) < 0x1p52 && fabs(b) < 0x1p52 && a == floor(a) && b == floor(b)) return a - floor(a / b) * b;
    double rest = fmod(a, b);
    if (rest != 0 && (b < 0) != (rest < 0)) rest += b;
    return rest == 0 ? copysign(0.0, b) : rest;
}

static inline double common_divisor(double a, double b) {
    int64_t left = (int64_t)fabs(a), right = (int64_t)fabs(b);
    while (right) {
        int64_t rest = left % right;
        left = right;
        right = rest;
    }
    return (double)left;
}

/* Comparisons that set no flag if one side is no number, as NumPy's. */
static inline double larger(double a, double b) {
    double found = isgreater(a, b) ? a : b;
    return a != a ? a : found;
}

static inline double smaller(double a, double b) {
    double found = isless(a, b) ? a : b;
    return a != a ? a : found;
}

#define MOST_TURNS 64 /* that designs are sorted by */
#define BLOCK 8 /* designs whose turns are taken together */

/* Quotient and remainder of whole numbers below 2^52, as they are here: stages, microbatches, turns. */
static inline double rounds_of(double a, double b) { return floor(a / b); }
static inline double rest_of(double a, double b) { return a - floor(a / b) * b; }
static inline double within(double a, double most) { return smaller(larger(a, 0), most); }

/* cosmic.step.stage_memory.interleaved_bytes: see there. *given* is place, stages, microbatches and virtual stages, then the
 * bytes of each virtual stage, all of a block of designs. */
COSMIC_WIDE static void interleave(double given[][BLOCK], int count, double *bytes) {
    double *place = given[0], *stages = given[1], *microbatches = given[2], *virtual = given[3];
    double ends[BLOCK], ahead[BLOCK], offset[BLOCK], round[BLOCK], most[BLOCK], turns = 0.0;
    for (int i = 0; i < BLOCK; i++) {
        double per_stage = virtual[i] > 1 ? 2 : 1;
        double usual = per_stage * (stages[i] - place[i] - 1) + (virtual[i] - 1) * stages[i] + 1;
        ends[i] = microbatches[i] * virtual[i];
        ahead[i] = smaller(stages[i] > 1 ? usual : virtual[i], ends[i]);
        offset[i] = rest_of(ahead[i], stages[i]);
        round[i] = stages[i] * virtual[i];
        most[i] = 0.0;
        turns = larger(turns, 2 * virtual[i] + 2);
    }
    for (int turn = 0; turn < turns; turn++) {
        double forward[BLOCK], forward_rest[BLOCK], backward[BLOCK], backward_rest[BLOCK], held[BLOCK];
        for (int i = 0; i < BLOCK; i++) {
            double done = (double)(turn / 2) * stages[i] - (turn % 2) * offset[i];
            done = within(done, ends[i] - ahead[i]);
            forward[i] = rounds_of(ahead[i] + done, round[i]) * stages[i];
            forward_rest[i] = rest_of(ahead[i] + done, round[i]);
            backward[i] = rounds_of(done, round[i]) * stages[i];
            backward_rest[i] = rest_of(done, round[i]);
            held[i] = 0.0;
        }
        for (int chunk = 0; chunk < count - 4; chunk++)
            for (int i = 0; i < BLOCK; i++) {
                double begun = forward[i] + within(forward_rest[i] - chunk * stages[i], stages[i]);
                double last = (virtual[i] - 1 - chunk) * stages[i];
                double ended = backward[i] + within(backward_rest[i] - last, stages[i]);
                held[i] += (chunk < virtual[i] ? 1.0 : 0.0) * given[4 + chunk][i] * (begun - ended);
            }
        for (int i = 0; i < BLOCK; i++) most[i] = turn < 2 * virtual[i] + 2 ? larger(most[i], held[i]) : most[i];
    }
    for (int i = 0; i < BLOCK; i++) bytes[i] = most[i];
}

/* A function that is recorded as a whole, for n designs, *count* numbers each; those that take equally long together. */
static void run_whole(double given[][LANES], int count, int n, double *results) {
    const double *turns = given[3];
    int order[LANES], keys[LANES], starts[MOST_TURNS + 2] = {0};
    for (int i = 0; i < n; i++) { /* counted, most turns first */
        keys[i] = MOST_TURNS - (int)smaller(larger(turns[i], 0), MOST_TURNS);
        starts[keys[i] + 1]++;
    }
    for (int key = 0; key <= MOST_TURNS; key++) starts[key + 1] += starts[key];
    for (int i = 0; i < n; i++) order[starts[keys[i]]++] = i;
    for (int start = 0; start < n; start += BLOCK) {
        double block[MOST_LISTED][BLOCK], found[BLOCK];
        for (int k = 0; k < count; k++)
            for (int i = 0; i < BLOCK; i++) block[k][i] = given[k][order[start + i < n ? start + i : start]];
        interleave(block, count, found);
        for (int i = 0; i < BLOCK && start + i < n; i++) results[order[start + i]] = found[i];
    }
}

/* ------------------------------------------------------------------------------------------- tables */

/* The next step of a hash: of one more key. */
static inline uint64_t hashed(uint64_t hash, double key) {
    union {
        double number;
        uint64_t bits;
    } parts = {key + 0.0}; /* -0.0 and 0.0 are one */
    hash = (hash ^ (parts.bits ^ (parts.bits >> 29))) * 0xff51afd7ed558ccdULL;
    return hash ^ (hash >> 32);
}

#define FIRST_HASH 0x9e3779b97f4a7c15ULL

static double not_known(const Table *table, int32_t number, const double *keys, Missing *missing) {
    if (missing->count < missing->room) {
        double *note = missing->keys + missing->count * (MOST_KEYS + 1);
        note[0] = number;
        memcpy(note + 1, keys, (size_t)table->keys * sizeof(double));
    }
    missing->count++;
    return -1.0;
}

/* The row of a combination; -1 if it is not known yet, which is noted. */
static inline double row_of(const Table *table, int32_t number, uint64_t hash, const double *keys, Missing *missing) {
    for (uint64_t slot = hash;; slot++) {
        const int64_t *at = table->slots + 2 * (slot & (uint64_t)table->mask);
        if (at[1] < 0) return not_known(table, number, keys, missing);
        if (at[0] != (int64_t)hash) continue;
        const double *known = table->rows + at[1] * table->keys;
        int same = 1;
        for (int64_t i = 0; i < table->keys; i++) same &= known[i] == keys[i];
        if (same) return (double)at[1];
    }
}

/* One number of a row; 1 where the row or the number is not known yet. */
static inline double value_of(const Table *table, int32_t number, int32_t column, double row, Missing *missing) {
    if (row < 0) return 1.0;
    double found = table->values[column * table->room + (int64_t)row];
    if (found == found) return found;
    if (missing->count < missing->room) {
        double *note = missing->keys + missing->count * (MOST_KEYS + 1);
        note[0] = -1 - number;
        note[1] = row;
        note[2] = column;
    }
    missing->count++;
    return 1.0;
}

/* --------------------------------------------------------------------------------------- interpreters */

/* One design: every operand is a scalar. */
static void run_single(const Program *program, Missing *missing) {
    double *s = program->scalars;
    const int32_t *at = program->single, *end = at + program->instructions * WIDTH;
    for (; at < end; at += WIDTH) {
        double *result = s + at[1];
        double a = s[at[2]];
        switch (at[0]) {
        case NEGATIVE: *result = -a; break;
        case ABSOLUTE: *result = fabs(a); break;
        case FLOOR: *result = floor(a); break;
        case CEIL: *result = ceil(a); break;
        case RINT: *result = rint(a); break;
        case SQRT: *result = sqrt(a); break;
        case CBRT: *result = cube_root(a); break;
        case EXPM1: *result = expm1(a); break;
        case LOG: *result = log(a); break;
        case LOG2: *result = log2(a); break;
        case TRUNC: *result = trunc(a); break;
        case ISNAN: *result = a != a; break;
        case LOGICAL_NOT: *result = 1.0 - a; break;
        case ADD: *result = a + s[at[3]]; break;
        case SUBTRACT: *result = a - s[at[3]]; break;
        case MULTIPLY: *result = a * s[at[3]]; break;
        case DIVIDE: *result = a / s[at[3]]; break;
        case FLOOR_DIVIDE: *result = floor_division(a, s[at[3]]); break;
        case REMAINDER: *result = remainder_of(a, s[at[3]]); break;
        case POWER: *result = pow(a, s[at[3]]); break;
        case MAXIMUM: *result = larger(a, s[at[3]]); break;
        case MINIMUM: *result = smaller(a, s[at[3]]); break;
        case LESS: *result = isless(a, s[at[3]]); break;
        case LESS_EQUAL: *result = islessequal(a, s[at[3]]); break;
        case EQUAL: *result = a == s[at[3]]; break;
        case NOT_EQUAL: *result = a != s[at[3]]; break;
        case LOGICAL_AND: *result = a * s[at[3]]; break;
        case LOGICAL_OR: *result = larger(a, s[at[3]]); break;
        case GCD: *result = common_divisor(a, s[at[3]]); break;
        case WHERE: *result = a != 0 ? s[at[3]] : s[at[4]]; break;
        case INDEX: {
            double keys[MOST_KEYS];
            const int32_t *list = program->single_lists + at[3];
            uint64_t hash = FIRST_HASH;
            for (int i = 0; i < at[4]; i++) hash = hashed(hash, keys[i] = s[list[i]]);
            *result = row_of(program->tables[at[2]], at[2], hash, keys, missing);
            break;
        }
        case GATHER: *result = value_of(program->tables[at[4]], at[4], at[3], a, missing); break;
        case INTERLEAVED_BYTES: {
            double given[MOST_LISTED][LANES];
            const int32_t *list = program->single_lists + at[3];
            for (int i = 0; i < at[4]; i++) given[i][0] = s[list[i]];
            run_whole(given, at[4], 1, result);
            break;
        }
        }
    }
}

#define UNARY(expression)                                                                                              \
    for (int i = 0; i < n; i++) {                                                                                      \
        double a = x[i];                                                                                               \
        r[i] = expression;                                                                                             \
    }                                                                                                                  \
    break;
#define BINARY(expression)                                                                                             \
    if (at[2] < 0) {                                                                                                   \
        const double a = s[~at[2]];                                                                                    \
        for (int i = 0; i < n; i++) {                                                                                  \
            double b = y[i];                                                                                           \
            r[i] = expression;                                                                                         \
        }                                                                                                              \
    } else if (at[3] < 0) {                                                                                            \
        const double b = s[~at[3]];                                                                                    \
        for (int i = 0; i < n; i++) {                                                                                  \
            double a = x[i];                                                                                           \
            r[i] = expression;                                                                                         \
        }                                                                                                              \
    } else {                                                                                                           \
        for (int i = 0; i < n; i++) {                                                                                  \
            double a = x[i], b = y[i];                                                                                 \
            r[i] = expression;                                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    break;

static inline double operand(const Program *program, int32_t place, int lane) {
    return place < 0 ? program->scalars[~place] : program->registers[(int64_t)place * LANES + lane];
}

/* n designs: an operand is a register, or a scalar. */
COSMIC_WIDE static void run_vector(const Program *program, int n, Missing *missing) {
    const double *s = program->scalars;
    double *registers = program->registers;
    const int32_t *at = program->vector, *end = at + program->instructions * WIDTH;
    for (; at < end; at += WIDTH) {
        double *restrict r = registers + (int64_t)at[1] * LANES;
        const double *x = registers + (int64_t)(at[2] < 0 ? 0 : at[2]) * LANES;
        const double *y = registers + (int64_t)(at[3] < 0 ? 0 : at[3]) * LANES;
        switch (at[0]) {
        case NEGATIVE: UNARY(-a)
        case ABSOLUTE: UNARY(fabs(a))
        case FLOOR: UNARY(floor(a))
        case CEIL: UNARY(ceil(a))
        case RINT: UNARY(rint(a))
        case SQRT: UNARY(sqrt(a))
        case CBRT: UNARY(cube_root(a))
        case EXPM1: UNARY(expm1(a))
        case LOG: UNARY(log(a))
        case LOG2: UNARY(log2(a))
        case TRUNC: UNARY(trunc(a))
        case ISNAN: UNARY(a != a)
        case LOGICAL_NOT: UNARY(1.0 - a)
        case ADD: BINARY(a + b)
        case SUBTRACT: BINARY(a - b)
        case MULTIPLY: BINARY(a * b)
        case DIVIDE: BINARY(a / b)
        case FLOOR_DIVIDE: BINARY(floor_division(a, b))
        case REMAINDER: BINARY(remainder_of(a, b))
        case POWER: BINARY(pow(a, b))
        case MAXIMUM: BINARY(larger(a, b))
        case MINIMUM: BINARY(smaller(a, b))
        case LESS: BINARY(isless(a, b) ? 1.0 : 0.0)
        case LESS_EQUAL: BINARY(islessequal(a, b) ? 1.0 : 0.0)
        case EQUAL: BINARY(a == b ? 1.0 : 0.0)
        case NOT_EQUAL: BINARY(a != b ? 1.0 : 0.0)
        case LOGICAL_AND: BINARY(a * b)
        case LOGICAL_OR: BINARY(larger(a, b))
        case GCD: BINARY(common_divisor(a, b))
        case WHERE: {
            const double *z = registers + (int64_t)(at[4] < 0 ? 0 : at[4]) * LANES;
            if (at[2] < 0) {
                const int32_t chosen = s[~at[2]] != 0 ? at[3] : at[4];
                for (int i = 0; i < n; i++) r[i] = operand(program, chosen, i);
            } else if (at[3] < 0 && at[4] < 0) {
                const double then = s[~at[3]], otherwise = s[~at[4]];
                for (int i = 0; i < n; i++) r[i] = x[i] != 0 ? then : otherwise;
            } else if (at[3] < 0) {
                const double then = s[~at[3]];
                for (int i = 0; i < n; i++) r[i] = x[i] != 0 ? then : z[i];
            } else if (at[4] < 0) {
                const double otherwise = s[~at[4]];
                for (int i = 0; i < n; i++) r[i] = x[i] != 0 ? y[i] : otherwise;
            } else {
                for (int i = 0; i < n; i++) r[i] = x[i] != 0 ? y[i] : z[i];
            }
            break;
        }
        case INDEX: {
            const Table *table = program->tables[at[2]];
            const int32_t *list = program->vector_lists + at[3];
            uint64_t hashes[LANES];
            double keys[LANES][MOST_KEYS];
            for (int i = 0; i < n; i++) hashes[i] = FIRST_HASH;
            for (int k = 0; k < at[4]; k++) {
                const double *column = registers + (int64_t)(list[k] < 0 ? 0 : list[k]) * LANES;
                const double same = list[k] < 0 ? s[~list[k]] : 0.0;
                for (int i = 0; i < n; i++) {
                    keys[i][k] = list[k] < 0 ? same : column[i];
                    hashes[i] = hashed(hashes[i], keys[i][k]);
                }
            }
            for (int i = 0; i < n; i++) r[i] = row_of(table, at[2], hashes[i], keys[i], missing);
            break;
        }
        case GATHER: {
            const Table *table = program->tables[at[4]];
            for (int i = 0; i < n; i++) r[i] = value_of(table, at[4], at[3], x[i], missing);
            break;
        }
        case INTERLEAVED_BYTES: {
            double given[MOST_LISTED][LANES];
            const int32_t *list = program->vector_lists + at[3];
            for (int k = 0; k < at[4]; k++)
                for (int i = 0; i < n; i++) given[k][i] = operand(program, list[k], i);
            run_whole(given, at[4], n, r);
            break;
        }
        }
    }
}

/* ------------------------------------------------------------------------------------------ designs */

enum { DONE, GUARD_FAILED };

static int holds(double value, double least, double most) { return value >= least && value <= most; }

static double input_of(const Program *program, const Designs *designs, int64_t input, int64_t design) {
    if (input < program->own)
        return designs->columns[program->input_columns[input] * designs->stride + designs->rows[design]];
    return designs->shared[program->input_columns[input] * designs->shared_stride + designs->mappings[design]];
}

static int in_trouble(const Program *program, const Designs *designs, int64_t design) {
    int64_t last = program->inputs - program->own;
    return designs->shared && isnan(designs->shared[last * designs->shared_stride + designs->mappings[design]]);
}

static double *result_of(const Designs *designs, int64_t result, int64_t design) {
    int64_t place = designs->places ? designs->places[design] : designs->rows[design];
    return designs->results + result * designs->results_stride + place;
}

/* One design by itself; returns whether its guards hold. */
static int run_alone(const Program *program, const Designs *designs, int64_t design, Missing *missing) {
    for (int64_t i = 0; i < program->inputs; i++)
        program->scalars[program->input_nodes[i]] = input_of(program, designs, i, design);
    feclearexcept(TROUBLE);
    run_single(program, missing);
    int trouble = fetestexcept(TROUBLE) || in_trouble(program, designs, design);
    for (int64_t i = 0; i < program->results; i++)
        *result_of(designs, i, design) = trouble && i < program->measured ? NAN : program->scalars[program->outputs[i]];
    for (int64_t i = 0; i < program->guarded; i++)
        if (!holds(program->scalars[program->guards[i]], program->least[i], program->most[i])) return 0;
    return 1;
}

/* Runs a program for some designs. Combinations that are not known yet are noted: then the results are worth nothing. */
COSMIC_EXPORT int32_t cosmic_run(const Program *program, const Designs *designs, Missing *missing) {
    int32_t state = DONE;
    fenv_t before;
    feholdexcept(&before);
    for (int64_t start = 0; start < designs->count && state == DONE; start += LANES) {
        int n = (int)(designs->count - start < LANES ? designs->count - start : LANES);
        int trouble = n <= 2;
        for (int k = 0; designs->shared && k < n; k++) trouble |= in_trouble(program, designs, start + k);
        if (!trouble) {
            for (int64_t i = 0; i < program->inputs; i++) {
                double *column = program->registers + (int64_t)program->input_registers[i] * LANES;
                const int64_t *at = (i < program->own ? designs->rows : designs->mappings) + start;
                const double *from = i < program->own ? designs->columns + program->input_columns[i] * designs->stride
                                                      : designs->shared + program->input_columns[i] * designs->shared_stride;
                for (int k = 0; k < n; k++) column[k] = from[at[k]];
            }
            feclearexcept(TROUBLE);
            run_vector(program, n, missing);
            trouble = fetestexcept(TROUBLE);
        }
        if (trouble) {
            for (int k = 0; k < n; k++)
                if (!run_alone(program, designs, start + k, missing)) state = GUARD_FAILED;
            continue;
        }
        const int64_t *places = (designs->places ? designs->places : designs->rows) + start;
        for (int64_t i = 0; i < program->results; i++) {
            double *to = designs->results + i * designs->results_stride;
            int32_t from = program->vector_outputs[i];
            const double *column = program->registers + (int64_t)(from < 0 ? 0 : from) * LANES;
            const double same = from < 0 ? program->scalars[~from] : 0.0;
            for (int k = 0; k < n; k++) to[places[k]] = from < 0 ? same : column[k];
        }
        for (int64_t i = 0; i < program->guarded; i++)
            for (int k = 0; k < n; k++)
                if (!holds(operand(program, program->vector_guards[i], k), program->least[i], program->most[i]))
                    state = GUARD_FAILED;
    }
    fesetenv(&before);
    return state;
}

/* Tells mappings apart: designs whose numbers in some columns are equal. Writes the row of the first design of each
 * mapping, and the mapping of each design; returns how many mappings there are. *slots* has room for 2^bits numbers. */
COSMIC_EXPORT int64_t cosmic_mappings(const Designs *designs, const int32_t *chosen, int64_t keys, int64_t *firsts,
                                      int64_t *mappings, int64_t *slots, int64_t bits) {
    int64_t found = 0, mask = ((int64_t)1 << bits) - 1;
    for (int64_t i = 0; i <= mask; i++) slots[i] = -1;
    for (int64_t design = 0; design < designs->count; design++) {
        const double *mine = designs->columns + designs->rows[design];
        uint64_t hash = FIRST_HASH;
        for (int64_t k = 0; k < keys; k++) hash = hashed(hash, mine[chosen[k] * designs->stride]);
        for (uint64_t slot = hash;; slot++) {
            int64_t *known = slots + (slot & (uint64_t)mask);
            int same = *known >= 0;
            for (int64_t k = 0; same && k < keys; k++)
                same = designs->columns[chosen[k] * designs->stride + firsts[*known]] == mine[chosen[k] * designs->stride];
            if (*known >= 0 && !same) continue;
            if (*known < 0) {
                *known = found;
                firsts[found++] = designs->rows[design];
            }
            mappings[design] = *known;
            break;
        }
    }
    return found;
}

/* ------------------------------------------------------------------------------------------- layout */

#define NODE 4 /* numbers of a node: operation, three operands */

typedef struct {
    const int32_t *nodes, *lists; /* of the program: cosmic.simulate.recording.recorded_program */
    const int32_t *lookup_columns, *lookup_tables;
    const uint8_t *held;          /* nodes whose values are results, or guarded */
    uint8_t *varies;              /* nodes that differ among designs: at first the inputs that do */
    int32_t *registers, *last, *spare; /* of each node; the instruction that reads it last; registers that are free */
    int32_t *prologue, *single, *vector, *vector_lists;
    int64_t count, listed, prologue_count, body_count, register_count;
} Layout;

static int is_listed(int32_t operation) {
    return operation == INDEX || operation == INTERLEAVED_BYTES;
}

static int operands_of(int32_t operation) {
    if (operation < 0) return 0;
    return operation == WHERE ? 3 : operation < ADD || operation == GATHER ? 1 : 2;
}

/* The nodes that a node reads. */
static const int32_t *reads_of(const Layout *layout, int64_t place, int *count) {
    const int32_t *node = layout->nodes + place * NODE;
    *count = is_listed(node[0]) ? node[3] : operands_of(node[0]);
    return is_listed(node[0]) ? layout->lists + node[2] : node + 1;
}

static int32_t operand_place(const Layout *layout, int32_t node) {
    return layout->varies[node] ? layout->registers[node] : ~node;
}

static int32_t new_register(Layout *layout, int64_t *spares) {
    return *spares ? layout->spare[--*spares] : (int32_t)layout->register_count++;
}

/* Writes a node as an instruction, on scalars or on registers. */
static void emit(const Layout *layout, int64_t place, int32_t *at, int vector) {
    const int32_t *node = layout->nodes + place * NODE;
    int count;
    const int32_t *read = reads_of(layout, place, &count);
    at[0] = node[0];
    at[1] = vector ? layout->registers[place] : (int32_t)place;
    at[2] = at[3] = at[4] = 0;
    if (is_listed(node[0])) {
        memcpy(at + 2, node + 1, 3 * sizeof(int32_t));
        for (int i = 0; vector && i < count; i++) layout->vector_lists[node[2] + i] = operand_place(layout, read[i]);
        return;
    }
    for (int i = 0; i < count; i++) at[2 + i] = vector ? operand_place(layout, read[i]) : read[i];
    if (node[0] == GATHER) {
        at[3] = layout->lookup_columns[node[2]] + node[3];
        at[4] = layout->lookup_tables[node[2]];
    }
}

/* Parts a program into what is the same in all designs, the prologue, and the rest, and gives the rest registers; one
 * whose value is not needed any more is used again. */
COSMIC_EXPORT void cosmic_layout(Layout *layout) {
    int64_t spares = 0;
    int count;
    for (int64_t place = 0; place < layout->count; place++) {
        const int32_t *read = reads_of(layout, place, &count);
        for (int i = 0; i < count; i++) {
            layout->varies[place] |= layout->varies[read[i]];
            layout->last[read[i]] = (int32_t)place;
        }
        if (layout->nodes[place * NODE] < 0 && layout->varies[place])
            layout->registers[place] = new_register(layout, &spares);
    }
    for (int64_t place = 0; place < layout->count; place++) {
        if (layout->nodes[place * NODE] < 0) continue;
        if (!layout->varies[place]) {
            emit(layout, place, layout->prologue + layout->prologue_count++ * WIDTH, 0);
            continue;
        }
        layout->registers[place] = new_register(layout, &spares); /* before its operands are free: loops do not alias */
        emit(layout, place, layout->single + layout->body_count * WIDTH, 0);
        emit(layout, place, layout->vector + layout->body_count++ * WIDTH, 1);
        const int32_t *read = reads_of(layout, place, &count);
        for (int i = 0; i < count; i++)
            if (layout->varies[read[i]] && layout->last[read[i]] == place && !layout->held[read[i]]) {
                layout->spare[spares++] = layout->registers[read[i]];
                layout->last[read[i]] = -1;
            }
    }
}

/* The numbers by which this file knows operations, for a check that Python knows them by the same. */
COSMIC_EXPORT const char *cosmic_operations(void) {
    return "negative absolute floor ceil rint sqrt cbrt expm1 log log2 trunc isnan logical_not add subtract "
           "multiply divide floor_divide remainder power maximum minimum less less_equal equal not_equal logical_and "
           "logical_or gcd where index gather interleaved_bytes";
}

COSMIC_EXPORT int64_t cosmic_lanes(void) { return LANES; }
