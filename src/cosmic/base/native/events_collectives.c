/* The event engine's core: collectives in chunks, their queues, and their phases: message by message or in closed form.
 * See events.h. */
#include "events.h"

#include <stdlib.h>
#include <string.h>

static int64_t at(Column column, int64_t place) { return column.at[place]; }

/* Return the time to reduce a message: two reads and a write, each in whole nanoseconds. */
static int64_t reduction_ns(Sim *sim, int64_t size) {
    if (size == 0) return 0;
    double nanoseconds = (double)size / sim->job->memory_bytes_per_s * 1e9;
    if (sim->job->memory_bytes_per_s == 0 || !(nanoseconds < (double)(LAST_NS / 16))) ev_fail(sim, UNLIKE);
    return 3 * (int64_t)nanoseconds;
}

static void of_stream(Sim *sim, const Stream *stream, int64_t delay, Then then) {
    ev_of_rank(sim, stream->rank->entity, delay, then);
}

/* ------------------------------------------------------------------------------------------------- machines */

/* Take a packet between NPU and network, reduce *reduces* bytes, then do *code*. */
static void endpoint(Sim *sim, Stream *stream, int64_t reduces, int code) {
    if (reduces) {
        stream->reduction_ns = reduction_ns(sim, reduces);  /* equal for all packets of a stream at one time */
        of_stream(sim, stream, stream->endpoint_ns, ev_then(REDUCE, stream, code));
    } else {
        of_stream(sim, stream, stream->endpoint_ns, ev_then(code, stream, 0));
    }
}

/* Return what identifies a message from one member of a phase to another, which knows the group as *slot*. */
static Key key_of(const Sim *sim, const Stream *stream, int64_t from, int64_t entity, int64_t slot, int64_t step) {
    int64_t kind = at(sim->job->visit_kind, stream->now);
    Key key;
    key.a = (int64_t)((uint64_t)entity << 32 | (uint32_t)slot);
    key.b = (int64_t)((uint64_t)stream->ordinal << 32 | (uint32_t)step);
    key.c = at(sim->job->visit_size, stream->now);
    key.d = from << 32 | stream->next_phase << 8 | kind << 1;
    return key;
}

static void send_to(Sim *sim, Stream *stream, int64_t position, int64_t size, int64_t step) {
    const Job *job = sim->job;
    int64_t member = at(job->ring_first, stream->ring) + position;
    int64_t entity = at(job->ring_entity, member), slot = at(job->ring_slot, member);
    Key key = key_of(sim, stream, stream->rank->entity, entity, slot, step);
    ev_post_send(sim, stream->rank->rank, at(job->ring_rank, member), size, key, ev_then(NOTHING, NULL, 0));
}

static void receive_from(Sim *sim, Stream *stream, int64_t position, int64_t step, int code) {
    int64_t member = at(sim->job->ring_first, stream->ring) + position;
    Key key = key_of(sim, stream, at(sim->job->ring_entity, member), stream->rank->entity, stream->slot, step);
    ev_post_receive(sim, stream->rank->rank, at(sim->job->ring_rank, member), key, ev_then(code, stream, 0));
}

/* A list of steps, one round at a time: send, receive, continue. */

static int64_t program_of(const Sim *sim, const Stream *stream) {
    return at(stream->clockwise ? sim->job->visit_forward : sim->job->visit_backward, stream->now);
}

static void begin_steps(Sim *sim, Stream *stream) {
    stream->step = 0;
    stream->run = at(sim->job->program_run, program_of(sim, stream));
    stream->run_left = at(sim->job->step_times, stream->run);
    endpoint(sim, stream, 0, STEP_GO);
}

static void step_received(Sim *sim, Stream *stream) {
    if (--stream->waiting == 0) endpoint(sim, stream, at(sim->job->step_reduces, stream->run), STEP_GO);
}

static void step_go(Sim *sim, Stream *stream) {
    const Job *job = sim->job;
    int64_t end = at(job->program_run, program_of(sim, stream) + 1);
    int sent = 0, received = 0;
    stream->waiting = 1;    /* for the end of the round: what it receives may be there already */
    for (;;) {
        while (stream->run < end && stream->run_left == 0) {
            stream->run++;
            if (stream->run < end) stream->run_left = at(job->step_times, stream->run);
        }
        if (stream->run == end) break;
        int64_t member = at(job->relation_first, at(job->step_relation, stream->run)) + stream->position;
        int64_t to = at(job->to, member), source = at(job->source, member), step = stream->step++;
        stream->run_left--;
        int more = at(job->step_more, stream->run) != 0;
        if (to != NO_MEMBER) {
            sent = 1;
            send_to(sim, stream, to, at(job->step_size, stream->run), step);
        }
        if (source != NO_MEMBER) {
            received = 1;
            stream->waiting++;
            receive_from(sim, stream, source, step, STEP_RECEIVED);
        }
        if (more) continue;
        if (received) {
            step_received(sim, stream);
            return;
        }
        if (sent) {
            endpoint(sim, stream, 0, STEP_GO);
            return;
        }
    }
    ev_proceed(sim, stream);
}

/* Packets to all others, a window of them at once; an all-reduce is two such rounds. */

