#pragma once
// The knee of a curve that rises slowly, then fast, as latency does over the request rate: the last point at which more
// load is still cheap. After Kneedle (Satopaa et al., 2011): of both axes scaled to [0, 1], the point farthest below
// the straight line from the first point to the last.

#include <cstddef>
#include <optional>
#include <span>

namespace quire {

/// The index of the knee; x ascending, as many y, all finite. nullopt: there are fewer than three points, or no point
/// lies below the line by more than kLeastDepth.
inline constexpr double kLeastDepth = 0.05;
std::optional<std::size_t> find_knee(std::span<const double> x, std::span<const double> y);

}  // namespace quire
