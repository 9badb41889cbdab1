//===- GpuGraph.cpp - graphs of a driver's --------------------------------===//

#include "lib/Runtime/Device/Gpu.h"

#include <utility>

namespace disc::rt {

GpuGraph::~GpuGraph() {
  DeviceScope scope(&device);
  // A launch that still runs keeps what it needs.
  if (executable)
    (void)device.driver.destroyExecutable(executable);
  if (graph)
    (void)device.driver.destroyGraph(graph);
}

/// Adds a node behind the last one, or changes one of the executable graph.
template <typename Add, typename Set> Status GpuGraph::place(size_t node, bool isEarly, Add add, Set set) {
  if (executable) {
    ++device.counters.graphUpdates;
    return device.check(set(nodes[node]), "changing a node of a graph");
  }
  if (!graph)
    if (Status status = device.check(device.driver.createGraph(&graph, 0), "making a graph"); !status.ok())
      return status;
  nodes.push_back(nullptr);
  void *const *after = nodes.size() > 1 ? &nodes[nodes.size() - 2] : nullptr;
  bool isBehindKernel = std::exchange(lastIsEarly, isEarly);
  if (!after || !isEarly || !isBehindKernel || !device.driver.startEarly)
    return device.check(add(&nodes.back(), after, after ? 1 : 0), "adding a node to a graph");
  if (Status status = device.check(add(&nodes.back(), nullptr, 0), "adding a node to a graph"); !status.ok())
    return status;
  return device.check(device.driver.startEarly(graph, *after, nodes.back()), "adding a dependency to a graph");
}

Status GpuGraph::put(size_t node, DeviceModule &module, const DeviceLaunch &launch) {
  KernelNode kernel;
  if (Status status = device.find(module, launch, kernel); !status.ok())
    return status;
  return place(
      node, kernel.isEarly,
      [&](void **made, void *const *after, size_t count) {
        return device.driver.addKernel(made, graph, after, count, kernel);
      },
      [&](void *changed) { return device.driver.setKernel(executable, changed, kernel); });
}

Status GpuGraph::put(size_t node, void *to, const void *from, size_t bytes) {
  CopyNode copy = {to, from, bytes, device.currentContext()};
  return place(
      node, /*isEarly=*/false,
      [&](void **made, void *const *after, size_t count) {
        return device.driver.addCopy(made, graph, after, count, copy);
      },
      [&](void *changed) { return device.driver.setCopy(executable, changed, copy); });
}

Status GpuGraph::put(size_t node, const DeviceProduct &product, void *memory) {
  void *child = nullptr;
  if (Status status = device.capture(product, memory, child); !status.ok())
    return status;
  Status status = place(
      node, /*isEarly=*/false,
      [&](void **made, void *const *after, size_t count) {
        return device.driver.addChild(made, graph, after, count, child);
      },
      [&](void *changed) { return device.driver.setChild(executable, changed, child); });
  (void)device.driver.destroyGraph(child); // the node has a copy
  return status;
}

Status GpuGraph::finish() {
  ++device.counters.graphs;
  return device.check(device.driver.instantiate(&executable, graph, 0), "making a graph executable");
}

Status GpuGraph::launch(Stream stream) {
  ++device.counters.graphLaunches;
  return device.check(device.driver.launchGraph(executable, stream), "a launch of a graph");
}

Status GpuDevice::capture(const DeviceProduct &product, void *memory, void *&graph) {
  std::lock_guard<Mutex> lock(capturingMutex);
  if (!capturing)
    if (Status status = check(driver.createStream(&capturing, kStreamNonBlocking), "making a stream"); !status.ok())
      return status;
  // Relaxed: neither this thread nor another is kept from anything meanwhile.
  if (Status status = check(driver.beginCapture(capturing, kCaptureRelaxed), "beginning a capture"); !status.ok())
    return status;
  bool done = false;
  Status multiplied = doMultiply(product, [&](size_t) { return memory; }, capturing, done);
  Status ended = check(driver.endCapture(capturing, &graph), "ending a capture");
  if (multiplied.ok() && !done)
    multiplied = Status(Code::Device, "the library does not compute a product again");
  if (ended.ok() && multiplied.ok())
    return Status();
  if (graph)
    (void)driver.destroyGraph(graph);
  return multiplied.ok() ? std::move(ended) : std::move(multiplied);
}

} // namespace disc::rt