static void insert_direct(Sim *sim, Stream *stream) {
    int64_t kind = at(sim->job->visit_kind, stream->now), round = stream->window + stream->reducing;
    int64_t turn = stream->inserted / round, place = stream->inserted % round;
    stream->inserted++;
    int first_round = kind == ALL_REDUCE && turn % 2 == 0;
    int reduces = place >= stream->window && (first_round || kind == REDUCE_SCATTER);
    endpoint(sim, stream, reduces ? stream->part : 0, DIRECT_GO);
}

static void begin_direct(Sim *sim, Stream *stream) {
    const Job *job = sim->job;
    int64_t kind = at(job->visit_kind, stream->now), size = at(job->visit_size, stream->now);
    int64_t window = at(job->visit_window, stream->now);
    stream->others = stream->members - 1;
    stream->way = stream->clockwise ? 1 : -1;
    stream->part = kind == ALL_GATHER ? size : size / stream->members;
    stream->window = window > 0 && window < stream->others ? window : stream->others;
    stream->packets = stream->others * (kind == ALL_REDUCE ? 2 : 1);
    stream->reducing = stream->window * (stream->in_group ? stream->others : 1);
    stream->inserted = stream->sent = stream->free = stream->arrived = 0;
    for (int64_t packet = 0; packet < stream->window; packet++) insert_direct(sim, stream);
}

static void send_direct(Sim *sim, Stream *stream) {
    if (stream->sent == stream->packets || stream->free == 0 || stream->sent == stream->inserted) return;
    int64_t members = stream->members, distance = stream->way * (stream->sent % stream->others + 1);
    int64_t to = (stream->position + distance + members) % members;
    int64_t source = (stream->position - distance + members) % members;
    send_to(sim, stream, to, stream->part, stream->sent);
    receive_from(sim, stream, source, stream->sent, DIRECT_RECEIVED);
    stream->sent++;
    stream->free--;
}

static void direct_go(Sim *sim, Stream *stream) {
    stream->free++;
    int64_t left = stream->packets - stream->sent;
    if (at(sim->job->visit_kind, stream->now) == ALL_REDUCE && left <= stream->others) {
        if (stream->arrived < stream->others) return;
        for (int64_t packet = 0; packet < stream->window; packet++) send_direct(sim, stream);
    } else {
        send_direct(sim, stream);
    }
    if (stream->sent == stream->packets && stream->free == stream->window) ev_proceed(sim, stream);
}

/* Up a binary tree and down again, whole chunks. */

enum { DOWN = -1, UP = -2 };    /* steps of a tree: down, and up from child c: UP - c */

typedef struct {
    int64_t parent, child[2], children;
} Place;

static Place place_in_tree(const Sim *sim, const Stream *stream) {
    const Job *job = sim->job;
    int64_t place = at(job->visit_tree, stream->now) + stream->tree * stream->members + stream->position;
    Place found = {at(job->parent, place), {at(job->first_child, place), at(job->second_child, place)}, 0};
    found.children = (found.child[0] != NO_MEMBER) + (found.child[1] != NO_MEMBER);
    return found;
}

static void begin_tree(Sim *sim, Stream *stream) {
    Place place = place_in_tree(sim, stream);
    stream->arrived = stream->reduced = 0;
    if (place.children == 0) endpoint(sim, stream, 0, TREE_UPWARDS);
    for (int64_t child = 0; child < place.children; child++)
        receive_from(sim, stream, place.child[child], UP - place.child[child], TREE_FROM_CHILD);
}

static void tree_downwards(Sim *sim, Stream *stream) {
    Place place = place_in_tree(sim, stream);
    for (int64_t child = 0; child < place.children; child++)
        send_to(sim, stream, place.child[child], at(sim->job->visit_size, stream->now), DOWN);
    ev_proceed(sim, stream);
}

static void tree_upwards(Sim *sim, Stream *stream) {
    Place place = place_in_tree(sim, stream);
    if (place.parent == NO_MEMBER) {
        tree_downwards(sim, stream);
        return;
    }
    send_to(sim, stream, place.parent, at(sim->job->visit_size, stream->now), UP - stream->position);
    receive_from(sim, stream, place.parent, DOWN, TREE_FROM_PARENT);
}

static void tree_added(Sim *sim, Stream *stream) {
    if (++stream->reduced == place_in_tree(sim, stream).children) tree_upwards(sim, stream);
}

static void tree_from_parent(Sim *sim, Stream *stream) {
    int inner = place_in_tree(sim, stream).children > 0;
    endpoint(sim, stream, inner ? at(sim->job->visit_size, stream->now) : 0, TREE_DOWNWARDS);
}

/* ------------------------------------------------------------------------------------------------- gatherings */

/* One block: the gathering, the starts of its members, and their streams. */
static Gathering *new_gathering(Sim *sim, int64_t missing, int64_t members) {
    Gathering *gathering = calloc(1, sizeof(Gathering) + (size_t)members * (sizeof(int64_t) + sizeof(Stream *)));
    if (gathering == NULL) ev_fail(sim, NO_MEMORY);
    gathering->missing = missing;
    gathering->starts = (int64_t *)(gathering + 1);
    gathering->streams = (Stream **)(gathering->starts + members);
    return gathering;
}

static int64_t pairs_of(const Job *job, int64_t ring) {
    return at(job->ring_pair, ring + 1) - at(job->ring_pair, ring);
}

