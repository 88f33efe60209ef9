/* What a network lets through: its tightest cut, and its distances. As in `cosmic.network.synthesis.max_flow`, line by line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "native.h"

#define SMALL 1e-12
#define CLOSE 1e-9

typedef struct {
    int64_t nodes, links;
    const int32_t *source, *target;       /* of each link */
    const int32_t *in_first, *in_links;   /* links into each node */
    const int32_t *out_first, *out_links; /* links out of each node */
    const double *capacity;
} Net;

typedef struct {
    const Net *net;
    double *flow, *left;   /* of links, and what nodes can still supply */
    uint8_t *free_, *member, *used; /* used: links that had flow since they were last cleared */
    int32_t *level, *next, *queue, *path, *seen;
    int64_t queued, seen_count, mark;
    int64_t *stamp;
    double least;
} Flow;

/* Arc *at* of a node, counted over its links in and then out: the node before it, and what may still come from there. */
static int32_t arc(const Flow *f, int32_t node, int32_t at, int32_t *link, double *room) {
    const Net *n = f->net;
    int32_t in = n->in_first[node + 1] - n->in_first[node];
    if (at < in) {
        *link = n->in_links[n->in_first[node] + at];
        *room = n->capacity[*link] - f->flow[*link];
        return n->source[*link];
    }
    *link = n->out_links[n->out_first[node] + at - in];
    *room = f->flow[*link];
    return n->target[*link];
}

static int32_t arcs(const Flow *f, int32_t node) {
    const Net *n = f->net;
    return n->in_first[node + 1] - n->in_first[node] + n->out_first[node + 1] - n->out_first[node];
}

static int supplies(const Flow *f, int32_t node) { return f->free_[node] || f->left[node] > f->least; }

/* Mark the nodes from which more can reach the sink, up to the nearest that supply; whether there is one. */
static int search(Flow *f, int32_t sink) {
    int32_t link, found = -1;
    double room;
    f->mark++;
    f->queued = 0;
    f->queue[f->queued++] = sink;
    f->stamp[sink] = f->mark;
    f->level[sink] = f->next[sink] = 0;
    for (int64_t at = 0; at < f->queued; at++) {
        int32_t node = f->queue[at];
        if (found >= 0 && f->level[node] >= found) break;
        for (int32_t each = 0; each < arcs(f, node); each++) {
            int32_t from = arc(f, node, each, &link, &room);
            if (room <= f->least || f->stamp[from] == f->mark) continue;
            f->stamp[from] = f->mark;
            f->level[from] = f->level[node] + 1;
            f->next[from] = 0;
            f->queue[f->queued++] = from;
            if (found < 0 && supplies(f, from)) found = f->level[from];
        }
    }
    return found >= 0;
}

static void push(Flow *f, int32_t node, int32_t at, double amount) {
    int32_t link;
    double room;
    arc(f, node, at, &link, &room);
    if (!f->used[link]) f->seen[f->seen_count++] = link;
    f->used[link] = 1;
    if (at < f->net->in_first[node + 1] - f->net->in_first[node]) f->flow[link] += amount;
    else f->flow[link] -= amount;
}

/* Push along one more shortest way; returns how much, 0 when there is none. */
static double augment(Flow *f, int32_t sink, double wanted) {
    int64_t depth = 0;
    int32_t node = sink, link;
    double room;
    for (;;) {
        if (node != sink && supplies(f, node)) break;
        int32_t count = arcs(f, node);
        while (f->next[node] < count) {
            int32_t from = arc(f, node, f->next[node], &link, &room);
            if (room > f->least && f->stamp[from] == f->mark && f->level[from] == f->level[node] + 1) break;
            f->next[node]++;
        }
        if (f->next[node] == count) {
            if (!depth) return 0.0;
            node = f->path[--depth];
            f->next[node]++;
            continue;
        }
        f->path[depth++] = node;
        node = arc(f, node, f->next[node], &link, &room);
    }
    double amount = f->free_[node] || f->left[node] > wanted ? wanted : f->left[node];
    for (int64_t at = 0; at < depth; at++) {
        arc(f, f->path[at], f->next[f->path[at]], &link, &room);
        if (room < amount) amount = room;
    }
    for (int64_t at = 0; at < depth; at++) push(f, f->path[at], f->next[f->path[at]], amount);
    if (!f->free_[node]) f->left[node] -= amount;
    return amount;
}

/* The flow into *sink*, up to *wanted*. */
static double flow_into(Flow *f, int32_t sink, double supply, double wanted) {
    double total = 0.0;
    for (int64_t at = 0; at < f->seen_count; at++) {
        f->flow[f->seen[at]] = 0.0;
        f->used[f->seen[at]] = 0;
    }
    f->seen_count = 0;
    f->least = SMALL * wanted;
    for (int64_t node = 0; node < f->net->nodes; node++) f->left[node] = f->member[node] ? supply : 0.0;
    f->left[sink] = 0.0;
    while (total < wanted * (1.0 - CLOSE) && search(f, sink)) {
        double more;
        while (total < wanted && (more = augment(f, sink, wanted - total)) > 0.0) total += more;
    }
    return total;
}

