/* The event engine's core: what its sources share.
 *
 *   events_check.c        whether the columns that Python hands over are sound
 *   events.c              the interface to Python, the clock, the ranks
 *   events_collectives.c  chunks, queues, algorithms message by message and in closed form
 *   events_network.c      messages, mailbox, fabrics, remote memory
 *
 * It does what `cosmic.simulate.events` does in Python, event by event and in the same order; functions have the names
 * that they have there. The tables are laid out by `simulation/event/columns.py`.
 */
#ifndef COSMIC_EVENTS_H
#define COSMIC_EVENTS_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

/* More than a century; as `clock.LAST_NS`. The sum of two times below it fits 64 bits. */
#define LAST_NS ((int64_t)1 << 62)
#define NEVER (-1)
#define GLOBAL (-1)     /* the owner of events that belong to no rank */
#define ALL (-1)        /* the slot of all ranks */
#define NO_MEMBER (-1)
#define GROUP_ENDPOINT_NS 10
#define READY_BYTES 8192

/* How a run ended. UNLIKE: something that only Python does or explains, such as a time beyond LAST_NS. */
enum { DONE, MORE, AMBIGUOUS, UNLIKE, NO_MEMORY, INVALID };
enum { ON_CPU, COMPUTE, COMMUNICATION, BACKGROUND, MEMORY, NO_SLOT, SLOTS };
enum { SKIP, RUN, COLLECTIVE, SEND, RECEIVE, ACCESS, ACTIONS };
enum { UNAWARE, TIMED, AWARE, CONSISTENT, FABRICS };
enum { RING, FULLY_CONNECTED, SWITCH, TOPOLOGIES };
enum { LIFO, FIFO, EXPLICIT, POLICIES };
enum { IN_ORDER, ALTERNATING, SMALLEST_FIRST, LESS_REMAINING, RULES };
enum { ANY_QUEUE, FIRST_HALF, LAST_HALF, TURNS };
enum { STEPWISE_RING, STEPWISE_HALVING, DIRECT, TREE, IN_SWITCH, GIVEN, ROUNDS, ALGORITHMS };
enum { PRIVATE, PER_NODE, POOL, MEMORIES };
enum { ALL_REDUCE = 0, ALL_GATHER = 2, ALL_TO_ALL = 6, REDUCE_SCATTER = 7, KINDS = 10 };

#if defined(__GNUC__)
#define NO_RETURN __attribute__((noreturn))
#else
#define NO_RETURN
#endif

typedef struct {
    const int64_t *at;
    int64_t count;
} Column;

typedef struct {
    const double *at;
    int64_t count;
} Reals;

typedef struct {
    int64_t *at;
    int64_t count;
} Output;

/* Everything that is simulated: only fields of 8 bytes, in the order of `simulation/event/compiled.py`. */
typedef struct {
    int64_t npus, dims, entities, channels;
    int64_t fabric, rendezvous, compat, closed_forms, checks_order, folded;
    int64_t queues_per_dim, places, policy, rule, endpoint_ns;
    int64_t memory, memory_latency_ns, npus_per_node;
    double memory_bytes_per_s, remote_gb_per_s;
    Column topology, dim_npus, stride;
    Reals latency_ns, bytes_per_ns;
    Column entity_of;
    /* entities; the nodes of a template are the rows of the next columns */
    Column rank, node_first, template_first, counter_first;
    Column slot, action, duration_ns, size, compute_ns, waits, child_start, child;
    /* nodes of entities: which call, or which exchange */
    Column use;
    Column peer, channel;
    Column call_kind, call_size, call_placement, call_plan;
    Column placement_slot, placement_priority, placement_level;
    Column level_dim, level_ring, level_position, level_algorithm, level_list;
    /* plans of collectives: runs of equal chunks, their variants by rotation, and visits to levels */
    Column plan_rotations, plan_run, run_times, run_variant, variant_visit;
    Column visit_level, visit_kind, visit_turn, visit_size, visit_final, visit_algorithm, visit_window;
    Column visit_forward, visit_backward, visit_tree, visit_spec;
    Column program_run, step_times, step_relation, step_size, step_reduces, step_more;
    Column relation_first, to, source;
    Column parent, first_child, second_child;
    Column ring_first, ring_rank, ring_entity, ring_slot, ring_pair, pair_start, pair_place;
    Column list_first, list_ring, list_pair;
    Output begun, ended, end_ns, computed_ns, sent, streams;
} Job;

