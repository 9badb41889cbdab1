# The library service-models: tensors, the interface of a model, and how requests share a run. The service links it, and
# so does examples/triton-backend. A program also compiles disc_model.cpp, which needs disc.h.
#
# Debian: nlohmann-json3-dev.
find_package(nlohmann_json REQUIRED)

set(service_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
set(service_models combiner.cpp combiner_rules.cpp model.cpp model_config.cpp runs.cpp tensor.cpp)
list(TRANSFORM service_models PREPEND "${CMAKE_CURRENT_LIST_DIR}/")
add_library(service-models STATIC ${service_models})
target_include_directories(service-models PUBLIC "${CMAKE_CURRENT_LIST_DIR}")
target_compile_options(service-models PRIVATE ${service_warnings})
target_link_libraries(service-models PUBLIC nlohmann_json::nlohmann_json)
