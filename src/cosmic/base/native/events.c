/* The event engine's core: its interface to Python, the clock, and the ranks. See events.h. */
#include "events.h"

#include <stdlib.h>
#include <string.h>

#include "native.h"

/* ------------------------------------------------------------------------------------------------- memory */

/* End the run from wherever it is: `run` returns the status. */
NO_RETURN void ev_fail(Sim *sim, int status) { longjmp(sim->failed, status); }

/* Return zeroed memory that lives as long as the simulation. */
void *ev_memory(Sim *sim, int64_t count, size_t size) {
    size_t header = 2 * sizeof(void *);
    if (count < 0 || (uint64_t)count > (SIZE_MAX - header) / size) ev_fail(sim, NO_MEMORY);
    void **block = calloc(1, header + (size_t)count * size);
    if (block == NULL) ev_fail(sim, NO_MEMORY);
    block[0] = sim->owned;
    sim->owned = block;
    return (char *)block + header;
}

/* Return *at* with room for *count* objects; its owner frees it. */
void *ev_grown(Sim *sim, void *at, int64_t count, size_t size) {
    if (count < 0 || (uint64_t)count > SIZE_MAX / size) ev_fail(sim, NO_MEMORY);
    void *larger = realloc(at, count ? (size_t)count * size : 1);
    if (larger == NULL) ev_fail(sim, NO_MEMORY);
    return larger;
}

void *ev_take(Sim *sim, Pool *pool) {
    if (pool->free == NULL) {
        const size_t each = 256;
        char *block = ev_memory(sim, (int64_t)each, pool->size);
        for (size_t place = 0; place < each; place++) ev_give(pool, block + place * pool->size);
    }
    void *object = pool->free;
    memcpy(&pool->free, object, sizeof(void *));
    memset(object, 0, pool->size);
    return object;
}

void ev_give(Pool *pool, void *object) {
    memcpy(object, &pool->free, sizeof(void *));
    pool->free = object;
}

static void append(Sim *sim, Rows *rows, int64_t row) {
    if (rows->count == rows->room) {
        int64_t room = rows->room ? 2 * rows->room : 8;
        rows->at = ev_grown(sim, rows->at, room, sizeof(int32_t));
        rows->room = room;
    }
    rows->at[rows->count++] = (int32_t)row;
}

/* ------------------------------------------------------------------------------------------------- tables */

#define EMPTY INT64_MIN     /* in `a` of a key */

static uint64_t hash_of(const Key *key) {
    uint64_t mixed = (uint64_t)key->a * 0x9E3779B97F4A7C15u + (uint64_t)key->b;
    mixed = (mixed ^ (mixed >> 32)) * 0xBF58476D1CE4E5B9u + (uint64_t)key->c;
    mixed = (mixed ^ (mixed >> 29)) * 0x94D049BB133111EBu + (uint64_t)key->d;
    mixed = (mixed ^ (mixed >> 32)) * 0x9E3779B97F4A7C15u;
    return mixed ^ (mixed >> 29);
}

static int same(const Key *one, const Key *other) {
    return one->a == other->a && one->b == other->b && one->c == other->c && one->d == other->d;
}

Value *ev_find(const Table *table, const Key *key) {
    if (table->room == 0) return NULL;
    size_t mask = table->room - 1;
    for (size_t place = hash_of(key) & mask; table->at[place].key.a != EMPTY; place = (place + 1) & mask)
        if (same(&table->at[place].key, key)) return &table->at[place].value;
    return NULL;
}

static void enlarge(Sim *sim, Table *table) {
    Table larger = {NULL, table->count, table->room ? 2 * table->room : 64};
    larger.at = ev_grown(sim, NULL, (int64_t)larger.room, sizeof(Entry));
    size_t mask = larger.room - 1;
    for (size_t place = 0; place < larger.room; place++) larger.at[place].key.a = EMPTY;
    for (size_t old = 0; old < table->room; old++) {
        if (table->at[old].key.a == EMPTY) continue;
        size_t place = hash_of(&table->at[old].key) & mask;
        while (larger.at[place].key.a != EMPTY) place = (place + 1) & mask;
        larger.at[place] = table->at[old];
    }
    free(table->at);
    *table = larger;
}

/* Return the value of a key that is not in the table yet; it is valid until the next insertion. */
Value *ev_insert(Sim *sim, Table *table, const Key *key) {
    if (2 * (table->count + 1) > table->room) enlarge(sim, table);
    size_t mask = table->room - 1, place = hash_of(key) & mask;
    while (table->at[place].key.a != EMPTY) place = (place + 1) & mask;
    table->at[place].key = *key;
    table->count++;
    return &table->at[place].value;
}