static int64_t members_of(const Job *job, int64_t ring) {
    return at(job->ring_first, ring + 1) - at(job->ring_first, ring);
}

/* Return the gathering of *key*, a new one if there is none. */
static Gathering *gathering_of(Sim *sim, Table *table, const Key *key, int64_t ring) {
    Value *found = ev_find(table, key);
    if (found == NULL) {
        found = ev_insert(sim, table, key);
        found->pointer = NULL;  /* if the next line fails, there is nothing to free */
        found->pointer = new_gathering(sim, pairs_of(sim->job, ring), members_of(sim->job, ring));
    }
    return found->pointer;
}

/* The switch reduces: members send to it, and it answers when it has the bytes of all. */

static void begin_in_switch(Sim *sim, Stream *stream) {
    int64_t kind = at(sim->job->visit_kind, stream->now), size = at(sim->job->visit_size, stream->now);
    int64_t shard = kind == ALL_GATHER ? size : size / stream->members;
    int64_t whole = kind == ALL_GATHER ? size * stream->members : size;
    stream->up = kind == ALL_REDUCE ? whole : kind == ALL_GATHER ? shard : whole - shard;
    stream->down = kind == ALL_REDUCE ? whole : kind == REDUCE_SCATTER ? shard : whole - shard;
    endpoint(sim, stream, 0, SWITCH_SEND);
}

static int64_t place_of_switch(const Sim *sim, const Stream *stream) {
    int64_t before = (stream->position ? stream->position : stream->members) - 1;
    int64_t other = at(sim->job->ring_rank, at(sim->job->ring_first, stream->ring) + before);
    return ev_first_difference(sim, stream->rank->rank, other, NULL);
}

static void through_switch(Sim *sim, Stream *stream) {
    int64_t place = place_of_switch(sim, stream);
    ev_count_sent(sim, stream->rank->entity, place, stream->up);
    ev_to_switch(sim, stream->rank->rank, place, stream->up, ev_then(SWITCH_THERE, stream, 0));
}

static void answer(Sim *sim, Gathering *there, int64_t ring) {
    for (int64_t each = 0; each < there->count; each++) {
        Stream *member = there->streams[each];
        if (member->ring != ring) continue;
        int64_t place = there->starts[each] & 0xff, size = there->starts[each] >> 8;
        ev_from_switch(sim, member->rank->rank, place, size, ev_then(SWITCH_RECEIVED, member, 0));
    }
}

static void at_switch(Sim *sim, Stream *stream) {
    const Job *job = sim->job;
    int64_t list = at(job->level_list, stream->level), end = at(job->list_first, list + 1);
    int64_t place = place_of_switch(sim, stream), size = stream->up > stream->down ? stream->up : stream->down;
    int64_t ordinal = stream->ordinal, phase = stream->next_phase;
    stream->pinned = 1;     /* lists of other rings may hold it for longer than its own */
    for (int64_t entry = at(job->list_first, list); entry < end; entry++) {
        int64_t ring = at(job->list_ring, entry);
        Key key = {ring, ordinal, phase, 0};
        Gathering *there = gathering_of(sim, &sim->switches, &key, ring);
        if (there->count >= members_of(job, ring)) ev_fail(sim, UNLIKE);
        there->streams[there->count] = stream;
        there->starts[there->count++] = size << 8 | place;
        if (there->count < pairs_of(job, ring)) continue;
        answer(sim, there, ring);
        ev_remove(&sim->switches, ev_find(&sim->switches, &key));
        free(there);
    }
}

/* ------------------------------------------------------------------------------------------------- closed forms */

/* Return whether the phase has a closed form here. */
static int has_closed_form(const Sim *sim, const Stream *stream) {
    const Job *job = sim->job;
    if (!job->closed_forms) return 0;
    int64_t algorithm = at(job->visit_algorithm, stream->now), window = at(job->visit_window, stream->now);
    if (algorithm != DIRECT) return algorithm != TREE && algorithm != IN_SWITCH && algorithm != ROUNDS;
    int64_t at_once = window > 0 ? window : stream->members;
    return at(job->visit_kind, stream->now) != ALL_REDUCE && at_once >= stream->members - 1;
}

/* Set the delays of messages from each member's source in a step; return the longest. */
static int64_t step_delays(Sim *sim, int64_t ring, int64_t run, int *equal) {
    const Job *job = sim->job;
    const int64_t *ranks = job->ring_rank.at + at(job->ring_first, ring);
    const int64_t *source = job->source.at + at(job->relation_first, at(job->step_relation, run));
    int64_t members = members_of(job, ring), longest = 0;
    for (int64_t place = 0; place < members; place++) {
        int64_t from = source[place] == NO_MEMBER ? place : source[place];
        int64_t delay = ev_delay_ns(sim, ranks[from], ranks[place], at(job->step_size, run));
        sim->delays[place] = delay;
        longest = delay > longest ? delay : longest;
        if (delay != sim->delays[0] || source[place] == NO_MEMBER) *equal = 0;
    }
    return longest;
}

