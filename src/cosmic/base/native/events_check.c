/* The event engine's core: whether the columns that Python hands over are sound. See events.h.
 *
 * Nothing else checks an index. Whatever a trace contains, a job that passes here is simulated within its columns. */
#include "events.h"

#define MOST_BYTES ((int64_t)1 << 53)

/* Whether a column has *count* entries, each from *low* to below *high*. */
static int within(Column column, int64_t count, int64_t low, int64_t high) {
    if (column.count != count || (count > 0 && column.at == NULL)) return 0;
    for (int64_t place = 0; place < count; place++)
        if (column.at[place] < low || column.at[place] >= high) return 0;
    return 1;
}

/* Whether a column says where each of *lists* begins in another with *count* entries, and where the last ends. */
static int divides(Column column, int64_t lists, int64_t count) {
    if (lists < 0 || column.count != lists + 1 || column.at == NULL) return 0;
    if (column.at[0] != 0 || column.at[lists] != count) return 0;
    for (int64_t place = 0; place < lists; place++)
        if (column.at[place] > column.at[place + 1]) return 0;
    return 1;
}

static int is_output(Output output, int64_t count) {
    return output.count == count && (count == 0 || output.at != NULL);
}

static int settings_valid(const Job *job) {
    return job->npus >= 1 && job->npus < INT32_MAX && job->dims >= 1 && job->dims < 256 && job->entities >= 1
           && job->entities <= job->npus && job->channels >= 0 && job->channels <= job->peer.count
           && job->fabric >= 0 && job->fabric < FABRICS
           && job->queues_per_dim >= 1 && job->queues_per_dim <= 1 << 16 && job->places >= 1
           && job->policy >= 0 && job->policy < POLICIES && job->rule >= 0 && job->rule < RULES
           && job->endpoint_ns >= 0 && job->endpoint_ns < (int64_t)1 << 40 && job->memory >= 0
           && job->memory < MEMORIES && job->memory_latency_ns >= 0 && job->memory_latency_ns < (int64_t)1 << 40
           && job->npus_per_node >= 1 && job->memory_bytes_per_s >= 0;
}

static int network_valid(const Job *job) {
    if (!within(job->topology, job->dims, 0, TOPOLOGIES) || !within(job->dim_npus, job->dims, 1, INT32_MAX)) return 0;
    if (!within(job->stride, job->dims, 1, INT32_MAX)) return 0;
    if (job->latency_ns.count != job->dims || job->bytes_per_ns.count != job->dims) return 0;
    int64_t stride = 1;
    for (int64_t place = 0; place < job->dims; place++) {
        if (job->stride.at[place] != stride || !(job->latency_ns.at[place] >= 0)) return 0;
        if (!(job->bytes_per_ns.at[place] > 0)) return 0;
        stride *= job->dim_npus.at[place];
        if (stride > job->npus) return 0;
    }
    return stride == job->npus && within(job->entity_of, job->npus, 0, job->entities);
}

static int rows_valid(const Job *job) {
    int64_t rows = job->slot.count;
    return within(job->slot, rows, 0, SLOTS) && within(job->action, rows, 0, ACTIONS)
           && within(job->duration_ns, rows, 0, LAST_NS) && within(job->size, rows, 0, LAST_NS)
           && within(job->compute_ns, rows, 0, LAST_NS) && within(job->waits, rows, 0, INT32_MAX)
           && divides(job->child_start, rows, job->child.count) && within(job->child, job->child.count, 0, INT32_MAX);
}

static int rings_valid(const Job *job) {
    int64_t rings = job->ring_first.count - 1, members = job->ring_rank.count, pairs = job->pair_start.count - 1;
    if (!divides(job->ring_first, rings, members) || !divides(job->ring_pair, rings, pairs)) return 0;
    if (!divides(job->pair_start, pairs, members) || !within(job->pair_place, members, 0, members)) return 0;
    if (!within(job->ring_rank, members, 0, job->npus)) return 0;
    if (!within(job->ring_entity, members, 0, job->entities)) return 0;
    if (!within(job->ring_slot, members, -INT32_MAX, INT32_MAX) || rings >= INT32_MAX) return 0;
    for (int64_t ring = 0; ring < rings; ring++) {
        int64_t own = job->ring_first.at[ring + 1] - job->ring_first.at[ring];
        int64_t begin = job->pair_start.at[job->ring_pair.at[ring]];
        int64_t end = job->pair_start.at[job->ring_pair.at[ring + 1]];
        if (own < 1 || end - begin != own) return 0;
        for (int64_t place = begin; place < end; place++)
            if (job->pair_place.at[place] >= own) return 0;
    }
    int64_t lists = job->list_first.count - 1, entries = job->list_ring.count;
    if (!divides(job->list_first, lists, entries) || !within(job->list_ring, entries, 0, rings)) return 0;
    if (!within(job->list_pair, entries, 0, pairs)) return 0;
    for (int64_t entry = 0; entry < entries; entry++) {
        int64_t ring = job->list_ring.at[entry], pair = job->list_pair.at[entry];
        if (pair < job->ring_pair.at[ring] || pair >= job->ring_pair.at[ring + 1]) return 0;
    }
    for (int64_t list = 0; list < lists; list++)    /* rings once each: in the order in which they were made */
        for (int64_t entry = job->list_first.at[list] + 1; entry < job->list_first.at[list + 1]; entry++)
            if (job->list_ring.at[entry - 1] >= job->list_ring.at[entry]) return 0;
    return 1;
}