/* Remove an entry, and move those that it had displaced. */
void ev_remove(Table *table, Value *value) {
    Entry *entry = (Entry *)((char *)value - offsetof(Entry, value));
    size_t mask = table->room - 1, hole = (size_t)(entry - table->at);
    for (size_t place = (hole + 1) & mask; table->at[place].key.a != EMPTY; place = (place + 1) & mask) {
        size_t home = hash_of(&table->at[place].key) & mask;
        if (((place - home) & mask) < ((place - hole) & mask)) continue;
        table->at[hole] = table->at[place];
        hole = place;
    }
    table->at[hole].key.a = EMPTY;
    table->count--;
}

/* ------------------------------------------------------------------------------------------------- clock */

/* Whether an event comes before another. No branches: which of two is first cannot be predicted. */
static inline int before(const Event *one, const Event *other) {
    int same_first = (one->first < other->first) | ((one->first == other->first) & (one->count < other->count));
    int same_time = (one->decided < other->decided) | ((one->decided == other->decided) & same_first);
    return (one->time < other->time) | ((one->time == other->time) & same_time);
}

/* The queue is a heap whose nodes have four children: it is half as deep as a binary one. */
static void push(Sim *sim, const Event *event) {
    Clock *clock = &sim->clock;
    if (event->time >= LAST_NS) ev_fail(sim, UNLIKE);
    if (clock->length == clock->room) {
        size_t room = clock->room ? 2 * clock->room : 1024;
        clock->queue = ev_grown(sim, clock->queue, (int64_t)room, sizeof(Event));
        clock->room = room;
    }
    size_t place = clock->length++;
    while (place > 0) {
        size_t above = (place - 1) / 4;
        if (!before(event, &clock->queue[above])) break;
        clock->queue[place] = clock->queue[above];
        place = above;
    }
    clock->queue[place] = *event;
}

static Event pop(Clock *clock) {
    Event top = clock->queue[0];
    size_t length = --clock->length, place = 0;
    const Event *last = &clock->queue[length];
    for (;;) {
        size_t child = 4 * place + 1, end = child + 4 < length ? child + 4 : length;
        if (child >= length) break;
        size_t least = child;
        for (size_t other = child + 1; other < end; other++)
            if (before(&clock->queue[other], &clock->queue[least])) least = other;
        if (!before(&clock->queue[least], last)) break;
        clock->queue[place] = clock->queue[least];
        place = least;
    }
    clock->queue[place] = *last;
    return top;
}

void ev_after(Sim *sim, int64_t delay, Then then) {
    Clock *clock = &sim->clock;
    int64_t count = ++clock->count;
    Event event = {clock->now + delay, clock->now, count, count, then, GLOBAL};
    push(sim, &event);
}

void ev_at_place(Sim *sim, int64_t time, int64_t decided, int64_t first, Then then) {
    Event event = {time, decided, first, first, then, GLOBAL};
    push(sim, &event);
}

/* Events of a rank for one moment form a batch: all take the place of the first. */
void ev_of_rank_at(Sim *sim, int64_t owner, int64_t time, int64_t decided, Then then) {
    Clock *clock = &sim->clock;
    Key key = {owner, time, 0, 0};
    int64_t count = ++clock->count;
    Value *place = ev_find(&clock->batches, &key);
    if (place == NULL) {
        place = ev_insert(sim, &clock->batches, &key);
        place->pair.x = decided;
        place->pair.y = count;
    }
    Event event = {time, place->pair.x, place->pair.y, count, then, owner};
    push(sim, &event);
}

static void end_batch(Sim *sim) {
    Clock *clock = &sim->clock;
    Key key = {clock->batch_owner, clock->batch_time, 0, 0};
    Value *place = ev_find(&clock->batches, &key);
    if (place == NULL) ev_fail(sim, UNLIKE);
    ev_remove(&clock->batches, place);
    clock->batch_owner = GLOBAL;
}

/* Run up to *most* events, fewer if some take long; return whether any are left. */
static int run_events(Sim *sim, int64_t most) {
    Clock *clock = &sim->clock;
    for (sim->left = most; clock->length > 0 && sim->left > 0; sim->left--) {
        Event event = pop(clock);
        int same_batch = clock->batch_owner == event.owner && clock->batch_time == event.time;
        if (clock->batch_owner != GLOBAL && !same_batch) end_batch(sim);
        if (event.owner != GLOBAL) {
            clock->batch_owner = event.owner;
            clock->batch_time = event.time;
        }
        clock->now = event.time;
        clock->decided = event.decided;
        clock->first = event.first;
        ev_do(sim, event.then);
    }
    return clock->length > 0;
}

