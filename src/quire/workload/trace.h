#pragma once
// Trace: the requests of a recorded workload, as read from text. Readers are pure functions of the text; files and
// compression are the business of traces/trace_file.h.
//
// What is wrong in a trace is one line that names file, row and column: "conv.csv, row 7, column output_tokens: found
// -3, wanted a whole number from 1 to 16777216". Rows count from 1, the head included.

#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/workload/request_spec.h"

namespace quire {

struct Trace {
  std::string format;                 ///< as detected
  std::vector<RequestSpec> requests;  ///< in the order of arrival
  bool has_arrivals = false;          ///< false: all arrival_ns are 0
  std::vector<std::string> notes;     ///< what is unusual about the text and was read all the same; a line each
};

/// Where in a trace; for messages.
struct TracePlace {
  std::string_view file;
  std::uint64_t row = 0;
  std::string_view column;  ///< its name, or its number from 1
};
std::string to_string(const TracePlace& place);

template <class... Args>
Error trace_error(const TracePlace& place, const Args&... args) {
  return fail(to_string(place), ": ", args...);
}

/// A length: a whole number from 1 to kMaxLength.
Result<std::int32_t> parse_length(const TracePlace& place, std::string_view text);

/// A time in units of unit_ns, from 0 to 1e9 seconds, as nanoseconds.
Result<std::uint64_t> parse_time(const TracePlace& place, std::string_view text, double unit_ns);

/// The lines of a text, for readers of any format: takes a byte-order mark and CR LF for what they are and notes them.
class TraceLines {
 public:
  TraceLines(std::string_view file, std::string_view text, std::vector<std::string>& notes);
  /// False at the end. The last line need not end in a line break.
  bool next(std::string_view& line);
  std::uint64_t row() const { return row_; }
  std::string_view file() const { return file_; }

 private:
  std::string_view file_, text_;
  std::vector<std::string>& notes_;
  std::uint64_t row_ = 0;
  bool noted_cr_ = false;
};

/// A CSV trace. The head names the columns; the order is free, and columns of other names are not looked at:
///
///     arrival     arrival_s or arrival_ms; TIMESTAMP (as 2023-11-16 18:15:46.6805900; the first row is time 0); none
///     prompt      prompt_tokens, input_tokens, ContextTokens, num_prefill_tokens
///     answer      output_tokens, GeneratedTokens, num_decode_tokens
///     session     session (a whole number from 1), or none
///
/// This covers the Azure LLM inference traces, the length files of Sarathi-Serve and vAttention, and files of one's
/// own. Arrivals must not fall. `turns`: consecutive rows are turns of a conversation, as in Sarathi-Serve's ShareGPT:
/// a new one begins where the prompt is shorter than prompt and answer of the row before.
enum class CsvTurns { none, by_length };
Result<Trace> read_csv_trace(std::string_view file, std::string_view text, CsvTurns turns = CsvTurns::none);

}  // namespace quire