static int programs_valid(const Job *job) {
    int64_t programs = job->program_run.count - 1, runs = job->step_times.count;
    int64_t relations = job->relation_first.count - 1, members = job->to.count, places = job->parent.count;
    if (!divides(job->program_run, programs, runs) || !within(job->step_times, runs, 1, INT32_MAX)) return 0;
    if (!within(job->step_relation, runs, 0, relations) || !within(job->step_size, runs, 0, MOST_BYTES)) return 0;
    if (!within(job->step_more, runs, 0, 2)) return 0;
    if (!within(job->step_reduces, runs, 0, MOST_BYTES) || !divides(job->relation_first, relations, members)) return 0;
    if (!within(job->to, members, NO_MEMBER, members) || !within(job->source, members, NO_MEMBER, members)) return 0;
    for (int64_t relation = 0; relation < relations; relation++) {
        int64_t own = job->relation_first.at[relation + 1] - job->relation_first.at[relation];
        for (int64_t place = job->relation_first.at[relation]; place < job->relation_first.at[relation + 1]; place++)
            if (job->to.at[place] >= own || job->source.at[place] >= own) return 0;
    }
    for (int64_t program = 0; program < programs; program++) {
        int64_t length = 0;
        if (job->program_run.at[program] == job->program_run.at[program + 1]) return 0;
        for (int64_t run = job->program_run.at[program]; run < job->program_run.at[program + 1]; run++)
            length += job->step_times.at[run];
        if (length >= INT32_MAX || job->step_more.at[job->program_run.at[program + 1] - 1]) return 0;
    }
    return within(job->parent, places, NO_MEMBER, INT32_MAX) && within(job->first_child, places, NO_MEMBER, INT32_MAX)
           && within(job->second_child, places, NO_MEMBER, INT32_MAX);
}

static int plans_valid(const Job *job) {
    int64_t plans = job->plan_run.count - 1, runs = job->run_times.count;
    int64_t variants = job->variant_visit.count - 1, visits = job->visit_level.count;
    int64_t programs = job->program_run.count - 1, places = job->parent.count;
    if (!divides(job->plan_run, plans, runs) || !within(job->plan_rotations, plans, 0, job->dims + 1)) return 0;
    if (!within(job->run_times, runs, 1, INT32_MAX) || !within(job->run_variant, runs, 0, variants)) return 0;
    if (!divides(job->variant_visit, variants, visits)) return 0;
    for (int64_t plan = 0; plan < plans; plan++)
        for (int64_t run = job->plan_run.at[plan]; run < job->plan_run.at[plan + 1]; run++)
            if (job->run_variant.at[run] + job->plan_rotations.at[plan] > variants) return 0;
    return within(job->visit_level, visits, 0, job->dims + 1) && within(job->visit_kind, visits, 0, KINDS)
           && within(job->visit_turn, visits, 0, TURNS) && within(job->visit_size, visits, 0, MOST_BYTES)
           && within(job->visit_final, visits, 0, MOST_BYTES) && within(job->visit_algorithm, visits, 0, ALGORITHMS)
           && within(job->visit_window, visits, 0, INT32_MAX) && within(job->visit_forward, visits, -1, programs)
           && within(job->visit_backward, visits, -1, programs) && within(job->visit_tree, visits, -1, places + 1)
           && within(job->visit_spec, visits, 0, INT32_MAX);
}

/* Whether a program's relations are among the members of a ring. */
static int program_fits(const Job *job, int64_t program, int64_t members) {
    if (program < 0) return 0;
    for (int64_t run = job->program_run.at[program]; run < job->program_run.at[program + 1]; run++) {
        int64_t relation = job->step_relation.at[run];
        if (job->relation_first.at[relation + 1] - job->relation_first.at[relation] != members) return 0;
    }
    return 1;
}

/* Whether both trees of a visit are among the members of a ring, and children stand before gaps. */
static int trees_fit(const Job *job, int64_t first, int64_t members) {
    if (first < 0 || first + 2 * members > job->parent.count) return 0;
    for (int64_t place = first; place < first + 2 * members; place++) {
        if (job->parent.at[place] >= members || job->first_child.at[place] >= members) return 0;
        if (job->second_child.at[place] >= members) return 0;
        if (job->first_child.at[place] == NO_MEMBER && job->second_child.at[place] != NO_MEMBER) return 0;
    }
    return 1;
}