/* Advance `ready` of all members by one step. */
static void advance_members(Sim *sim, int64_t members, int64_t run, int64_t endpoint_ns, int64_t reduction) {
    const Job *job = sim->job;
    int64_t first = at(job->relation_first, at(job->step_relation, run));
    const int64_t *to = job->to.at + first, *source = job->source.at + first;
    int64_t *ready = sim->ready, *after = sim->after;
    for (int64_t place = 0; place < members; place++) {
        int64_t own = ready[place];
        if (source[place] == NO_MEMBER) {
            after[place] = to[place] == NO_MEMBER ? own : own + endpoint_ns;
            continue;
        }
        int64_t arrived = ready[source[place]] + sim->delays[place];
        after[place] = (arrived > own ? arrived : own) + endpoint_ns + reduction;
    }
    sim->ready = after;
    sim->after = ready;
}

/* Refuse a program whose steps could add up to more than the clock counts. */
static void check_length(Sim *sim, int64_t ring, int64_t program, int64_t endpoint_ns) {
    const Job *job = sim->job;
    int64_t longest = 0, reduction = 0, length = 0;
    int equal = 1;
    for (int64_t run = at(job->program_run, program); run < at(job->program_run, program + 1); run++) {
        int64_t delay = step_delays(sim, ring, run, &equal), own = reduction_ns(sim, at(job->step_reduces, run));
        longest = delay > longest ? delay : longest;
        reduction = own > reduction ? own : reduction;
        length += at(job->step_times, run);
    }
    double sum = (double)longest + (double)reduction + (double)endpoint_ns;
    if (!((double)(length + 1) * sum < (double)(LAST_NS / 2))) ev_fail(sim, UNLIKE);
}

/* An event takes as long as this many steps of a member. */
#define STEPS_PER_EVENT 64

/* Set `ready` to the ends of a stepwise phase that members begin at `starts`. */
static void evaluate_steps(Sim *sim, int64_t ring, int64_t program, int64_t endpoint_ns, int together) {
    const Job *job = sim->job;
    int64_t members = members_of(job, ring);
    check_length(sim, ring, program, endpoint_ns);
    for (int64_t place = 0; place < members; place++) sim->ready[place] = sim->starts[place] + endpoint_ns;
    for (int64_t run = at(job->program_run, program); run < at(job->program_run, program + 1); run++) {
        int equal = 1;
        int64_t longest = step_delays(sim, ring, run, &equal), times = at(job->step_times, run);
        int64_t reduction = reduction_ns(sim, at(job->step_reduces, run));
        together = together && equal;
        if (together) { /* all members advance in lockstep */
            for (int64_t place = 0; place < members; place++)
                sim->ready[place] += times * (longest + reduction + endpoint_ns);
            continue;
        }
        for (int64_t time = 0; time < times; time++) advance_members(sim, members, run, endpoint_ns, reduction);
        sim->left -= times * members / STEPS_PER_EVENT;
    }
}

/* The same of a phase in which all shards are sent at once, and reduced as they arrive. */
static void evaluate_direct(Sim *sim, int64_t ring, int64_t visit, int64_t endpoint_ns) {
    const Job *job = sim->job;
    int64_t members = members_of(job, ring), kind = at(job->visit_kind, visit), size = at(job->visit_size, visit);
    int64_t part = kind == ALL_GATHER ? size : size / members;
    int64_t reduction = reduction_ns(sim, kind == REDUCE_SCATTER ? part : 0);
    const int64_t *ranks = job->ring_rank.at + at(job->ring_first, ring);
    sim->left -= members * members / STEPS_PER_EVENT;
    for (int64_t place = 0; place < members; place++) {
        int64_t arrived = sim->starts[place] + endpoint_ns;
        for (int64_t from = 0; from < members; from++) {
            int64_t delay = ev_delay_ns(sim, ranks[from], ranks[place], part);
            int64_t there = from == place ? arrived : sim->starts[from] + endpoint_ns + delay;
            arrived = there > arrived ? there : arrived;
        }
        sim->ready[place] = arrived + endpoint_ns + reduction;
    }
}

static void evaluate(Sim *sim, const Stream *stream, int64_t endpoint_ns, int together) {
    const Job *job = sim->job;
    int64_t algorithm = at(job->visit_algorithm, stream->now), last = 0;
    if (algorithm == DIRECT) {
        evaluate_direct(sim, stream->ring, stream->now, endpoint_ns);
    } else if (algorithm != GIVEN) {
        evaluate_steps(sim, stream->ring, program_of(sim, stream), endpoint_ns, together);
    } else {
        for (int64_t place = 0; place < stream->members; place++)
            last = sim->starts[place] > last ? sim->starts[place] : last;
        for (int64_t place = 0; place < stream->members; place++)
            sim->ready[place] = last + at(job->visit_size, stream->now);
    }
}

/* Return when each member ends a phase that all begin at 0; evaluated once. */
static const int64_t *together_ns(Sim *sim, const Stream *stream) {
    Key key = {stream->ring, at(sim->job->visit_spec, stream->now) << 1 | stream->clockwise, stream->endpoint_ns, 0};
    Value *found = ev_find(&sim->done, &key);
    if (found == NULL) {
        memset(sim->starts, 0, (size_t)stream->members * sizeof(int64_t));
        evaluate(sim, stream, stream->endpoint_ns, 1);
        found = ev_insert(sim, &sim->done, &key);
        found->pointer = NULL;
        found->pointer = malloc((size_t)stream->members * sizeof(int64_t));
        if (found->pointer == NULL) ev_fail(sim, NO_MEMORY);
        memcpy(found->pointer, sim->ready, (size_t)stream->members * sizeof(int64_t));
    }
    return found->pointer;
}

