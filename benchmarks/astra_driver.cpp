// A collective in ASTRA-sim's engine, for `python -m benchmarks.peers --astra`: prints simulated nanoseconds.
// In a checkout of astra-network-analytical (its headers name each other as "common/..." and "congestion_aware/..."):
// g++ -O3 -DNDEBUG -std=c++17 -I include/astra-network-analytical .../astra_driver.cpp common/NetworkFunction.cpp \
//   common/event-queue/*.cpp congestion_aware/network/*.cpp congestion_aware/topology/Topology.cpp -o astra_driver
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "common/EventQueue.h"
#include "congestion_aware/Chunk.h"
#include "congestion_aware/Topology.h"

using namespace NetworkAnalyticalCongestionAware;

constexpr double BANDWIDTH = 50.0, LATENCY = 500.0;  // of 2^30 B/s, ns

struct Torus final : Topology {  // a ring where there is one row
    const int side, rows;

    Torus(int side, int rows) : side(side), rows(rows) {
        npus_count = devices_count = side * rows;
        instantiate_devices();
        for (int npu = 0; npu < npus_count; ++npu) {
            const int row = npu / side, column = npu % side;
            connect(npu, row * side + (column + 1) % side, BANDWIDTH, LATENCY, side > 2);
            if (rows > 1) connect(npu, (row + 1) % rows * side + column, BANDWIDTH, LATENCY, rows > 2);
        }
    }

    // Along the row first, the shorter way; of two as short, up.
    Route route(DeviceId from, DeviceId to) const noexcept override {
        Route path{devices[from]};
        int row = from / side, column = from % side;
        const auto step = [](int at, int goal, int extent) {
            return 2 * ((goal - at + extent) % extent) <= extent ? 1 : extent - 1;
        };
        for (int way = step(column, to % side, side); column != to % side;)
            path.push_back(devices[row * side + (column = (column + way) % side)]);
        for (int way = step(row, to / side, rows); row != to / side;)
            path.push_back(devices[(row = (row + way) % rows) * side + column]);
        return path;
    }
};

struct Message {  // that a ring passes on
    Torus* torus;
    int npu;
    long left;
    unsigned long bytes;
};

void pass_on(void* argument) {
    auto* message = static_cast<Message*>(argument);
    if (message->left-- == 0) return;
    const int next = (message->npu + 1) % message->torus->get_npus_count();
    auto path = message->torus->route(message->npu, next);
    message->npu = next;
    message->torus->send(std::make_unique<Chunk>(message->bytes, std::move(path), pass_on, message));
}

int main(int count, char** words) {  // ring N BYTES, or torus SIDE BYTES
    if (count != 4) return 2;
    const bool is_ring = std::strcmp(words[1], "ring") == 0;
    const int side = std::atoi(words[2]), n = is_ring ? side : side * side;
    const unsigned long bytes = std::strtoul(words[3], nullptr, 10);
    const auto queue = std::make_shared<EventQueue>();
    Topology::set_event_queue(queue);
    Torus torus(side, is_ring ? 1 : side);
    std::vector<Message> messages(n);
    for (int npu = 0; npu < n; ++npu) {
        messages[npu] = {&torus, npu, 2L * (n - 1), bytes};
        if (is_ring) pass_on(&messages[npu]);
    }
    for (int step = 1; !is_ring && step < n; ++step)
        for (int npu = 0; npu < n; ++npu)
            torus.send(std::make_unique<Chunk>(bytes, torus.route(npu, (npu + step) % n), [](void*) {}, nullptr));
    while (!queue->finished()) queue->proceed();
    std::printf("%lu\n", static_cast<unsigned long>(queue->get_current_time()));
}
