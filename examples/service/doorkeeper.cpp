//===- doorkeeper.cpp - clients for which there is no room ----------------===//

#include "doorkeeper.h"
#include "client_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

namespace service {

/// More at a time are not worth an answer: the oldest goes.
static constexpr size_t kMostVisitors = 64;
/// What a client may send behind the head before it reads its answer; a connection that is closed with data unread is
/// reset, and the answer with it.
static constexpr size_t kMostDrained = size_t(4) << 20;

Doorkeeper::Doorkeeper(Answer answer, std::chrono::milliseconds patience)
    : answer_(std::move(answer)), patience_(patience) {
  int ends[2];
  if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0)
    throw std::runtime_error("cannot make a pipe");
  wakeRead_ = ends[0];
  wakeWrite_ = ends[1];
  thread_ = std::thread([this] { work(); });
}

Doorkeeper::~Doorkeeper() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  (void)!::write(wakeWrite_, "", 1);
  thread_.join();
  ::close(wakeRead_);
  ::close(wakeWrite_);
}

void Doorkeeper::take(int socket) {
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    arrived_.push_back(socket);
  }
  (void)!::write(wakeWrite_, "", 1); // a full pipe wakes it, too
}

bool Doorkeeper::receive(Visitor &visitor) const {
  char data[4096];
  for (;;) {
    ssize_t count = ::recv(visitor.socket, data, sizeof(data), 0);
    if (count < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (count == 0)
      return false;
    if (!visitor.answer.empty()) {
      visitor.drained += size_t(count);
      if (visitor.drained > kMostDrained)
        return false;
      continue;
    }
    visitor.request.append(data, size_t(count));
    if (visitor.request.find("\r\n\r\n") != std::string::npos) {
      size_t method = visitor.request.find(' '), path = visitor.request.find_first_of(" ?\r", method + 1);
      if (method == std::string::npos || path == std::string::npos)
        return false;
      visitor.answer =
          answer_(visitor.request.substr(0, method), visitor.request.substr(method + 1, path - method - 1));
      visitor.request.clear();
    } else if (visitor.request.size() > kMaxHeadBytes) {
      visitor.answer = lastError(431, "the request's headers are too large");
    }
  }
}

bool Doorkeeper::serve(Visitor &visitor, short events) const {
  if (events & (POLLIN | POLLERR | POLLHUP) && !receive(visitor))
    return false;
  if (visitor.answer.empty() || visitor.sent == visitor.answer.size())
    return true;
  ssize_t count =
      ::send(visitor.socket, visitor.answer.data() + visitor.sent, visitor.answer.size() - visitor.sent, MSG_NOSIGNAL);
  if (count < 0)
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  visitor.sent += size_t(count);
  if (visitor.sent == visitor.answer.size())
    ::shutdown(visitor.socket, SHUT_WR); // the client closes once it has read that
  return true;
}

void Doorkeeper::work() {
  std::vector<pollfd> polled;
  for (;;) {
    polled.assign(1, {wakeRead_, POLLIN, 0});
    auto next = Clock::now() + std::chrono::hours(1);
    for (const Visitor &visitor : visitors_) {
      bool sends = visitor.sent < visitor.answer.size();
      polled.push_back({visitor.socket, short(POLLIN | (sends ? POLLOUT : 0)), 0});
      next = std::min(next, visitor.deadline);
    }
    auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    if (poll(polled.data(), polled.size(), int(std::max<int64_t>(wait.count(), 0))) < 0 && errno != EINTR)
      continue;
    auto now = Clock::now();
    size_t kept = 0;
    for (size_t i = 0; i < visitors_.size(); ++i) {
      Visitor &visitor = visitors_[i];
      short events = polled[i + 1].revents;
      if (now < visitor.deadline && (!events || serve(visitor, events))) {
        if (kept != i)
          visitors_[kept] = std::move(visitor);
        ++kept;
        continue;
      }
      ::close(visitor.socket);
    }
    visitors_.resize(kept);

    char ignored[64];
    while (::read(wakeRead_, ignored, sizeof(ignored)) > 0) {
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (int socket : arrived_)
      visitors_.push_back({socket, now + patience_, "", ""});
    arrived_.clear();
    size_t drop = stopping_ ? visitors_.size() : visitors_.size() - std::min(visitors_.size(), kMostVisitors);
    for (size_t i = 0; i < drop; ++i)
      ::close(visitors_[i].socket);
    visitors_.erase(visitors_.begin(), visitors_.begin() + std::ptrdiff_t(drop));
    if (stopping_)
      return;
  }
}

} // namespace service
