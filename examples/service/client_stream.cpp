//===- client_stream.cpp - a connection with limits -----------------------===//

#include "client_stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace service {

/// How long a wait goes on before it looks whether the service is closing.
static constexpr std::chrono::milliseconds kSlice{50};
/// What a client that is sending gets when the service is closing.
static constexpr std::chrono::milliseconds kClosingGrace{500};

static thread_local ClientStream *currentStream = nullptr;

ClientStream *ClientStream::current() { return currentStream; }

static const char *reason(int status) {
  switch (status) {
  case 200:
    return "OK";
  case 408:
    return "Request Timeout";
  case 431:
    return "Request Header Fields Too Large";
  case 503:
    return "Service Unavailable";
  default:
    return "Error";
  }
}

std::string lastAnswer(int status, const std::string &type, const std::string &body, const std::string &headers) {
  return "HTTP/1.1 " + std::to_string(status) + " " + reason(status) +
         "\r\nConnection: close\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + body;
}

std::string lastError(int status, const std::string &error, const std::string &headers) {
  return lastAnswer(status, "application/json; charset=utf-8", "{\"error\":\"" + error + "\"}", headers);
}

ClientStream::ClientStream(int socket, std::chrono::milliseconds timeout, const std::atomic<bool> &closing)
    : socket_(socket), timeout_(timeout), closing_(closing) {
  currentStream = this;
}

ClientStream::~ClientStream() { currentStream = nullptr; }

bool ClientStream::waitFor(short events, Clock::time_point deadline) const {
  bool closing = false;
  for (;;) {
    if (!closing && closing_) {
      closing = true;
      deadline = std::min(deadline, Clock::now() + kClosingGrace);
    }
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0)
      return false;
    pollfd entry{socket_, events, 0};
    int ready = poll(&entry, 1, int(std::min(left, kSlice).count()));
    if (ready > 0)
      return true;
    if (ready < 0 && errno != EINTR)
      return false;
  }
}

bool ClientStream::awaitRequest() {
  inHead_ = true;
  answering_ = timedOut_ = false;
  headBytes_ = headLines_ = lineBytes_ = 0;
  if (begin_ == end_) {
    auto idleEnd = Clock::now() + timeout_;
    pollfd entry{socket_, POLLIN, 0};
    while (poll(&entry, 1, int(kSlice.count())) == 0)
      if (closing_ || Clock::now() > idleEnd)
        return false;
  }
  deadline_ = Clock::now() + timeout_;
  return true;
}

ssize_t ClientStream::refuse(int status, const char *error) {
  std::string answer = lastError(status, error);
  broken_ = true;
  (void)!::send(socket_, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return -1;
}

/// False if the head is larger than it may be.
bool ClientStream::countHead(const char *data, size_t size) {
  for (size_t i = 0; i < size && inHead_; ++i) {
    ++headBytes_;
    if (data[i] == '\n') {
      ++headLines_;
      inHead_ = lineBytes_ > 0; // an empty line ends it
      lineBytes_ = 0;
    } else {
      lineBytes_ += data[i] != '\r';
    }
  }
  return headBytes_ <= kMaxHeadBytes && headLines_ <= kMaxHeadLines;
}

bool ClientStream::is_readable() const { return begin_ < end_ || (!broken_ && waitFor(POLLIN, deadline_)); }

bool ClientStream::is_writable() const { return !broken_ && waitFor(POLLOUT, Clock::now() + timeout_); }

ssize_t ClientStream::read(char *data, size_t size) {
  if (broken_)
    return -1;
  if (begin_ == end_) {
    if (!waitFor(POLLIN, deadline_)) {
      timedOut_ = true;
      return inHead_ ? refuse(408, "the request took too long to arrive") : -1;
    }
    ssize_t count = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (count <= 0)
      return count;
    begin_ = 0;
    end_ = size_t(count);
  }
  size_t count = std::min(size, end_ - begin_);
  std::memcpy(data, &buffer_[begin_], count);
  begin_ += count;
  if (inHead_ && !countHead(data, count))
    return refuse(431, "the request's headers are too large");
  return ssize_t(count);
}

ssize_t ClientStream::write(const char *data, size_t size) {
  if (broken_)
    return -1;
  // A client that takes its answer a byte at a time is as slow as one that sends so.
  if (!answering_)
    deadline_ = Clock::now() + 2 * timeout_;
  answering_ = true;
  if (!waitFor(POLLOUT, deadline_)) {
    broken_ = true;
    return -1;
  }
  return ::send(socket_, data, size, MSG_NOSIGNAL);
}

static void describe(const sockaddr_storage &address, std::string &ip, int &port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto &v4 = reinterpret_cast<const sockaddr_in &>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto &v6 = reinterpret_cast<const sockaddr_in6 &>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    port = ntohs(v6.sin6_port);
  }
  ip = text;
}

void ClientStream::get_remote_ip_and_port(std::string &ip, int &port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(socket_, reinterpret_cast<sockaddr *>(&address), &size) == 0)
    describe(address, ip, port);
}

void ClientStream::get_local_ip_and_port(std::string &ip, int &port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(socket_, reinterpret_cast<sockaddr *>(&address), &size) == 0)
    describe(address, ip, port);
}

} // namespace service
