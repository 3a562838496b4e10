#pragma once
// Rows of published figures as text, for the terminal and for pages.

#include <string>

#include "quire/sim/paper.h"

namespace quire::cli {

/// "0.071 s/token", "2.71 x": digits that suit the unit.
std::string paper_number(double value, const std::string& unit);
/// "-", "exactly", ">= 2.20", "2.20 to 3.30".
std::string paper_band(const PaperRow& row);

}  // namespace quire::cli
