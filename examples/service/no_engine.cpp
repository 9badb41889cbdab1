//===- no_engine.cpp - a service without a model of sentences -------------===//

#include "engine.h"

#include <stdexcept>

namespace service {

std::unique_ptr<Engine> makeEngine(const Engine::Options &) {
  throw std::runtime_error("--vocab: this program was built without a model of sentences (SERVICE_WITH_MODEL=OFF)");
}

} // namespace service
