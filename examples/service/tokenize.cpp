//===- tokenize.cpp - the tokenizer as a command --------------------------===//
//
//   tokenize vocab.txt [LIMIT] < sentences > ids
//
// Each line of the input is a sentence as a JSON string, so that it can hold anything; each line of the output its ids,
// or "error: " and what is wrong with it.
//
//===----------------------------------------------------------------------===//

#include "tokenizer.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <iostream>

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: tokenize vocab.txt [LIMIT] < sentences\n";
    return 2;
  }
  try {
    service::Tokenizer tokenizer(argv[1]);
    size_t limit = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 512;
    if (limit < 2)
      throw std::invalid_argument("LIMIT is 2 or more");
    std::ios::sync_with_stdio(false);
    for (std::string line; std::getline(std::cin, line);) {
      try {
        const char *separator = "";
        for (int32_t id : tokenizer.encode(nlohmann::json::parse(line).get<std::string>(), limit)) {
          std::cout << separator << id;
          separator = " ";
        }
      } catch (const std::exception &error) {
        std::cout << "error: " << error.what();
      }
      std::cout << '\n';
    }
  } catch (const std::exception &error) {
    std::cerr << "tokenize: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