/* What crosses into the nodes that the last search marked, over the members outside them if *share*. */
static double across(const Flow *f, int share) {
    double sum = 0.0, members = 0.0;
    for (int64_t link = 0; link < f->net->links; link++)
        if (f->stamp[f->net->source[link]] != f->mark && f->stamp[f->net->target[link]] == f->mark)
            sum += f->net->capacity[link];
    for (int64_t node = 0; node < f->net->nodes; node++) members += f->member[node] && f->stamp[node] != f->mark;
    return share ? sum / members : sum;
}

/* Lower *rate* until each sink gets it: from every member at once (*root* < 0), or from the root. *cut* gets the nodes
 * on the side of the sources. Returns -1 without memory. */
COSMIC_EXPORT int64_t cosmic_cut_rate(const Net *net, uint8_t *member, int64_t root, const int32_t *sinks, int64_t count,
                                      double *rate, uint8_t *cut) {
    Flow f = {net, NULL, NULL, NULL, member, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, 0.0};
    size_t nodes = (size_t)net->nodes, links = (size_t)net->links;
    int64_t members = 0, result = -1;
    for (int64_t node = 0; node < net->nodes; node++) members += member[node];
    f.flow = calloc(links, sizeof(double));
    f.left = malloc(nodes * sizeof(double));
    f.free_ = calloc(nodes, 1);
    f.level = malloc(nodes * sizeof(int32_t));
    f.next = malloc(nodes * sizeof(int32_t));
    f.queue = malloc(nodes * sizeof(int32_t));
    f.path = malloc(nodes * sizeof(int32_t));
    f.seen = malloc(links * sizeof(int32_t));
    f.used = calloc(links, 1);
    f.stamp = calloc(nodes, sizeof(int64_t));
    if (f.flow && f.left && f.free_ && f.level && f.next && f.queue && f.path && f.seen && f.used && f.stamp) {
        result = 0;
        if (root >= 0) f.free_[root] = 1;
        for (int64_t at = 0; at < count; at++) {
            int32_t sink = sinks[at];
            for (;;) {
                double wanted = root >= 0 ? *rate : (double)(members - 1) * *rate;
                if (flow_into(&f, sink, root >= 0 ? 0.0 : *rate, wanted) >= wanted * (1.0 - CLOSE)) break;
                double found = across(&f, root < 0);
                if (!(found < *rate)) break;
                *rate = found;
                for (int64_t node = 0; node < net->nodes; node++) cut[node] = f.stamp[node] != f.mark;
            }
            f.free_[sink] = 1; /* whatever is tighter has this sink on the side of the sources */
        }
    }
    free(f.flow);
    free(f.left);
    free(f.free_);
    free(f.level);
    free(f.next);
    free(f.queue);
    free(f.path);
    free(f.seen);
    free(f.used);
    free(f.stamp);
    return result;
}

/* Of each source: the largest distance to a member, and the sum of all; on *load*, how many of these ways each link is
 * on. Returns -1 without memory. */
COSMIC_EXPORT int64_t cosmic_distances(const Net *net, const uint8_t *member, const int32_t *sources, int64_t count,
                                       double *largest, double *sum, double *load) {
    size_t nodes = (size_t)net->nodes;
    double *distance = malloc(nodes * sizeof(double)), *behind = malloc(nodes * sizeof(double));
    int32_t *via = malloc(nodes * sizeof(int32_t)), *order = malloc(nodes * sizeof(int32_t));
    Heap heap = {NULL, 0, 0};
    int64_t result = distance && behind && via && order ? 0 : -1;
    for (int64_t at = 0; at < count && !result; at++) {
        int64_t settled = 0;
        for (int64_t node = 0; node < net->nodes; node++) {
            distance[node] = INFINITY;
            behind[node] = 0.0;
        }
        Item first = {0.0, 0, sources[at], 0};
        distance[sources[at]] = 0.0;
        via[sources[at]] = -1;
        if (!heap_push(&heap, first)) result = -1;
        while (heap.count && !result) {
            Item item = heap_pop(&heap);
            if (item.key > distance[item.place] || settled == net->nodes) continue;
            order[settled++] = item.place;
            for (int32_t each = net->out_first[item.place]; each < net->out_first[item.place + 1]; each++) {
                int32_t link = net->out_links[each], node = net->target[link];
                double there = item.key + net->capacity[link];
                if (there >= distance[node]) continue;
                distance[node] = there;
                via[node] = link;
                Item next = {there, 0, node, 0};
                if (!heap_push(&heap, next)) result = -1;
            }
        }
        for (int64_t place = settled - 1; place > 0; place--) {
            int32_t node = order[place];
            behind[node] += member[node];
            load[via[node]] += behind[node];
            behind[net->source[via[node]]] += behind[node];
        }
        largest[at] = sum[at] = 0.0;
        for (int64_t node = 0; node < net->nodes; node++) {
            if (!member[node]) continue;
            if (distance[node] > largest[at]) largest[at] = distance[node];
            sum[at] += distance[node];
        }
    }
    free(distance);
    free(behind);
    free(via);
    free(order);
    free(heap.items);
    return result;
}
