// The all-to-all as a plain loop: fifo servers, store-and-forward, chunks of equal size, no dependencies. Events of 24
// bytes in a calendar of growing arrays, each sorted by (time, class, chunk, hop, task) when it is opened.
#include <algorithm>
#include <cstdint>
#include <vector>

namespace {
struct Event {
    int64_t time, tie;  // tie: class 24 bits, chunk 14, hop 6, task 20
    int32_t at, task;
    bool operator<(const Event& other) const { return time != other.time ? time < other.time : tie < other.tie; }
};
constexpr int64_t HOP = int64_t(1) << 20, CHUNK = int64_t(1) << 26, CLASS = int64_t(1) << 40;
}

// Returns the makespan; `services` is set to the number of services. Services must last at least a bucket.
extern "C" int64_t run(int64_t tasks, int64_t servers, int64_t chunks, const int32_t* first, const int32_t* last,
                       const int32_t* server, const int64_t* latency_ps, const int64_t* service_ps, const int32_t* klass,
                       int64_t* finish_ps, int64_t* busy_ps, int64_t bucket_bits, int64_t buckets, int64_t* services) {
    std::vector<std::vector<Event>> calendar(buckets);
    std::vector<int64_t> free_ps(servers, 0);
    std::vector<int32_t> left(tasks, int32_t(chunks));
    const int64_t mask = buckets - 1;
    int64_t waiting = 0, makespan = 0, done = 0;
    auto put = [&](const Event& event) { calendar[(event.time >> bucket_bits) & mask].push_back(event); ++waiting; };
    for (int64_t task = 0; task < tasks; ++task) put({0, klass[task] * CLASS + task, first[task], int32_t(task)});
    std::vector<Event> open;
    for (int64_t bucket = 0; waiting > 0; ++bucket) {
        open.clear();
        open.swap(calendar[bucket & mask]);
        std::sort(open.begin(), open.end());
        waiting -= int64_t(open.size());
        for (Event event : open) {
            if (event.time >> bucket_bits != bucket) {  // of a later turn of the calendar
                put(event);
                continue;
            }
            if (event.at == last[event.task]) {
                makespan = event.time;
                if (--left[event.task] == 0) finish_ps[event.task] = event.time;
                continue;
            }
            const int32_t at = server[event.at];
            const int64_t end = std::max(event.time, free_ps[at]) + service_ps[at];
            free_ps[at] = end;
            busy_ps[at] += service_ps[at];
            ++done;
            if (event.at == first[event.task] && (event.tie / CHUNK) % (CLASS / CHUNK) + 1 < chunks)
                put({end, event.tie + CHUNK, event.at, event.task});
            put({end + latency_ps[event.at], event.tie + HOP, event.at + 1, event.task});
        }
    }
    *services = done;
    return makespan;
}
