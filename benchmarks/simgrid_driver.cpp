// A collective in SimGrid (S4U), for `python -m benchmarks.peers --simgrid`: prints simulated nanoseconds.
// g++ -O3 -std=c++17 benchmarks/simgrid_driver.cpp -lsimgrid -o simgrid_driver
#include <cstdio>
#include <cstring>
#include <simgrid/s4u.hpp>

namespace sg = simgrid::s4u;
using Ends = std::pair<simgrid::kernel::routing::NetPoint*, simgrid::kernel::routing::NetPoint*>;

int main(int count, char** words) {  // ring N BYTES, or torus SIDE BYTES, and --cfg of SimGrid
    sg::Engine engine(&count, words);
    const bool is_ring = std::strcmp(words[1], "ring") == 0;
    const unsigned long n = std::atol(words[2]), ranks = is_ring ? n : n * n;
    const double bytes = std::atof(words[3]), bandwidth = 50.0 * (1 << 30), latency = 500e-9;
    std::vector<sg::Host*> hosts(ranks);
    if (is_ring) {
        auto* zone = sg::create_full_zone("ring");
        for (unsigned long rank = 0; rank < ranks; ++rank) hosts[rank] = zone->create_host(std::to_string(rank), 1e9);
        for (unsigned long rank = 0; rank < ranks; ++rank) {
            auto* link = zone->create_link("to " + std::to_string(rank), bandwidth)->set_latency(latency)->seal();
            zone->add_route(hosts[rank]->get_netpoint(), hosts[(rank + 1) % ranks]->get_netpoint(), nullptr, nullptr,
                            {sg::LinkInRoute(link)}, false);
        }
        zone->seal();
    } else {
        auto place = [&](sg::NetZone* zone, const std::vector<unsigned long>&, unsigned long rank) -> Ends {
            hosts[rank] = zone->create_host(std::to_string(rank), 1e9)->seal();
            return {hosts[rank]->get_netpoint(), nullptr};
        };
        sg::create_torus_zone("torus", nullptr, {n, n}, {place, {}, {}}, bandwidth, latency,
                              sg::Link::SharingPolicy::SPLITDUPLEX)->seal();
    }
    for (unsigned long rank = 0; rank < ranks; ++rank)
        sg::Actor::create("rank", hosts[rank], [=, &hosts] {
            static int message;
            auto* to = sg::Mailbox::by_name(std::to_string((rank + 1) % ranks));
            auto* own = sg::Mailbox::by_name(std::to_string(rank));
            for (unsigned long step = 0; is_ring && step < 2 * (ranks - 1); ++step) {
                auto sent = to->put_async(&message, bytes);
                own->get<int>();
                sent->wait();
            }
            for (unsigned long step = 1; !is_ring && step < ranks; ++step)
                sg::Comm::sendto(hosts[rank], hosts[(rank + step) % ranks], bytes);
        });
    engine.run();
    std::printf("%.0f\n", sg::Engine::get_clock() * 1e9);
}
