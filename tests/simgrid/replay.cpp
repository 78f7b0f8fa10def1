// Replays tasks process by process in SimGrid and says when each began and ended.
//
// replay [--share=rate|flow] [--traffic=phases|steady] [--cfg=...] < input > output
//
// Input, one record a line:
//   cluster NAME BYTES_PER_S             link to the central switch, each way; "inf": no limit
//   node NAME CLUSTER FLOP_PER_S SLOTS
//   task NAME NOT_BEFORE_S ROUNDS FLOP PAUSE_S
//   rank TASK NODE                       a process, in rank order; it takes a slot
//   after TASK TASK                      the first begins when the second has ended
//   flow TASK FROM TO BYTES BYTES_PER_S  each round, from one rank to another
//   load NODE NODE FROM_S UNTIL_S BYTES_PER_S   other traffic, on nodes that run no task
// Output, for each task in order:
//   NAME BEGAN_S ENDED_S
//
// A task is bulk-synchronous. In each round every rank computes FLOP; when all have, the flows
// begin together, each bound to its own rate; the round is over when all flows are, and not before
// PAUSE_S after they began.
//
// --share: how flows share a link that cannot carry them all: in proportion to the rates they are
// bound to, or equally until one has its rate (max-min, as TCP would).
// --traffic=steady: the flows also run at their rates while the ranks compute, carrying nothing
// that anybody waits for.
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

namespace {

constexpr double UNLIMITED_BYTES_PER_S = 1e15;
constexpr double ENDLESS_BYTES = 1e18;
// CM02 shares a link in inverse proportion to latency; this one belongs to the slowest flow.
constexpr double LONGEST_LATENCY_S = 1e-6;

struct Flow {
  size_t from, to;
  double bytes, bytes_per_s;
  sg4::Mailbox* box;
};

struct Load {
  std::string from, to;
  double from_s, until_s, bytes_per_s;
  sg4::Mailbox* box;
};

struct Node {
  std::string cluster;
  double flop_per_s = 0.0;
  std::vector<sg4::Host*> free;
};

struct Task {
  std::string name;
  double not_before_s = 0.0, flop = 0.0, pause_s = 0.0;
  unsigned rounds = 1;
  std::vector<Node*> ranks;
  std::vector<Task*> after;
  std::vector<Flow> flows;
  std::vector<sg4::Host*> slots;
  double began_s = -1.0, ended_s = -1.0;
  bool waits = false;  // for slots; whatever else it needs is there

  double fastest() const {
    double most = 0.0;
    for (auto const& flow : flows)
      most = std::max(most, flow.bytes_per_s);
    return most;
  }
};

struct Replay {
  bool by_rate = true, steady = false;
  double slowest = std::numeric_limits<double>::infinity();
  std::map<std::string, double> clusters;
  std::map<std::string, Node> nodes;
  std::map<std::string, unsigned> capacity;
  std::map<std::string, Task> tasks;
  std::vector<Task*> order;
  std::vector<Load> loads;
  sg4::MutexPtr mutex;
  sg4::ConditionVariablePtr changed;
};

template <class T> T& known(std::map<std::string, T>& table, std::string const& name) {
  auto found = table.find(name);
  if (found == table.end())
    throw std::invalid_argument("unknown name " + name);
  return found->second;
}

double number(std::string const& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || std::isnan(value))
    throw std::invalid_argument("not a number: " + text);
  return value;
}

unsigned count(std::string const& text) {
  double value = number(text);
  if (value < 0.0 || value > 1e9 || value != std::floor(value))
    throw std::invalid_argument("not a whole number: " + text);
  return static_cast<unsigned>(value);
}

void read_record(Replay& replay, std::vector<std::string> const& words) {
  auto const& kind = words.at(0);
  if (kind == "cluster") {
    replay.clusters[words.at(1)] = number(words.at(2));
  } else if (kind == "node") {
    known(replay.clusters, words.at(2));
    replay.nodes[words.at(1)] = Node{words.at(2), number(words.at(3)), {}};
    replay.capacity[words.at(1)] = count(words.at(4));
  } else if (kind == "task") {
    Task& task = replay.tasks[words.at(1)];
    if (!task.name.empty())
      throw std::invalid_argument("task named twice");
    task.name = words.at(1);
    task.not_before_s = number(words.at(2));
    task.rounds = count(words.at(3));
    task.flop = number(words.at(4));
    task.pause_s = number(words.at(5));
    replay.order.push_back(&task);
  } else if (kind == "rank") {
    known(replay.tasks, words.at(1)).ranks.push_back(&known(replay.nodes, words.at(2)));
  } else if (kind == "after") {
    known(replay.tasks, words.at(1)).after.push_back(&known(replay.tasks, words.at(2)));
  } else if (kind == "flow") {
    Task& task = known(replay.tasks, words.at(1));
    Flow flow{count(words.at(2)), count(words.at(3)), number(words.at(4)),
              number(words.at(5)),
              sg4::Mailbox::by_name(task.name + ":" + std::to_string(task.flows.size()))};
    if (std::max(flow.from, flow.to) >= task.ranks.size() || flow.bytes_per_s <= 0.0)
      throw std::invalid_argument("flow between unknown ranks, or without a rate");
    replay.slowest = std::min(replay.slowest, flow.bytes_per_s);
    task.flows.push_back(flow);
  } else if (kind == "load") {
    auto* box = sg4::Mailbox::by_name("load:" + std::to_string(replay.loads.size()));
    Load load{words.at(1), words.at(2), number(words.at(3)), number(words.at(4)),
              number(words.at(5)), box};
    known(replay.nodes, load.from);
    known(replay.nodes, load.to);
    if (load.bytes_per_s <= 0.0)
      throw std::invalid_argument("load without a rate");
    replay.slowest = std::min(replay.slowest, load.bytes_per_s);
    replay.loads.push_back(load);
  } else {
    throw std::invalid_argument("unknown record " + kind);
  }
}

