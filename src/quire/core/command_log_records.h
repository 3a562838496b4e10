#pragma once
// The records of the command log, one function each; the format is described in core/command_log.h.

#include "quire/core/byte_io.h"
#include "quire/core/executor.h"
#include "quire/sched/options.h"
#include "quire/sched/request.h"

namespace quire {

inline constexpr std::string_view kLogMagic = "QUIRELOG";
inline constexpr std::uint32_t kLogVersion = 10;

enum class LogTag : std::uint8_t { submit = 1, cancel = 2, finish = 3, plan = 4, commit = 5, files = 6, transfer = 7 };

void put_header(ByteWriter& out, const CoreOptions& options);
void put_submit(ByteWriter& out, const CoreRequest& request);
void put_cancel(ByteWriter& out, RequestId request);
void put_finish(ByteWriter& out, RequestId request, std::int32_t branch, FinishReason reason);
void put_files(ByteWriter& out, const std::vector<BlockKey>& keys);
void put_transfer(ByteWriter& out, const TransferEnd& end);
void put_plan(ByteWriter& out, std::uint64_t step, std::uint64_t digest);
void put_commit(ByteWriter& out, const StepResult& result);

}  // namespace quire