typedef struct Sim Sim;
typedef struct Rank Rank;
typedef struct Stream Stream;
typedef struct Message Message;
typedef struct Link Link;

/* What is done later: the code of an action, and its argument. */
typedef struct {
    void *what;
    int32_t row;
    int32_t code;
} Then;

enum {
    NOTHING,
    COMPLETE,       /* a rank's node */
    PROCEED,        /* a stream */
    REDUCE,         /* a packet at the endpoint; row: the code that follows */
    STEP_GO, STEP_RECEIVED,
    DIRECT_GO, DIRECT_RECEIVED,
    TREE_FROM_CHILD, TREE_ADDED, TREE_UPWARDS, TREE_FROM_PARENT, TREE_DOWNWARDS,
    SWITCH_SEND, SWITCH_THERE, SWITCH_RECEIVED, SWITCH_LEAVE,
    SEND_NOW, HOP, ARRIVED, READY,      /* a message */
    FREED,          /* a link */
    SERVED          /* a request to memory */
};

/* ------------------------------------------------------------------------------------------------- containers */

/* Objects of one size that keep their addresses; given back, they are used again. The first pointer of one that was
 * given back belongs to the pool, the rest remains: what is used too late is wrong, but within bounds. */
typedef struct {
    size_t size;
    void *free;
    void *blocks;
    size_t left;
} Pool;

typedef struct {
    int64_t a, b, c, d;
} Key;

typedef union {
    struct { int64_t x, y; } pair;
    Then then;
    void *pointer;
} Value;

typedef struct {
    Key key;
    Value value;
} Entry;

/* A hash table: open addresses, next place on a collision, and no tombstones. */
typedef struct {
    Entry *at;
    size_t count, room;     /* room is a power of two */
} Table;

typedef struct {
    int32_t *at;
    int64_t count, room;
} Rows;

/* ------------------------------------------------------------------------------------------------- clock */

typedef struct {
    int64_t time, decided, first, count;
    Then then;
    int64_t owner;
} Event;

typedef struct {
    int64_t now, decided, first;    /* of the running event: its time, and its place within it */
    int64_t count;
    Event *queue;
    size_t length, room;
    Table batches;
    int64_t batch_owner, batch_time;    /* the batch that runs; GLOBAL: none */
} Clock;

/* ------------------------------------------------------------------------------------------------- ranks */

typedef struct {
    Stream **at;
    int64_t count, room, running;
    int64_t entered_at, entered_from, left_at, left_stream;
} Queue;

typedef struct {
    int64_t any, first, last;
} Turn;

/* Whether the order of events of one moment matters; as `ranks._Order`. */
typedef struct {
    int64_t time, decided, decider;
    Rows freed, started;
    int64_t freed_before, started_before;
    int32_t *place;     /* of each row among those freed */
} Order;

struct Rank {
    int64_t rank, entity;
    int64_t first;      /* of its nodes among those of all entities */
    int64_t row;        /* of its template */
    int64_t nodes;
    int32_t *waits;
    Rows ready[SLOTS], fresh;
    int64_t busy[SLOTS], ongoing;
    int issuing;
    Order order;
    int64_t newest, rotation;
    Queue *queues;
    Turn *turns;
    uint8_t *trees;
};

/* ------------------------------------------------------------------------------------------------- collectives */

typedef struct {
    void *pool;
    Rank *rank;
    int32_t row;
    int64_t left;
} Collective;

/* A chunk in progress, and the state of the machine that runs its phase. */
struct Stream {
    int64_t serial;
    Rank *rank;
    Collective *collective;
    int64_t placement, visit, phases, next_phase;   /* visit: the first */
    int64_t slot, ordinal, priority, endpoint_ns, reduction_ns;
    int running, in_group, fast, pinned;
    /* the phase */
    int64_t now, level, ring, position, members, queue;     /* now: the visit */
    int clockwise, tree;
    /* the machine: a program's step, or packets of `direct`, or arrivals in a tree */
    int64_t step, run, run_left, waiting;
    int64_t part, window, others, packets, reducing, inserted, sent, free, arrived, reduced;
    int64_t way, up, down;
    int32_t turn[];     /* of every phase: queue, clockwise, tree */
};