static int visit_fits(const Job *job, int64_t visit, int64_t placement) {
    int64_t level = job->placement_level.at[placement] + job->visit_level.at[visit];
    if (level >= job->placement_level.at[placement + 1]) return 0;
    int64_t ring = job->level_ring.at[level], algorithm = job->visit_algorithm.at[visit];
    int64_t members = job->ring_first.at[ring + 1] - job->ring_first.at[ring];
    if (members < 2) return 0;
    if (algorithm == TREE) return trees_fit(job, job->visit_tree.at[visit], members);
    if (algorithm == IN_SWITCH) return job->visit_size.at[visit] < MOST_BYTES / members;
    if (algorithm != STEPWISE_RING && algorithm != STEPWISE_HALVING && algorithm != ROUNDS) return 1;
    return program_fits(job, job->visit_forward.at[visit], members)
           && program_fits(job, job->visit_backward.at[visit], members);
}

static int calls_valid(const Job *job) {
    int64_t placements = job->placement_level.count - 1, levels = job->level_ring.count, calls = job->call_kind.count;
    int64_t rings = job->ring_first.count - 1, plans = job->plan_run.count - 1;
    if (!divides(job->placement_level, placements, levels)) return 0;
    if (!within(job->placement_slot, placements, ALL, INT32_MAX)) return 0;
    if (!within(job->placement_priority, placements, -LAST_NS, LAST_NS)) return 0;
    if (!within(job->level_dim, levels, 0, job->dims) || !within(job->level_ring, levels, 0, rings)) return 0;
    if (!within(job->level_position, levels, 0, job->npus)) return 0;
    if (!within(job->level_algorithm, levels, 0, ALGORITHMS)) return 0;
    if (!within(job->level_list, levels, 0, job->list_first.count - 1)) return 0;
    for (int64_t level = 0; level < levels; level++) {
        int64_t ring = job->level_ring.at[level];
        if (job->level_position.at[level] >= job->ring_first.at[ring + 1] - job->ring_first.at[ring]) return 0;
    }
    if (!within(job->call_kind, calls, 0, KINDS) || !within(job->call_size, calls, 0, LAST_NS)) return 0;
    if (!within(job->call_placement, calls, 0, placements) || !within(job->call_plan, calls, 0, plans)) return 0;
    for (int64_t call = 0; call < calls; call++) {
        int64_t plan = job->call_plan.at[call];
        int64_t rotations = job->plan_rotations.at[plan] ? job->plan_rotations.at[plan] : 1;
        for (int64_t run = job->plan_run.at[plan]; run < job->plan_run.at[plan + 1]; run++) {
            const int64_t *visit = job->variant_visit.at + job->run_variant.at[run];
            for (int64_t each = visit[0]; each < visit[rotations]; each++)
                if (!visit_fits(job, each, job->call_placement.at[call])) return 0;
        }
    }
    return 1;
}

/* Whether every node of an entity has what its action needs, and its dependents are nodes of it. */
static int nodes_fit(const Job *job, int64_t entity) {
    int64_t first = job->node_first.at[entity], nodes = job->node_first.at[entity + 1] - first;
    int64_t begin = job->template_first.at[entity];
    int64_t counters = job->counter_first.at[entity + 1] - job->counter_first.at[entity];
    if (begin + nodes > job->slot.count || nodes >= INT32_MAX) return 0;
    for (int64_t place = job->child_start.at[begin]; place < job->child_start.at[begin + nodes]; place++)
        if (job->child.at[place] >= nodes) return 0;
    for (int64_t row = 0; row < nodes; row++) {
        int64_t use = job->use.at[first + row];
        switch (job->action.at[begin + row]) {
        case COLLECTIVE:
            if (use < 0 || use >= job->call_kind.count) return 0;
            if (job->placement_slot.at[job->call_placement.at[use]] + 1 >= counters) return 0;
            break;
        case SEND:
        case RECEIVE:
            if (use < 0 || use >= job->peer.count) return 0;
            break;
        case ACCESS:
            if (!(job->remote_gb_per_s > 0)) return 0;
            break;
        default: break;
        }
    }
    return 1;
}

static int entities_valid(const Job *job) {
    int64_t nodes = job->use.count, entities = job->entities;
    if (!within(job->rank, entities, 0, job->npus) || !divides(job->node_first, entities, nodes)) return 0;
    if (!within(job->template_first, entities, 0, job->slot.count + 1)) return 0;
    if (!divides(job->counter_first, entities, job->streams.count)) return 0;
    if (!within(job->peer, job->peer.count, 0, job->npus)) return 0;
    if (!within(job->channel, job->peer.count, 0, job->channels)) return 0;
    for (int64_t entity = 0; entity < entities; entity++)
        if (!nodes_fit(job, entity)) return 0;
    return is_output(job->begun, nodes) && is_output(job->ended, nodes) && is_output(job->end_ns, entities)
           && is_output(job->computed_ns, entities) && is_output(job->sent, entities * job->dims);
}

int ev_is_valid(const Job *job) {
    return settings_valid(job) && network_valid(job) && rows_valid(job) && rings_valid(job) && programs_valid(job)
           && plans_valid(job) && calls_valid(job) && entities_valid(job);
}