void read_all(Replay& replay, std::istream& input) {
  std::string line;
  for (unsigned number = 1; std::getline(input, line); ++number) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;)
      words.push_back(word);
    if (words.empty())
      continue;
    try {
      read_record(replay, words);
    } catch (std::exception const& error) {
      throw std::invalid_argument("line " + std::to_string(number) + ": " + error.what());
    }
  }
  std::stable_sort(replay.order.begin(), replay.order.end(), [](Task const* a, Task const* b) {
    return a->not_before_s < b->not_before_s;
  });
}

// A star of stars. A slot is a host with a link of its own, which limits nothing: its latency
// carries the weight of the task that holds the slot.
void build_platform(Replay& replay) {
  sg4::NetZone* root = sg4::create_star_zone("switch");
  std::map<std::string, sg4::NetZone*> zones;
  std::map<std::string, simgrid::kernel::routing::NetPoint*> gateways;
  for (auto const& [name, bytes_per_s] : replay.clusters) {
    sg4::NetZone* zone = sg4::create_star_zone("cluster:" + name);
    zone->set_parent(root);
    gateways[name] = zone->create_router("gateway:" + name);
    zones[name] = zone;
  }
  for (auto& [name, node] : replay.nodes) {
    sg4::NetZone* zone = zones.at(node.cluster);
    for (unsigned n = 0; n < replay.capacity.at(name); ++n) {
      std::string slot = name + "/" + std::to_string(n);
      sg4::Host* host = zone->create_host(slot, node.flop_per_s);
      sg4::Link* own = zone->create_link("link:" + slot, UNLIMITED_BYTES_PER_S);
      own->set_sharing_policy(sg4::Link::SharingPolicy::FATPIPE)->set_latency(0.0)->seal();
      zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {sg4::LinkInRoute(own)}, true);
      host->seal();
      node.free.push_back(host);
    }
  }
  for (auto const& [name, zone] : zones) {
    double bytes_per_s = std::min(replay.clusters.at(name), UNLIMITED_BYTES_PER_S);
    zone->seal();
    sg4::SplitDuplexLink* link = root->create_split_duplex_link("link:" + name, bytes_per_s);
    link->set_latency(0.0)->seal();
    for (bool up : {true, false}) {
      auto direction = up ? sg4::LinkInRoute::Direction::UP : sg4::LinkInRoute::Direction::DOWN;
      root->add_route(up ? zone->get_netpoint() : nullptr, up ? nullptr : zone->get_netpoint(),
                      up ? gateways.at(name) : nullptr, up ? nullptr : gateways.at(name),
                      {sg4::LinkInRoute(link, direction)}, false);
    }
  }
  root->seal();
}

// Every node has a slot for it that no earlier task is waiting for.
bool has_room(Replay const& replay, Task const& task) {
  std::map<Node const*, size_t> wanted;
  for (Node const* node : task.ranks)
    ++wanted[node];
  for (Task const* earlier : replay.order) {
    if (earlier == &task)
      break;
    if (earlier->waits)
      for (Node const* node : earlier->ranks)
        if (wanted.count(node) > 0)
          ++wanted[node];
  }
  return std::all_of(wanted.begin(), wanted.end(),
                     [](auto const& entry) { return entry.first->free.size() >= entry.second; });
}

void weigh(Replay const& replay, sg4::Host const* slot, double bytes_per_s) {
  if (replay.by_rate && bytes_per_s > 0.0)
    sg4::Link::by_name("link:" + slot->get_name())
        ->set_latency(LONGEST_LATENCY_S * replay.slowest / bytes_per_s);
}

// From one mailbox to its reader. Comm::sendto_init() would need no reader, but in SimGrid 3.32
// such a flow takes no notice of set_rate().
sg4::CommPtr send(sg4::Mailbox* box, double bytes, double bytes_per_s) {
  static char nothing = 0;
  auto comm = box->put_init(&nothing, static_cast<uint64_t>(bytes));
  comm->set_rate(bytes_per_s)->start();
  return comm;
}

