// The log's callback: called, replaced, and destroyed when it is used no more.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "support.hpp"

namespace {

/// What a callback records, even after it is destroyed.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> texts;
  bool destroyed = false;
};

/// A callback that says when it is destroyed.
class Listener {
 public:
  explicit Listener(Heard& heard)
      : heard_(&heard, [](Heard* left) {
          const std::lock_guard lock(left->mutex);
          left->destroyed = true;
          left->changed.notify_all();
        }) {}

  void operator()(dipc::LogLevel level, std::string_view target, std::string_view text) {
    EXPECT_LE(level, dipc::LogLevel::trace);
    EXPECT_EQ(target.substr(0, 4), "dipc");
    const std::lock_guard lock(heard_->mutex);
    heard_->texts.emplace_back(text);
    heard_->changed.notify_all();
    throw std::runtime_error("nobody hears this");  // dropped: nothing unwinds into the library
  }

 private:
  std::shared_ptr<Heard> heard_;
};

TEST(Log, CallbacksAreCalledAndDestroyed) {
  Heard heard;
  ASSERT_TRUE(dipc::set_log(dipc::LogLevel::trace, Listener(heard)).ok());
  {
    const support::Pair pair;
    // Something that the library logs.
    const auto fail = [](dipc::RequestRef) -> dipc::Stream { throw std::runtime_error("noise"); };
    pair.server.serve("noise", fail).value();
    EXPECT_FALSE(pair.get("noise").ok());
    std::unique_lock lock(heard.mutex);
    heard.changed.wait(lock, [&] { return !heard.texts.empty(); });
    EXPECT_FALSE(heard.destroyed);
  }
  ASSERT_TRUE(dipc::clear_log().ok());
  std::unique_lock lock(heard.mutex);
  heard.changed.wait(lock, [&] { return heard.destroyed; });
}

TEST(Log, WrongLevelsAreRefused) {
  Heard heard;
  EXPECT_EQ(dipc::set_log(static_cast<dipc::LogLevel>(99), Listener(heard)).status(),
            dipc::Status::invalid_argument);
  EXPECT_TRUE(heard.destroyed);
}

}  // namespace