/* Count the bytes that a member sends in a phase, *times* over. */
static void count_traffic(Sim *sim, const Stream *stream, int64_t times) {
    const Job *job = sim->job;
    const int64_t *ranks = job->ring_rank.at + at(job->ring_first, stream->ring);
    int64_t algorithm = at(job->visit_algorithm, stream->now), entity = stream->rank->entity;
    if (algorithm == GIVEN) return;
    if (algorithm == DIRECT) {
        int64_t size = at(job->visit_size, stream->now);
        int64_t part = at(job->visit_kind, stream->now) == ALL_GATHER ? size : size / stream->members;
        for (int64_t peer = 0; peer < stream->members; peer++) {
            if (peer == stream->position) continue;
            int64_t place = ev_first_difference(sim, ranks[stream->position], ranks[peer], NULL);
            if (part && times > LAST_NS / part) ev_fail(sim, UNLIKE);
            ev_count_sent(sim, entity, place, part * times);
        }
        return;
    }
    int64_t program = program_of(sim, stream);
    for (int64_t run = at(job->program_run, program); run < at(job->program_run, program + 1); run++) {
        int64_t to = at(job->to, at(job->relation_first, at(job->step_relation, run)) + stream->position);
        if (to == NO_MEMBER) continue;
        int64_t size = at(job->step_size, run);
        double all = (double)size * (double)at(job->step_times, run) * (double)times;
        if (!(all < (double)(LAST_NS / 2))) ev_fail(sim, UNLIKE);
        int64_t place = ev_first_difference(sim, ranks[stream->position], ranks[to], NULL);
        ev_count_sent(sim, entity, place, size * at(job->step_times, run) * times);
    }
}

/* Return the last delay of a phase: of a packet at the endpoint, or of a reduction. */
static int64_t last_ns(Sim *sim, const Stream *stream) {
    const Job *job = sim->job;
    int64_t algorithm = at(job->visit_algorithm, stream->now);
    if ((algorithm == STEPWISE_RING || algorithm == DIRECT) && at(job->visit_kind, stream->now) == REDUCE_SCATTER)
        return reduction_ns(sim, at(job->visit_size, stream->now) / stream->members);
    return stream->endpoint_ns;
}

static void leave_at(Sim *sim, Stream *stream, int64_t time) {
    ev_of_rank_at(sim, stream->rank->entity, time, time - last_ns(sim, stream), ev_then(PROCEED, stream, 0));
}

/* Schedule the end of a phase at all members, which have begun it. */
static void end_phase(Sim *sim, const Gathering *arrivals, int64_t ring) {
    int64_t members = members_of(sim->job, ring), first = arrivals->starts[0];
    if (arrivals->count == 0) return;   /* members of other rings */
    const Stream *any = arrivals->streams[0];
    const int64_t *done;
    int together = 1;
    for (int64_t place = 1; place < members; place++) together = together && arrivals->starts[place] == first;
    if (together || pairs_of(sim->job, ring) == 1) {
        done = together_ns(sim, any);
    } else {
        memcpy(sim->starts, arrivals->starts, (size_t)members * sizeof(int64_t));
        evaluate(sim, any, any->endpoint_ns, 0);
        done = sim->ready;
        first = 0;
    }
    for (int64_t each = 0; each < arrivals->count; each++) {
        Stream *stream = arrivals->streams[each];
        leave_at(sim, stream, first + done[stream->position]);
    }
}

/* Begin a phase at one rank; when all members have begun it, schedule the end of each. */
static void join_phase(Sim *sim, Stream *stream) {
    const Job *job = sim->job;
    count_traffic(sim, stream, 1);
    if (pairs_of(job, stream->ring) == 1) {
        leave_at(sim, stream, sim->clock.now + together_ns(sim, stream)[stream->position]);
        return;
    }
    int64_t list = at(job->level_list, stream->level), end = at(job->list_first, list + 1);
    int64_t spec = at(job->visit_spec, stream->now) << 1 | stream->clockwise;
    for (int64_t entry = at(job->list_first, list); entry < end; entry++) {
        int64_t ring = at(job->list_ring, entry), pair = at(job->list_pair, entry);
        Key key = {ring << 32 | stream->next_phase, stream->ordinal, spec, stream->endpoint_ns};
        Gathering *arrivals = gathering_of(sim, &sim->gatherings, &key, ring);
        for (int64_t place = at(job->pair_start, pair); place < at(job->pair_start, pair + 1); place++)
            arrivals->starts[at(job->pair_place, place)] = sim->clock.now;
        if (ring == stream->ring) {
            if (arrivals->count >= members_of(job, ring)) ev_fail(sim, UNLIKE);
            arrivals->streams[arrivals->count++] = stream;
        }
        if (--arrivals->missing > 0) continue;
        end_phase(sim, arrivals, ring);
        ev_remove(&sim->gatherings, ev_find(&sim->gatherings, &key));
        free(arrivals);
    }
}

/* ------------------------------------------------------------------------------------------------- streams */

static int64_t *streams_of(const Sim *sim, const Rank *rank, int64_t slot) {
    return &sim->job->streams.at[at(sim->job->counter_first, rank->entity) + slot + 1];
}

