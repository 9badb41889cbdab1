//===- client_stream.h - a connection with limits ---------------*- C++ -*-===//
//
// httplib limits the time between two bytes and the length of a line, so that a client that sends a byte now and then,
// or headers without end, could hold a connection for good. Here a request has a deadline, and its head a size.
//
//===----------------------------------------------------------------------===//

#ifndef SERVICE_CLIENT_STREAM_H
#define SERVICE_CLIENT_STREAM_H

#include <httplib.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

namespace service {

/// What a client may send before the body of a request.
constexpr size_t kMaxHeadBytes = 16384, kMaxHeadLines = 100;

/// A whole answer, after which the connection ends. `headers` are lines of their own.
std::string lastAnswer(int status, const std::string &type, const std::string &body, const std::string &headers = "");
/// The same with {"error": ...}.
std::string lastError(int status, const std::string &error, const std::string &headers = "");

class ClientStream final : public httplib::Stream {
public:
  using Clock = std::chrono::steady_clock;

  /// `timeout`: for a client to send a request, to take its answer, and between two requests. Once `closing` is set,
  /// clients that send nothing are not waited for.
  ClientStream(int socket, std::chrono::milliseconds timeout, const std::atomic<bool> &closing);
  ~ClientStream() override;

  /// Waits for the next request, whose time begins with its first byte. False if none comes.
  bool awaitRequest();

  /// Whether the request took too long to arrive.
  bool timedOut() const { return timedOut_; }

  /// The calling thread's; null outside of a request.
  static ClientStream *current();

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char *data, size_t size) override;
  ssize_t write(const char *data, size_t size) override;
  void get_remote_ip_and_port(std::string &ip, int &port) const override;
  void get_local_ip_and_port(std::string &ip, int &port) const override;
  socket_t socket() const override { return socket_; }

private:
  bool waitFor(short events, Clock::time_point deadline) const;
  bool countHead(const char *data, size_t size);
  ssize_t refuse(int status, const char *error);

  const int socket_;
  const std::chrono::milliseconds timeout_;
  const std::atomic<bool> &closing_;
  std::array<char, 4096> buffer_;
  size_t begin_ = 0, end_ = 0; ///< What is read and not handed on.
  Clock::time_point deadline_; ///< Of the request, then of the answer.
  bool inHead_ = true, answering_ = false, timedOut_ = false, broken_ = false;
  size_t headBytes_ = 0, headLines_ = 0, lineBytes_ = 0;
};

} // namespace service

#endif // SERVICE_CLIENT_STREAM_H
