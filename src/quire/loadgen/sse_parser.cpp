#include "quire/loadgen/sse_parser.h"

namespace quire::loadgen {

bool SseParser::feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_event) {
  while (!bytes.empty() && !failed_) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const std::size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    failed_ = line_.size() + data_.size() > kMaxBytes;
    if (end == std::string_view::npos || failed_) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line(on_event);
  }
  return !failed_;
}

void SseParser::end_line(const std::function<void(std::string_view)>& on_event) {
  std::string_view line = line_;
  if (first_line_ && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  first_line_ = false;
  if (line.empty()) {
    if (has_data_) on_event(data_);
    has_data_ = false;
    data_.clear();
  } else if (line.substr(0, line.find(':')) == "data") {
    line.remove_prefix(line.size() > 4 ? 5 : 4);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    has_data_ = true;
    data_ += line;
  }
  line_.clear();
}

}  // namespace quire::loadgen
