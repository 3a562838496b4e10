#pragma once
// SseParser: the data of server-sent events (WHATWG HTML, "server-sent events"), from bytes in pieces of any size.
// Lines end in LF, CR LF or CR; comments and fields other than data are passed over; several data lines of one event
// are joined by line feeds; what follows the last empty line is no event. Not thread-safe.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace quire::loadgen {

class SseParser {
 public:
  /// Of one line, and of the data of one event.
  static constexpr std::size_t kMaxBytes = 4 << 20;

  /// Calls on_event for each event that ends in these bytes. False once a line or an event is longer than kMaxBytes:
  /// then nothing more is read.
  bool feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_event);

 private:
  void end_line(const std::function<void(std::string_view)>& on_event);

  std::string line_, data_;
  bool after_cr_ = false, first_line_ = true, has_data_ = false, failed_ = false;
};

}  // namespace quire::loadgen