/* Members that have begun a phase, or whose bytes are at the switch. */
typedef struct {
    int64_t missing, count;
    Stream **streams;
    int64_t *starts;    /* or sizes */
} Gathering;

/* ------------------------------------------------------------------------------------------------- network */

struct Message {
    Message *next;
    Key key;
    Then then;      /* done when it has arrived; of a ready message, the receive */
    int64_t size;
    int32_t source, target, here, hops;
    int is_ready, at_switch;
};

typedef struct Waiting {
    struct Waiting *next;
    Then then;
    int64_t size;
    double latency_ns;
} Waiting;

struct Link {
    int64_t free_at, free_decided, free_first, busy_ns;
    Waiting *head, *tail;
    double bytes_per_ns, latency_ns;
    int64_t reached_at, reached_by;
    int64_t place, kind, from, to;
    Link *next;     /* in the order of creation */
};

typedef struct Request {
    struct Request *next;
    Then then;
    int64_t store, rank, duration;
} Request;

typedef struct {
    int busy;
    Request *head, *tail;
} Store;

struct Sim {
    const Job *job;
    jmp_buf failed;
    int begun;
    int64_t left;       /* events until Python looks at signals */
    Clock clock;
    Rank *ranks;
    int64_t serial;
    Table mailbox, gatherings, switches, done, direct_links;
    Pool messages, waitings, requests, streams, collectives, links;
    int64_t *sends, *receives;      /* messages so far, by channel */
    int32_t *coordinates;           /* by dimension and rank */
    Link **links_of;                /* by dimension, entity and way */
    Link *first_link, *last_link;
    int64_t link_count;
    Store *stores;
    int64_t *starts, *ready, *after, *delays;   /* scratch, one entry for each member of a ring */
    Stream **chunks;                            /* scratch: those of the collective that starts */
    int64_t chunk_room;
    void *owned;        /* memory to free: a list */
};

/* events.c */
NO_RETURN void ev_fail(Sim *sim, int status);
void *ev_memory(Sim *sim, int64_t count, size_t size);
void *ev_grown(Sim *sim, void *at, int64_t count, size_t size);
void *ev_take(Sim *sim, Pool *pool);
void ev_give(Pool *pool, void *object);
Value *ev_find(const Table *table, const Key *key);
Value *ev_insert(Sim *sim, Table *table, const Key *key);
void ev_remove(Table *table, Value *value);
void ev_after(Sim *sim, int64_t delay, Then then);
void ev_at_place(Sim *sim, int64_t time, int64_t decided, int64_t first, Then then);
void ev_of_rank_at(Sim *sim, int64_t owner, int64_t time, int64_t decided, Then then);
void ev_complete(Sim *sim, Rank *rank, int64_t row);
void ev_do(Sim *sim, Then then);

/* events_check.c */
int ev_is_valid(const Job *job);

/* events_collectives.c */
void ev_start_collective(Sim *sim, Rank *rank, int64_t row);
void ev_proceed(Sim *sim, Stream *stream);
void ev_machine(Sim *sim, Then then);

/* events_network.c */
void ev_prepare_network(Sim *sim);
int64_t ev_first_difference(const Sim *sim, int64_t source, int64_t target, int64_t *hops);
int64_t ev_delay_ns(Sim *sim, int64_t source, int64_t target, int64_t size);
void ev_count_sent(Sim *sim, int64_t entity, int64_t place, int64_t size);
void ev_post_send(Sim *sim, int64_t source, int64_t target, int64_t size, Key key, Then sent);
void ev_post_receive(Sim *sim, int64_t rank, int64_t source, Key key, Then then);
void ev_exchange(Sim *sim, Rank *rank, int64_t row);
void ev_to_switch(Sim *sim, int64_t rank, int64_t place, int64_t size, Then then);
void ev_from_switch(Sim *sim, int64_t rank, int64_t place, int64_t size, Then then);
void ev_access(Sim *sim, Rank *rank, int64_t row);
void ev_message(Sim *sim, Then then);

static inline void ev_of_rank(Sim *sim, int64_t owner, int64_t delay, Then then) {
    ev_of_rank_at(sim, owner, sim->clock.now + delay, sim->clock.now, then);
}

static inline Then ev_then(int code, void *what, int64_t row) {
    Then then = {what, (int32_t)row, code};
    return then;
}

#endif