/* ------------------------------------------------------------------------------------------------- order */

/* Record an event that *decider* scheduled, and return whether it is tied with the one before. */
static int tied(const Clock *clock, Order *order, int64_t decider) {
    if (order->time == clock->now && order->decided == clock->decided) {
        int is_tied = decider != order->decider;
        order->decider = decider;
        order->freed_before = order->freed.count;
        order->started_before = order->started.count;
        return is_tied;
    }
    order->time = clock->now;
    order->decided = clock->decided;
    order->decider = decider;
    order->freed.count = order->started.count = 0;
    return 0;
}

/* Fail if a row freed last should have started before one that has started. */
static void check_freed(Sim *sim, const Rank *rank) {
    const Order *order = &rank->order;
    const int64_t *slot = sim->job->slot.at + rank->row;
    for (int64_t place = order->freed_before; place < order->freed.count; place++) {
        int64_t child = order->freed.at[place];
        if (slot[child] == NO_SLOT) continue;
        for (int64_t other = 0; other < order->started.count; other++) {
            int64_t row = order->started.at[other];
            if (slot[row] == slot[child] && row > child) ev_fail(sim, AMBIGUOUS);
        }
    }
}

/* Fail if a row started last was freed before, and another could have started in its place. */
static void check_started(Sim *sim, const Rank *rank) {
    const Order *order = &rank->order;
    const int64_t *slot = sim->job->slot.at + rank->row;
    for (int64_t place = order->started_before; place < order->started.count; place++) {
        int64_t row = order->started.at[place], freed = order->place[row];
        int was_freed = freed < order->freed_before && order->freed.at[freed] == row;
        if (was_freed && rank->ready[slot[row]].count) ev_fail(sim, AMBIGUOUS);
    }
}

static void note_freed(Sim *sim, Order *order, int64_t row) {
    order->place[row] = (int32_t)order->freed.count;
    append(sim, &order->freed, row);
}

/* ------------------------------------------------------------------------------------------------- ranks */

