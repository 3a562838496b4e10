#pragma once
// A model file in other weight formats: what `quire quantize` does.
//
// Every tensor of two or more dimensions is decoded and encoded again (quant/quantize.h) in the format that is asked
// for; one that has it already is copied. Tensors of one dimension (norms, biases) become F32, which loses nothing.
// A row whose length is no multiple of the format's block gets another format, named in the report:
// Q4_K: Q5_0; Q5_K: Q5_1; Q6_K: Q8_0, if a multiple of 32; else F16.
//
// All keys of the source stay, byte for byte and in order, but for general.file_type and
// general.quantization_version, which say what the new file is (added at the end if they were missing).
//
// Memory: the source is mapped, and given back to the system tensor by tensor; of the result a few MiB are held. The
// result appears whole or not at all (new_file.h). The same bytes for any number of threads, on every machine.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/base/thread_pool.h"
#include "quire/model/new_file.h"
#include "quire/tensor/dtype.h"

namespace quire::model {

/// A format for the tensors of two or more dimensions whose name matches. '*' stands for any text, also none.
struct TensorRule {
  std::string pattern;
  DType dtype = DType::f32;
};

struct QuantizeOptions {
  std::string input, output;
  DType to = DType::q8_0;
  std::vector<TensorRule> rules;         ///< the first that matches counts, before `to`
  Existing existing = Existing::refuse;  ///< an output that is there already
  std::function<void(double)> progress;  ///< the fraction done; from the calling thread
};

struct QuantizedTensor {
  std::string name;
  DType from, to;
  std::vector<std::int64_t> shape;
  std::int64_t bytes_before = 0, bytes_after = 0;
  double rms = 0;   ///< of the source's values
  double rmse = 0;  ///< of the new values against them
  std::string why;  ///< it got another format than it should have; else empty
};

struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;             ///< in the order of the file
  std::uint64_t bytes_before = 0, bytes_after = 0;  ///< of the files
};

/// Errors: the files (also: input and output are one file); a rule that matches nothing; a value that the format cannot
/// hold, with tensor, row and element.
Result<QuantizeReport> quantize_file(const QuantizeOptions& options, ThreadPool& pool);

/// True if the pattern of a rule matches the whole name.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace quire::model