// What a rank sends and receives; `content` is where received pointers are left.
std::vector<sg4::CommPtr> start_flows(Task const& task, size_t rank, bool endless, char** content) {
  std::vector<sg4::CommPtr> out;
  for (auto const& flow : task.flows) {
    if (flow.from == rank)
      out.push_back(send(flow.box, endless ? ENDLESS_BYTES : flow.bytes, flow.bytes_per_s));
    if (flow.to == rank)
      out.push_back(flow.box->get_async<char>(content));
  }
  return out;
}

void run_rank(Replay const& replay, Task const& task, size_t rank, sg4::BarrierPtr together) {
  char* content = nullptr;
  for (unsigned round = 0; round < task.rounds; ++round) {
    std::vector<sg4::CommPtr> filling;
    if (replay.steady && task.flop > 0.0)
      filling = start_flows(task, rank, true, &content);
    if (task.flop > 0.0)
      sg4::this_actor::execute(task.flop);
    together->wait();
    for (auto const& comm : filling)
      comm->cancel();
    double over_s = sg4::Engine::get_clock() + task.pause_s;
    for (auto const& comm : start_flows(task, rank, false, &content))
      comm->wait();
    sg4::this_actor::sleep_until(over_s);
    together->wait();
  }
}

void run_task(Replay& replay, Task& task) {
  sg4::this_actor::sleep_until(task.not_before_s);
  std::unique_lock<sg4::Mutex> lock(*replay.mutex);
  auto ended = [](Task const* other) { return other->ended_s >= 0.0; };
  while (!std::all_of(task.after.begin(), task.after.end(), ended))
    replay.changed->wait(lock);
  task.waits = true;
  while (!has_room(replay, task))
    replay.changed->wait(lock);
  task.waits = false;
  for (Node* node : task.ranks) {
    task.slots.push_back(node->free.back());
    node->free.pop_back();
    weigh(replay, task.slots.back(), task.fastest());
  }
  task.began_s = sg4::Engine::get_clock();
  replay.changed->notify_all();
  lock.unlock();

  auto together = sg4::Barrier::create(task.ranks.size());
  std::vector<sg4::ActorPtr> actors;
  for (size_t rank = 0; rank < task.ranks.size(); ++rank)
    actors.push_back(sg4::Actor::create(task.name + ":" + std::to_string(rank), task.slots[rank],
                                        [&replay, &task, rank, together] {
                                          run_rank(replay, task, rank, together);
                                        }));
  for (auto const& actor : actors)
    actor->join();

  lock.lock();
  task.ended_s = sg4::Engine::get_clock();
  for (size_t rank = 0; rank < task.ranks.size(); ++rank)
    task.ranks[rank]->free.push_back(task.slots[rank]);
  replay.changed->notify_all();
}

// One end of other traffic.
void run_load(Replay const& replay, Load const& load, bool sends) {
  sg4::this_actor::sleep_until(load.from_s);
  weigh(replay, sg4::this_actor::get_host(), load.bytes_per_s);
  char* content = nullptr;
  auto comm = sends ? send(load.box, ENDLESS_BYTES, load.bytes_per_s)
                    : load.box->get_async<char>(&content);
  sg4::this_actor::sleep_until(load.until_s);
  comm->cancel();
}

void read_arguments(Replay& replay, int argc, char** argv) {
  for (int n = 1; n < argc; ++n) {
    std::string word = argv[n];
    if (word == "--share=rate" || word == "--share=flow")
      replay.by_rate = word == "--share=rate";
    else if (word == "--traffic=phases" || word == "--traffic=steady")
      replay.steady = word == "--traffic=steady";
    else
      throw std::invalid_argument("unknown argument " + word);
  }
}

int replay_all(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  Replay replay;
  read_arguments(replay, argc, argv);
  read_all(replay, std::cin);
  if (replay.nodes.empty())
    throw std::invalid_argument("no node");
  build_platform(replay);
  replay.mutex = sg4::Mutex::create();
  replay.changed = sg4::ConditionVariable::create();
  sg4::Host* anywhere = replay.nodes.begin()->second.free.at(0);
  for (Task* task : replay.order)
    sg4::Actor::create("task:" + task->name, anywhere, [&replay, task] { run_task(replay, *task); });
  for (Load const& load : replay.loads)
    for (bool sends : {true, false}) {
      sg4::Host* host = replay.nodes.at(sends ? load.from : load.to).free.at(0);
      sg4::Actor::create("load", host, [&replay, &load, sends] { run_load(replay, load, sends); });
    }
  engine.run();
  std::cout.precision(17);
  for (Task const* task : replay.order)
    std::cout << task->name << ' ' << task->began_s << ' ' << task->ended_s << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return replay_all(argc, argv);
  } catch (std::exception const& error) {
    std::cerr << "replay: " << error.what() << '\n';
    return 1;
  }
}
