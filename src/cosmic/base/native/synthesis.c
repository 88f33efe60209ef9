/* Schedules of collectives: trees for chunks (`cosmic_synthesis_plan`), and transfers in time (`cosmic_synthesis_play`).
 * The same, line by line, as `cosmic.network.synthesis.synthesis_loops`, which says what it means. */
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "native.h"

typedef struct {
    int64_t nodes, routes, links, machines, chunks;
    const int32_t *from, *to;           /* of each route; routes are sorted by where they begin */
    const int32_t *hop_first, *hops;    /* links of each route, in order */
    const int32_t *out_first;           /* routes that begin at each node */
    const int32_t *machine;             /* of each link: links that are always used alike share one */
    const double *seconds;              /* of each link, for chunks of each size */
    const int32_t *size, *origin;       /* of each chunk */
    uint8_t *need;                      /* chunk by node: 1 where it must arrive, 2 where it passes */
    int32_t *plan;                      /* chunk by node: the route by which it is to arrive, or -1 */
    const double *release_s;            /* of each chunk: when it is there */
} Problem;

/* Digits that decide between equals: those of splitmix64. */
static uint32_t mixed(uint64_t seed, uint64_t chunk, uint64_t place) {
    uint64_t z = seed * 0x9E3779B97F4A7C15u + chunk * 0xD1B54A32D192ED03u + place * 0x8CB92BA72F3D8DD7u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

/* ---------------------------------------------------------------- trees */

typedef struct {
    double target, mu;
    int64_t paths, seed;
    double *load;
    double *depth;
    int32_t *order, *children;
    uint8_t *done;
    Heap heap;
} Growth;

static double cost(const Problem *p, const Growth *g, const double *seconds, int32_t route, double *length) {
    double sum = 0.0;
    *length = 0.0;
    for (int32_t at = p->hop_first[route]; at < p->hop_first[route + 1]; at++) {
        double full = g->load[p->machine[p->hops[at]]] / g->target;
        double two = full * full, four = two * two;
        sum += seconds[p->hops[at]] * (g->mu + four * four);
        *length += seconds[p->hops[at]];
    }
    return sum;
}

static double key_of(const Problem *p, const Growth *g, const double *seconds, int32_t route, double *depth) {
    double length, own = cost(p, g, seconds, route, &length), above = g->depth[p->from[route]];
    double key = (g->paths ? above : g->mu * above) + own;
    *depth = g->paths ? key : above + length;
    return key;
}

static void charge(const Problem *p, Growth *g, const double *seconds, int32_t route, double sign) {
    for (int32_t at = p->hop_first[route]; at < p->hop_first[route + 1]; at++)
        g->load[p->machine[p->hops[at]]] += sign * seconds[p->hops[at]];
}

static int reach(const Problem *p, Growth *g, const double *seconds, int64_t chunk, int32_t node) {
    double depth;
    g->done[node] = 1;
    for (int32_t route = p->out_first[node]; route < p->out_first[node + 1]; route++) {
        if (g->done[p->to[route]]) continue;
        Item item = {key_of(p, g, seconds, route, &depth), mixed((uint64_t)g->seed, (uint64_t)chunk, (uint64_t)route),
                     route, 0};
        if (!heap_push(&g->heap, item)) return 0;
    }
    return 1;
}

static void clear_tree(const Problem *p, Growth *g, const double *seconds, int64_t chunk) {
    uint8_t *need = p->need + chunk * p->nodes;
    int32_t *plan = p->plan + chunk * p->nodes;
    for (int64_t node = 0; node < p->nodes; node++) {
        if (plan[node] >= 0) charge(p, g, seconds, plan[node], -1.0);
        plan[node] = -1;
        if (need[node] == 2) need[node] = 0;
    }
}

static void prune(const Problem *p, Growth *g, const double *seconds, int64_t chunk, int64_t count) {
    uint8_t *need = p->need + chunk * p->nodes;
    int32_t *plan = p->plan + chunk * p->nodes;
    for (int64_t at = 0; at < count; at++) g->children[g->order[at]] = 0;
    g->children[p->origin[chunk]] = 0;
    for (int64_t at = count - 1; at >= 0; at--) {
        int32_t node = g->order[at], route = plan[node];
        if (!need[node] && !g->children[node]) {
            if (!g->paths) charge(p, g, seconds, route, -1.0);
            plan[node] = -1;
            continue;
        }
        if (!need[node]) need[node] = 2;
        g->children[p->from[route]]++;
        if (g->paths) charge(p, g, seconds, route, 1.0);
    }
}

/* Grow the tree of one chunk; 1 when it reaches all that need it, 0 when it cannot, -1 without memory. */
static int grow(const Problem *p, Growth *g, int64_t chunk) {
    const double *seconds = p->seconds + (int64_t)p->size[chunk] * p->links;
    const uint8_t *need = p->need + chunk * p->nodes;
    int32_t *plan = p->plan + chunk * p->nodes;
    int64_t count = 0, open = 0;
    clear_tree(p, g, seconds, chunk);
    for (int64_t node = 0; node < p->nodes; node++) open += need[node] == 1;
    memset(g->done, 0, (size_t)p->nodes);
    g->heap.count = 0;
    g->depth[p->origin[chunk]] = 0.0;
    if (!reach(p, g, seconds, chunk, p->origin[chunk])) return -1;
    while (open && g->heap.count) {
        Item item = heap_pop(&g->heap);
        int32_t node = p->to[item.place];
        double depth, key;
        if (g->done[node]) continue;
        key = key_of(p, g, seconds, item.place, &depth);
        if (key > item.key) {
            item.key = key;
            if (!heap_push(&g->heap, item)) return -1;
            continue;
        }
        g->depth[node] = depth;
        plan[node] = item.place;
        g->order[count++] = node;
        if (!g->paths) charge(p, g, seconds, item.place, 1.0);
        open -= need[node] == 1;
        if (!reach(p, g, seconds, chunk, node)) return -1;
    }
    prune(p, g, seconds, chunk, count);
    return open == 0;
}

/* Give every chunk a tree, and some rounds of new trees beside those of the others. Returns 1, 0 or -1 as `grow`. */
COSMIC_EXPORT int64_t cosmic_synthesis_plan(const Problem *p, double target, double mu, int64_t paths, int64_t rounds,
                                            int64_t seed, double *load) {
    Growth g = {target, mu, paths, seed, load, NULL, NULL, NULL, NULL, {NULL, 0, 0}};
    int64_t result = -1;
    g.depth = malloc((size_t)p->nodes * sizeof(double));
    g.order = malloc((size_t)p->nodes * sizeof(int32_t));
    g.children = malloc((size_t)p->nodes * sizeof(int32_t));
    g.done = malloc((size_t)p->nodes);
    if (g.depth && g.order && g.children && g.done) {
        result = 1;
        for (int64_t round = 0; round < rounds && result == 1; round++)
            for (int64_t chunk = 0; chunk < p->chunks && result == 1; chunk++) {
                g.seed = seed + round;
                result = grow(p, &g, chunk);
            }
    }
    free(g.depth);
    free(g.order);
    free(g.children);
    free(g.done);
    free(g.heap.items);
    return result;
}

/* ---------------------------------------------------------------- transfers in time */

typedef struct {
    int32_t chunk, route, hop;
} Entry;

typedef struct {
    Entry *items;
    int64_t first, count, room;
} Entries;

static int append(Entries *list, Entry entry) {
    if (list->count == list->room) {
        int64_t room = list->room ? 2 * list->room : 8;
        Entry *items = realloc(list->items, (size_t)room * sizeof(Entry));
        if (!items) return 0;
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = entry;
    return 1;
}

typedef struct {
    Heap ready;        /* planned transfers whose chunk is there */
    Entries waiting;   /* at a switch, to be passed on */
    Entries others;    /* transfers that are possible, planned or not */
    Entry now;
    double free_s, promised_s;
    uint8_t busy, touched;
} Machine;

typedef struct {
    Machine *machines;
    uint8_t *state; /* chunk by node: 0 absent, 1 on its way, 2 there */
    double *tail;   /* chunk by node: seconds from its arrival until all behind it have it */
    int32_t *holders;
    int32_t *touched;
    int64_t touched_count;
    Heap events;
    int64_t steal, seed, window, lenient, in_turn, done, room;
    int32_t *link, *chunk;
    double *start_s, *end_s;
} Play;

static void touch(Play *play, int32_t machine) {
    if (play->machines[machine].touched) return;
    play->machines[machine].touched = 1;
    play->touched[play->touched_count++] = machine;
}

static double route_seconds(const Problem *p, int64_t chunk, int32_t route) {
    const double *seconds = p->seconds + (int64_t)p->size[chunk] * p->links;
    double sum = 0.0;
    for (int32_t at = p->hop_first[route]; at < p->hop_first[route + 1]; at++) sum += seconds[p->hops[at]];
    return sum;
}

/* Tails: from every node up, as long as its way is the longest so far. */
static void measure(const Problem *p, Play *play, int64_t chunk) {
    const int32_t *plan = p->plan + chunk * p->nodes;
    double *tail = play->tail + chunk * p->nodes;
    for (int64_t node = 0; node < p->nodes; node++) tail[node] = 0.0;
    for (int64_t node = 0; node < p->nodes; node++) {
        int32_t at = (int32_t)node;
        while (plan[at] >= 0) {
            int32_t up = p->from[plan[at]];
            double through = tail[at] + route_seconds(p, chunk, plan[at]);
            if (through <= tail[up]) break;
            tail[up] = through;
            at = up;
        }
    }
}

static int arrive(const Problem *p, Play *play, int64_t chunk, int32_t node) {
    const int32_t *plan = p->plan + chunk * p->nodes;
    const uint8_t *need = p->need + chunk * p->nodes;
    uint8_t *state = play->state + chunk * p->nodes;
    state[node] = 2;
    for (int32_t route = p->out_first[node]; route < p->out_first[node + 1]; route++) {
        int32_t to = p->to[route];
        if (!need[to] || state[to]) continue;
        int32_t machine = p->machine[p->hops[p->hop_first[route]]];
        int planned = plan[to] == route;
        if (planned) {
            double after = play->tail[chunk * p->nodes + to];
            Item item = {play->in_turn ? (double)chunk : -after, mixed((uint64_t)play->seed, (uint64_t)chunk, (uint64_t)to), route, (int32_t)chunk};
            if (!heap_push(&play->machines[machine].ready, item)) return 0;
        }
        if (play->steal) {
            Entry entry = {(int32_t)chunk, route, 0};
            if (!append(&play->machines[machine].others, entry)) return 0;
        }
        if ((planned || play->steal) && !play->machines[machine].busy) touch(play, machine);
    }
    return 1;
}

static int begin(const Problem *p, Play *play, int32_t machine, Entry entry, double now) {
    int32_t link = p->hops[p->hop_first[entry.route] + entry.hop];
    double end = now + p->seconds[(int64_t)p->size[entry.chunk] * p->links + link];
    Machine *m = &play->machines[machine];
    if (play->done == play->room) return 0;
    m->busy = 1;
    m->now = entry;
    m->free_s = end;
    play->link[play->done] = link;
    play->chunk[play->done] = entry.chunk;
    play->start_s[play->done] = now;
    play->end_s[play->done++] = end;
    Item event = {end, 0, machine, 0};
    return heap_push(&play->events, event);
}

/* When a transfer that begins now would arrive, given what switches have been promised. */
static double arrival(const Problem *p, Play *play, Entry entry, double now, int promise) {
    const double *seconds = p->seconds + (int64_t)p->size[entry.chunk] * p->links;
    int32_t first = p->hop_first[entry.route];
    double at = now + seconds[p->hops[first]];
    for (int32_t hop = first + 1; hop < p->hop_first[entry.route + 1]; hop++) {
        Machine *m = &play->machines[p->machine[p->hops[hop]]];
        at = (m->promised_s > at ? m->promised_s : at) + seconds[p->hops[hop]];
        if (promise) m->promised_s = at;
    }
    return at;
}

static int claim(const Problem *p, Play *play, int32_t machine, Entry entry, double now) {
    play->state[entry.chunk * p->nodes + p->to[entry.route]] = 1;
    play->holders[entry.chunk]++;
    arrival(p, play, entry, now, 1);
    return begin(p, play, machine, entry, now);
}

/* Whether a transfer that is not planned comes no later than the planned one could. */
static int worth(const Problem *p, Play *play, Entry entry, double arrives) {
    int32_t planned = p->plan[entry.chunk * p->nodes + p->to[entry.route]];
    if (planned < 0 || planned == entry.route) return 1;
    double other = route_seconds(p, entry.chunk, planned);
    if (play->state[entry.chunk * p->nodes + p->from[planned]] != 2)
        return play->lenient && route_seconds(p, entry.chunk, entry.route) <= other;
    return arrives <= play->machines[p->machine[p->hops[p->hop_first[planned]]]].free_s + other;
}

static int take_other(const Problem *p, Play *play, int32_t machine, double now) {
    Machine *m = &play->machines[machine];
    int64_t seen = 0, best = -1;
    double best_at = 0.0;
    int32_t best_holders = 0;
    uint32_t best_tie = 0;
    for (int64_t at = m->others.first; at < m->others.count && seen < play->window; at++) {
        Entry entry = m->others.items[at];
        if (play->state[entry.chunk * p->nodes + p->to[entry.route]]) {
            if (at == m->others.first) m->others.first++;
            continue;
        }
        seen++;
        double arrives = arrival(p, play, entry, now, 0);
        if (!worth(p, play, entry, arrives)) continue;
        int32_t holders = play->holders[entry.chunk];
        uint32_t tie = mixed((uint64_t)play->seed, (uint64_t)entry.chunk, (uint64_t)p->to[entry.route]);
        if (best >= 0 && (arrives > best_at || (arrives == best_at && (holders > best_holders ||
            (holders == best_holders && tie >= best_tie))))) continue;
        best = at;
        best_at = arrives;
        best_holders = holders;
        best_tie = tie;
    }
    if (best < 0) return 1;
    Entry entry = m->others.items[best];
    p->plan[entry.chunk * p->nodes + p->to[entry.route]] = entry.route;
    return claim(p, play, machine, entry, now);
}

static int dispatch(const Problem *p, Play *play, int32_t machine, double now) {
    Machine *m = &play->machines[machine];
    if (m->busy) return 1;
    if (m->waiting.first < m->waiting.count) return begin(p, play, machine, m->waiting.items[m->waiting.first++], now);
    while (m->ready.count) {
        Item item = heap_pop(&m->ready);
        Entry entry = {item.chunk, item.place, 0};
        if (play->state[(int64_t)item.chunk * p->nodes + p->to[item.place]]) continue;
        return claim(p, play, machine, entry, now);
    }
    return play->steal ? take_other(p, play, machine, now) : 1;
}

static int finish(const Problem *p, Play *play, int32_t machine) {
    if (machine >= p->machines) { /* a chunk that was not there from the beginning */
        int64_t chunk = machine - p->machines;
        return arrive(p, play, chunk, p->origin[chunk]);
    }
    Machine *m = &play->machines[machine];
    Entry entry = m->now;
    m->busy = 0;
    touch(play, machine);
    if (p->hop_first[entry.route] + entry.hop + 1 == p->hop_first[entry.route + 1])
        return arrive(p, play, entry.chunk, p->to[entry.route]);
    entry.hop++;
    int32_t next = p->machine[p->hops[p->hop_first[entry.route] + entry.hop]];
    touch(play, next);
    return append(&play->machines[next].waiting, entry);
}

static int settle(const Problem *p, Play *play, double now) {
    for (int64_t at = 0; at < play->touched_count; at++) {
        int32_t machine = play->touched[at];
        play->machines[machine].touched = 0;
        if (!dispatch(p, play, machine, now)) return 0;
    }
    play->touched_count = 0;
    return 1;
}

static int run(const Problem *p, Play *play) {
    for (int64_t chunk = 0; chunk < p->chunks; chunk++) {
        measure(p, play, chunk);
        play->holders[chunk] = 1;
    }
    for (int64_t chunk = 0; chunk < p->chunks; chunk++) {
        Item event = {p->release_s[chunk], 0, (int32_t)(p->machines + chunk), 0};
        if (!heap_push(&play->events, event)) return 0;
    }
    while (play->events.count) {
        double now = play->events.items[0].key;
        while (play->events.count && play->events.items[0].key == now)
            if (!finish(p, play, heap_pop(&play->events).place)) return 0;
        if (!settle(p, play, now)) return 0;
    }
    return 1;
}

/* Play the plan; the transfers are written to columns of *room* rows. Returns their number, -1 without memory or room. */
COSMIC_EXPORT int64_t cosmic_synthesis_play(const Problem *p, int64_t steal, int64_t window, int64_t lenient,
                                            int64_t in_turn, int64_t seed, int64_t room, int32_t *link, int32_t *chunk,
                                            double *start_s, double *end_s) {
    Play play = {NULL, NULL, NULL, NULL, NULL, 0, {NULL, 0, 0}, steal, seed, window, lenient, in_turn, 0, room,
                 link, chunk, start_s, end_s};
    int64_t result = -1;
    play.machines = calloc((size_t)p->machines, sizeof(Machine));
    play.state = calloc((size_t)(p->chunks * p->nodes), 1);
    play.tail = malloc((size_t)(p->chunks * p->nodes) * sizeof(double));
    play.holders = malloc((size_t)p->chunks * sizeof(int32_t));
    play.touched = malloc((size_t)p->machines * sizeof(int32_t));
    if (play.machines && play.state && play.tail && play.holders && play.touched && run(p, &play)) result = play.done;
    for (int64_t at = 0; play.machines && at < p->machines; at++) {
        free(play.machines[at].ready.items);
        free(play.machines[at].waiting.items);
        free(play.machines[at].others.items);
    }
    free(play.machines);
    free(play.state);
    free(play.tail);
    free(play.holders);
    free(play.touched);
    free(play.events.items);
    return result;
}