static Stream *new_stream(Sim *sim, Rank *rank, int64_t placement, int64_t variant) {
    const Job *job = sim->job;
    Stream *stream = ev_take(sim, &sim->streams);
    stream->serial = sim->serial++;
    stream->rank = rank;
    stream->placement = placement;
    stream->visit = at(job->variant_visit, variant);
    stream->phases = at(job->variant_visit, variant + 1) - stream->visit;
    stream->slot = at(job->placement_slot, placement);
    return stream;
}

/* Enter the next phase, in its queue. */
static void advance(Sim *sim, Stream *stream) {
    const Job *job = sim->job;
    int32_t turn = stream->turn[stream->next_phase];
    stream->now = stream->visit + stream->next_phase++;
    stream->level = at(job->placement_level, stream->placement) + at(job->visit_level, stream->now);
    stream->ring = at(job->level_ring, stream->level);
    stream->position = at(job->level_position, stream->level);
    stream->members = members_of(job, stream->ring);
    stream->queue = turn >> 2;
    stream->clockwise = turn >> 1 & 1;
    stream->tree = turn & 1;
    stream->running = 0;
    stream->in_group = stream->slot != ALL && stream->members < job->npus;
    stream->fast = stream->in_group && job->compat && at(job->visit_algorithm, stream->now) != TREE;
    stream->endpoint_ns = stream->fast ? GROUP_ENDPOINT_NS : job->endpoint_ns;
}

static void begin_stream(Sim *sim, Stream *stream) {
    stream->running = 1;
    if (has_closed_form(sim, stream)) {
        join_phase(sim, stream);
        return;
    }
    switch (at(sim->job->visit_algorithm, stream->now)) {
    case DIRECT: begin_direct(sim, stream); break;
    case TREE: begin_tree(sim, stream); break;
    case IN_SWITCH: begin_in_switch(sim, stream); break;
    case GIVEN: ev_fail(sim, UNLIKE);
    default: begin_steps(sim, stream);
    }
}

/* ------------------------------------------------------------------------------------------------- plans */

/* Return the next queue of a dimension, and whether its rings run clockwise. */
static int32_t next_turn(const Job *job, Turn *turn, int64_t which, int64_t dim) {
    int64_t queues = job->queues_per_dim, half = queues / 2, queue;
    int clockwise = which == FIRST_HALF;
    if (which == ANY_QUEUE) {
        queue = turn->any;
        turn->any = (queue + 1) % queues;
        clockwise = !(queues > 1 && queue >= half);
    } else if (which == FIRST_HALF) {
        queue = turn->first;
        turn->first = (queue + 1) % (half > 1 ? half : 1);
    } else {
        queue = half + turn->last;
        turn->last = (turn->last + 1) % (queues - half);
    }
    return (int32_t)((queue + dim * queues) << 2 | clockwise << 1);
}

/* Set the queues of a chunk's phases; chunks take turns. */
static void plan(Sim *sim, Stream *stream, int64_t kind) {
    const Job *job = sim->job;
    Rank *rank = stream->rank;
    for (int64_t phase = 0; phase < stream->phases; phase++) {
        int64_t visit = stream->visit + phase;
        int64_t dim = at(job->level_dim, at(job->placement_level, stream->placement) + at(job->visit_level, visit));
        int32_t turn = next_turn(job, &rank->turns[dim], at(job->visit_turn, visit), dim);
        if (at(job->visit_algorithm, visit) == TREE) {
            uint8_t *tree = &rank->trees[kind * job->dims + dim];
            turn |= *tree;
            *tree = !*tree;
        }
        stream->turn[phase] = turn;
    }
}

/* ------------------------------------------------------------------------------------------------- queues */

static int64_t to_go(const Stream *stream) { return stream->phases - stream->next_phase; }

static int64_t extent(const Job *job, const Stream *stream) {
    int64_t size = at(job->visit_size, stream->now), final = at(job->visit_final, stream->now);
    return size > final ? size : final;
}

/* Return a place that lets reduce-scatter and all-gather take turns. */
static int64_t alternating(const Job *job, const Queue *queue, const Stream *stream) {
    int64_t place = 0, previous = -1, last = -1;
    while (place < queue->count) {
        const Stream *other = queue->at[place];
        previous = last;
        last = at(job->visit_kind, other->now);
        int pair = (last == REDUCE_SCATTER && previous == ALL_GATHER)
                   || (last == ALL_GATHER && previous == REDUCE_SCATTER);
        if (other->running) {
            place++;
            if (place < queue->count && !queue->at[place]->running) last = at(job->visit_kind, queue->at[place++]->now);
        } else if (other->priority > stream->priority || pair) {
            place++;
        } else {
            break;
        }
    }
    return place;
}

static int goes_before(const Job *job, const Stream *stream, const Stream *other, int by_priority) {
    if (other->running) return 0;
    if (by_priority) return other->priority < stream->priority;
    if (job->rule == SMALLEST_FIRST) return extent(job, other) >= extent(job, stream);
    return to_go(other) >= to_go(stream);
}