/* Ready rows of a slot: a binary heap, the lowest row first. */
static void push_row(Sim *sim, Rows *heap, int64_t row) {
    append(sim, heap, row);
    int64_t place = heap->count - 1;
    while (place > 0 && heap->at[(place - 1) / 2] > row) {
        heap->at[place] = heap->at[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap->at[place] = (int32_t)row;
}

static int64_t pop_row(Rows *heap) {
    int32_t top = heap->at[0], last = heap->at[--heap->count];
    int64_t place = 0;
    for (int64_t child = 1; child < heap->count; child = 2 * place + 1) {
        if (child + 1 < heap->count && heap->at[child + 1] < heap->at[child]) child++;
        if (heap->at[child] >= last) break;
        heap->at[place] = heap->at[child];
        place = child;
    }
    if (heap->count) heap->at[place] = last;
    return top;
}

static void release(Sim *sim, Rank *rank, int64_t row) {
    const Job *job = sim->job;
    const int64_t *slot = job->slot.at + rank->row;
    const int64_t *start = job->child_start.at + rank->row + row;
    job->ended.at[rank->first + row] = sim->clock.now;
    rank->busy[slot[row]]--;
    rank->ongoing--;
    for (int64_t place = start[0]; place < start[1]; place++) {
        int64_t child = job->child.at[place];
        if (--rank->waits[child] != 0) continue;
        if (job->checks_order) note_freed(sim, &rank->order, child);
        if (rank->issuing)
            append(sim, &rank->fresh, child);
        else
            push_row(sim, &rank->ready[slot[child]], child);
    }
}

static void start(Sim *sim, Rank *rank, int64_t row, int64_t slot) {
    const Job *job = sim->job;
    rank->busy[slot]++;
    rank->ongoing++;
    if (job->checks_order) append(sim, &rank->order.started, row);
    job->begun.at[rank->first + row] = sim->clock.now;
    switch (job->action.at[rank->row + row]) {
    case RUN:
        job->computed_ns.at[rank->entity] += job->compute_ns.at[rank->row + row];
        ev_of_rank(sim, rank->entity, job->duration_ns.at[rank->row + row], ev_then(COMPLETE, rank, row));
        break;
    case COLLECTIVE: ev_start_collective(sim, rank, row); break;
    case SKIP: release(sim, rank, row); break;
    case ACCESS: ev_access(sim, rank, row); break;
    default: ev_exchange(sim, rank, row);
    }
}

/* Return the slot of the first node that can start; -1 if none can. */
static int64_t next_slot(const Rank *rank) {
    int64_t found = -1, best = 0;
    for (int64_t slot = 0; slot < SLOTS; slot++) {
        const Rows *heap = &rank->ready[slot];
        if (heap->count == 0 || (slot != NO_SLOT && rank->busy[slot])) continue;
        if (found < 0 || heap->at[0] < best) {
            found = slot;
            best = heap->at[0];
        }
    }
    return found;
}

/* Issue every node that can start; nodes that a skipped node frees wait for the next event, as in ASTRA-sim. */
static void issue(Sim *sim, Rank *rank) {
    const int64_t *slots = sim->job->slot.at + rank->row;
    for (;;) {
        rank->issuing = 1;
        for (int64_t slot = next_slot(rank); slot >= 0; slot = next_slot(rank))
            start(sim, rank, pop_row(&rank->ready[slot]), slot);
        rank->issuing = 0;
        if (rank->fresh.count == 0) return;
        for (int64_t place = 0; place < rank->fresh.count; place++) {
            int64_t row = rank->fresh.at[place];
            push_row(sim, &rank->ready[slots[row]], row);
        }
        rank->fresh.count = 0;
        if (rank->ongoing && sim->job->compat) return;
    }
}

static void check_end(Sim *sim, const Rank *rank) {
    if (rank->ongoing) return;
    for (int64_t slot = 0; slot < SLOTS; slot++)
        if (rank->ready[slot].count) return;
    sim->job->end_ns.at[rank->entity] = sim->clock.now;
}

static void begin(Sim *sim, Rank *rank) {
    const int64_t *slot = sim->job->slot.at + rank->row;
    for (int64_t row = 0; row < rank->nodes; row++)
        if (rank->waits[row] == 0) push_row(sim, &rank->ready[slot[row]], row);
    issue(sim, rank);
    check_end(sim, rank);
}

void ev_complete(Sim *sim, Rank *rank, int64_t row) {
    const Job *job = sim->job;
    int is_tied = 0;
    if (job->checks_order) {
        int receives = job->action.at[rank->row + row] == RECEIVE;
        int64_t decider = receives ? ~job->peer.at[job->use.at[rank->first + row]] : rank->entity;
        is_tied = tied(&sim->clock, &rank->order, decider);
    }
    release(sim, rank, row);
    if (is_tied) check_freed(sim, rank);
    issue(sim, rank);
    if (is_tied) check_started(sim, rank);
    check_end(sim, rank);
}

void ev_do(Sim *sim, Then then) {
    if (then.code == COMPLETE)
        ev_complete(sim, then.what, then.row);
    else if (then.code == PROCEED)
        ev_proceed(sim, then.what);
    else if (then.code <= SWITCH_LEAVE)
        ev_machine(sim, then);
    else
        ev_message(sim, then);
}

/* ------------------------------------------------------------------------------------------------- interface */

static void prepare_rank(Sim *sim, Rank *rank, int64_t entity) {
    const Job *job = sim->job;
    int64_t queues = job->dims * job->queues_per_dim;
    rank->entity = entity;
    rank->rank = job->rank.at[entity];
    rank->first = job->node_first.at[entity];
    rank->row = job->template_first.at[entity];
    rank->nodes = job->node_first.at[entity + 1] - rank->first;
    rank->waits = ev_memory(sim, rank->nodes, sizeof(int32_t));
    for (int64_t row = 0; row < rank->nodes; row++) rank->waits[row] = (int32_t)job->waits.at[rank->row + row];
    rank->queues = ev_memory(sim, queues, sizeof(Queue));
    for (int64_t place = 0; place < queues; place++) {
        Queue *queue = &rank->queues[place];
        queue->entered_at = queue->entered_from = queue->left_at = queue->left_stream = -1;
    }
    rank->turns = ev_memory(sim, job->dims, sizeof(Turn));
    rank->trees = ev_memory(sim, KINDS * job->dims, 1);
    rank->order.time = rank->order.decided = rank->order.decider = NEVER;
    if (job->checks_order) rank->order.place = ev_memory(sim, rank->nodes, sizeof(int32_t));
}

static void prepare(Sim *sim) {
    const Job *job = sim->job;
    int64_t most_visits = 0, most_members = 0;
    for (int64_t each = 0; each + 1 < job->variant_visit.count; each++) {
        int64_t visits = job->variant_visit.at[each + 1] - job->variant_visit.at[each];
        most_visits = visits > most_visits ? visits : most_visits;
    }
    for (int64_t ring = 0; ring + 1 < job->ring_first.count; ring++) {
        int64_t members = job->ring_first.at[ring + 1] - job->ring_first.at[ring];
        most_members = members > most_members ? members : most_members;
    }
    sim->clock.batch_owner = GLOBAL;
    sim->messages.size = sizeof(Message);
    sim->waitings.size = sizeof(Waiting);
    sim->requests.size = sizeof(Request);
    sim->collectives.size = sizeof(Collective);
    sim->links.size = sizeof(Link);
    sim->streams.size = (sizeof(Stream) + (size_t)most_visits * sizeof(int32_t) + 15) / 16 * 16;
    sim->starts = ev_memory(sim, most_members, sizeof(int64_t));
    sim->ready = ev_memory(sim, most_members, sizeof(int64_t));
    sim->after = ev_memory(sim, most_members, sizeof(int64_t));
    sim->delays = ev_memory(sim, most_members, sizeof(int64_t));
    for (int64_t node = 0; node < job->begun.count; node++) job->begun.at[node] = job->ended.at[node] = NEVER;
    for (int64_t each = 0; each < job->sent.count; each++) job->sent.at[each] = 0;
    for (int64_t each = 0; each < job->streams.count; each++) job->streams.at[each] = 0;
    sim->ranks = ev_memory(sim, job->entities, sizeof(Rank));
    for (int64_t entity = 0; entity < job->entities; entity++) {
        job->end_ns.at[entity] = NEVER;
        job->computed_ns.at[entity] = 0;
        prepare_rank(sim, &sim->ranks[entity], entity);
    }
    ev_prepare_network(sim);
}

/* Return a simulation of *job*, whose columns must outlive it; NULL if there is no memory. */
COSMIC_EXPORT Sim *cosmic_events_new(const Job *job) {
    Sim *sim = calloc(1, sizeof(Sim));
    if (sim != NULL) sim->job = job;
    return sim;
}

/* Simulate up to *most* events; return how that ended. Called again, it continues. */
COSMIC_EXPORT int cosmic_events_run(Sim *sim, int64_t most) {
    int status = setjmp(sim->failed);
    if (status) return status;
    if (!sim->begun) {
        if (!ev_is_valid(sim->job)) return INVALID;
        prepare(sim);
        sim->begun = 1;
        for (int64_t entity = 0; entity < sim->job->entities; entity++) begin(sim, &sim->ranks[entity]);
    }
    return run_events(sim, most) ? MORE : DONE;
}

/* Return the number of events scheduled so far. */
COSMIC_EXPORT int64_t cosmic_events_count(const Sim *sim) { return sim->clock.count; }

COSMIC_EXPORT int64_t cosmic_events_links(const Sim *sim) { return sim->link_count; }

/* Write five numbers for each link: dimension, kind, from, to, busy nanoseconds. */
COSMIC_EXPORT void cosmic_events_read_links(const Sim *sim, int64_t *into) {
    for (const Link *link = sim->first_link; link != NULL; link = link->next) {
        *into++ = link->place;
        *into++ = link->kind;
        *into++ = link->from;
        *into++ = link->to;
        *into++ = link->busy_ns;
    }
}

static void free_values(Table *table) {
    for (size_t place = 0; place < table->room; place++)
        if (table->at[place].key.a != EMPTY) free(table->at[place].value.pointer);
    free(table->at);
}

static void free_rank(Rank *rank, int64_t queues) {
    for (int64_t slot = 0; slot < SLOTS; slot++) free(rank->ready[slot].at);
    free(rank->fresh.at);
    free(rank->order.freed.at);
    free(rank->order.started.at);
    for (int64_t place = 0; rank->queues != NULL && place < queues; place++) free(rank->queues[place].at);
}

COSMIC_EXPORT void cosmic_events_free(Sim *sim) {
    if (sim == NULL) return;
    for (int64_t entity = 0; sim->ranks != NULL && entity < sim->job->entities; entity++)
        free_rank(&sim->ranks[entity], sim->job->dims * sim->job->queues_per_dim);
    free_values(&sim->gatherings);
    free_values(&sim->switches);
    free_values(&sim->done);
    free(sim->chunks);
    free(sim->mailbox.at);
    free(sim->direct_links.at);
    free(sim->clock.batches.at);
    free(sim->clock.queue);
    for (void **block = sim->owned; block != NULL;) {
        void **next = block[0];
        free(block);
        block = next;
    }
    free(sim);
}