/* Return a stream's index in a queue: behind running streams, by the intra-dimension scheduling. */
static int64_t place_in(const Job *job, const Queue *queue, const Stream *stream) {
    if (job->rule == IN_ORDER) {    /* waiting streams are sorted then */
        int64_t low = queue->running < queue->count ? queue->running : queue->count, high = queue->count;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (queue->at[middle]->priority < stream->priority)
                high = middle;
            else
                low = middle + 1;
        }
        return low;
    }
    int64_t kind = at(job->visit_kind, stream->now);
    int by_priority = kind == ALL_TO_ALL || kind == ALL_REDUCE;
    if (!by_priority && job->rule == ALTERNATING) return alternating(job, queue, stream);
    if (!by_priority && job->rule == SMALLEST_FIRST && to_go(stream) == 1) return queue->count;
    for (int64_t place = 0; place < queue->count; place++)
        if (goes_before(job, stream, queue->at[place], by_priority)) return place;
    return queue->count;
}

static void insert(Sim *sim, Queue *queue, Stream *stream) {
    int64_t place = place_in(sim->job, queue, stream);
    if (queue->count == queue->room) {
        int64_t room = queue->room ? 2 * queue->room : 4;
        queue->at = ev_grown(sim, queue->at, room, sizeof(Stream *));
        queue->room = room;
    }
    memmove(queue->at + place + 1, queue->at + place, (size_t)(queue->count - place) * sizeof(Stream *));
    queue->at[place] = stream;
    queue->count++;
}

static void take_out(Sim *sim, Queue *queue, const Stream *stream) {
    int64_t place = 0;
    while (place < queue->count && queue->at[place] != stream) place++;
    if (place == queue->count) ev_fail(sim, UNLIKE);
    queue->count--;
    memmove(queue->at + place, queue->at + place + 1, (size_t)(queue->count - place) * sizeof(Stream *));
}

static void serve(Sim *sim, Queue *queue) {
    while (queue->running < sim->job->places && queue->running < queue->count) {
        queue->running++;
        begin_stream(sim, queue->at[queue->running - 1]);
    }
}

/* Fail if two streams enter a queue at one moment from different queues; as `streams._check_order`. */
static void check_order(Sim *sim, const Stream *stream, int64_t before, int ends) {
    Queue *left = &stream->rank->queues[before], *entered = &stream->rank->queues[stream->queue];
    int64_t now = sim->clock.now;
    int sorted_in = sim->job->rule != IN_ORDER;
    if (sorted_in && left->entered_at == now && left->count) ev_fail(sim, AMBIGUOUS);
    left->left_at = now;
    left->left_stream = stream->serial;
    if (ends) return;
    if (entered->count >= sim->job->places) {
        int from_another = entered->entered_at == now && entered->entered_from != before;
        int one_left = entered->left_at == now && entered->left_stream != stream->serial;
        if (from_another || (sorted_in && one_left)) ev_fail(sim, AMBIGUOUS);
    }
    entered->entered_at = now;
    entered->entered_from = before;
}

static void stream_done(Sim *sim, Stream *stream) {
    Collective *collective = stream->collective;
    if (collective->left <= 0) ev_fail(sim, UNLIKE);
    if (--collective->left > 0) return;
    Rank *rank = collective->rank;
    int64_t row = collective->row;
    ev_give(&sim->collectives, collective);
    ev_complete(sim, rank, row);
}

/* Take a stream to its next phase, or end it. */
void ev_proceed(Sim *sim, Stream *stream) {
    Rank *rank = stream->rank;
    if (stream->collective == NULL) ev_fail(sim, UNLIKE);   /* it has ended */
    int64_t before = stream->next_phase ? stream->queue : -1;
    int ends = to_go(stream) == 0;
    if (ends) stream_done(sim, stream);     /* may begin others, which then wait behind this one */
    if (before >= 0) {
        take_out(sim, &rank->queues[before], stream);
        rank->queues[before].running--;
    }
    if (!ends) advance(sim, stream);
    if (before >= 0 && sim->job->checks_order) check_order(sim, stream, before, ends);
    if (!ends) insert(sim, &rank->queues[stream->queue], stream);
    int64_t queue = stream->queue;
    if (ends) stream->collective = NULL;
    if (ends && !stream->pinned) ev_give(&sim->streams, stream);
    if (before >= 0) serve(sim, &rank->queues[before]);
    if (!ends) serve(sim, &rank->queues[queue]);
}

/* ------------------------------------------------------------------------------------------------- start */

static int64_t next_priority(const Job *job, Rank *rank, int64_t explicit) {
    if (job->policy == EXPLICIT) return explicit;
    int64_t newest = rank->newest;
    rank->newest += job->policy == LIFO ? 1 : -1;
    return newest;
}

/* Return the variant of the next chunk: round robin rotates the order of dimensions. */
static int64_t next_variant(const Job *job, Rank *rank, int64_t plan, int64_t run) {
    int64_t rotations = at(job->plan_rotations, plan), variant = at(job->run_variant, run);
    if (rotations == 0) return variant;
    variant += rank->rotation < rotations ? rank->rotation : 0;
    rank->rotation = (rank->rotation + 1) % rotations;
    return variant;
}

static int is_same(const Job *job, const Stream *one, const Stream *other) {
    int64_t a = one->visit, b = other->visit;
    return one->phases == other->phases && one->turn[0] == other->turn[0]
           && at(job->visit_level, a) == at(job->visit_level, b) && at(job->visit_spec, a) == at(job->visit_spec, b)
           && at(job->visit_final, a) == at(job->visit_final, b);
}

/* Schedule the end of equal chunks of one phase that nothing delays, and return whether that was possible. */
static int ends_at_once(Sim *sim, Stream **chunks, int64_t count, int64_t row) {
    const Job *job = sim->job;
    Stream *first = chunks[0];
    Rank *rank = first->rank;
    int64_t *streams = streams_of(sim, rank, first->slot);
    int64_t level = at(job->placement_level, first->placement) + at(job->visit_level, first->visit);
    int alone = first->phases == 1 && pairs_of(job, at(job->level_ring, level)) == 1
                && rank->queues[first->turn[0] >> 2].count == 0;
    if (!(job->closed_forms && job->queues_per_dim == 1 && alone && is_same(job, first, chunks[count - 1]))) return 0;
    first->ordinal = *streams;
    advance(sim, first);
    if (!has_closed_form(sim, first)) {
        first->next_phase = 0;
        return 0;
    }
    *streams += count;
    count_traffic(sim, first, count);
    int64_t turns = (count + job->places - 1) / job->places, done = together_ns(sim, first)[first->position];
    if (done && turns > LAST_NS / 2 / done) ev_fail(sim, UNLIKE);
    int64_t time = sim->clock.now + turns * done;
    ev_of_rank_at(sim, rank->entity, time, time - last_ns(sim, first), ev_then(COMPLETE, rank, row));
    return 1;
}

/* Return the chunks of a collective that have phases, planned. */
static Stream **planned(Sim *sim, Rank *rank, int64_t call, int64_t *count) {
    const Job *job = sim->job;
    int64_t plan_of = at(job->call_plan, call), placement = at(job->call_placement, call), room = 0;
    int64_t begin = at(job->plan_run, plan_of), end = at(job->plan_run, plan_of + 1);
    for (int64_t run = begin; run < end; run++) room += at(job->run_times, run);
    if (room > sim->chunk_room) {
        sim->chunks = ev_grown(sim, sim->chunks, room, sizeof(Stream *));
        sim->chunk_room = room;
    }
    *count = 0;
    for (int64_t run = begin; run < end; run++)
        for (int64_t time = 0; time < at(job->run_times, run); time++) {
            Stream *stream = new_stream(sim, rank, placement, next_variant(job, rank, plan_of, run));
            plan(sim, stream, at(job->call_kind, call));
            if (stream->phases)
                sim->chunks[(*count)++] = stream;
            else
                ev_give(&sim->streams, stream);
        }
    return sim->chunks;
}

/* Split a collective into chunks, and queue each. */
void ev_start_collective(Sim *sim, Rank *rank, int64_t row) {
    const Job *job = sim->job;
    int64_t call = at(job->use, rank->first + row), placement = at(job->call_placement, call), count;
    int64_t level = at(job->placement_level, placement), end = at(job->placement_level, placement + 1);
    int64_t priority = next_priority(job, rank, at(job->placement_priority, placement));
    Then done = ev_then(COMPLETE, rank, row);
    int given = level < end && at(job->level_algorithm, level) == GIVEN;
    if (given && pairs_of(job, at(job->level_ring, level)) == 1) {
        ev_of_rank(sim, rank->entity, at(job->call_size, call), done);
        return;
    }
    Stream **chunks = planned(sim, rank, call, &count);
    if (count == 0) {
        ev_of_rank(sim, rank->entity, 0, done);
        return;
    }
    if (ends_at_once(sim, chunks, count, row)) {
        for (int64_t each = 0; each < count; each++) ev_give(&sim->streams, chunks[each]);
        return;
    }
    Collective *collective = ev_take(sim, &sim->collectives);
    collective->rank = rank;
    collective->row = (int32_t)row;
    collective->left = count;
    int64_t *streams = streams_of(sim, rank, at(job->placement_slot, placement));
    for (int64_t each = 0; each < count; each++) {
        Stream *stream = chunks[each];
        stream->collective = collective;
        stream->priority = priority;
        stream->ordinal = (*streams)++;
        ev_proceed(sim, stream);
    }
}

/* Do what follows an event of a stream's machine. */
void ev_machine(Sim *sim, Then then) {
    Stream *stream = then.what;
    switch (then.code) {
    case REDUCE: of_stream(sim, stream, stream->reduction_ns, ev_then(then.row, stream, 0)); break;
    case STEP_GO: step_go(sim, stream); break;
    case STEP_RECEIVED: step_received(sim, stream); break;
    case DIRECT_GO: direct_go(sim, stream); break;
    case DIRECT_RECEIVED:
        stream->arrived++;
        insert_direct(sim, stream);
        break;
    case TREE_FROM_CHILD: endpoint(sim, stream, at(sim->job->visit_size, stream->now), TREE_ADDED); break;
    case TREE_ADDED: tree_added(sim, stream); break;
    case TREE_UPWARDS: tree_upwards(sim, stream); break;
    case TREE_FROM_PARENT: tree_from_parent(sim, stream); break;
    case TREE_DOWNWARDS: tree_downwards(sim, stream); break;
    case SWITCH_SEND: through_switch(sim, stream); break;
    case SWITCH_THERE: at_switch(sim, stream); break;
    case SWITCH_RECEIVED: endpoint(sim, stream, 0, SWITCH_LEAVE); break;
    case SWITCH_LEAVE: ev_proceed(sim, stream); break;
    default: break;
    }
}
