// Published figures within their bands, at full length: the whole takes about a minute of one core.

#include <gtest/gtest.h>

#include "quire/sim/paper.h"
#include "quire/traces/trace_file.h"

namespace quire {
namespace {

const PaperInputs& inputs() {
  static const PaperInputs loaded = [] {
    PaperInputs made;
    const Trace sharegpt = embedded_trace("sharegpt").value();
    for (const RequestSpec& request : sharegpt.requests)
      made.sharegpt.push_back({request.prompt_tokens, request.output_tokens});
    made.conversation = embedded_trace("conversation").value().requests;
    made.synthetic = embedded_trace("synthetic").value().requests;
    made.beam_searches = embedded_beam_searches().value();
    return made;
  }();
  return loaded;
}

class Papers : public testing::TestWithParam<std::string> {};

TEST_P(Papers, FigureIsWithinItsBands) {
  const PaperFigure figure = reproduce_figure(GetParam(), inputs());
  EXPECT_FALSE(figure.rows.empty());
  int with_verdict = 0;
  for (const PaperRow& row : figure.rows) {
    EXPECT_NE(row.verdict(), Verdict::outside) << row.what << ": " << row.ours << " " << row.unit;
    with_verdict += row.verdict() == Verdict::within ? 1 : 0;
  }
  EXPECT_GT(with_verdict, 0);
}

std::string plain_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Papers,
                         testing::Values("fig2", "fig12", "fig13", "sharing", "prefix", "block-size", "mooncake",
                                         "vattention", "sarathi", "jenga"),
                         plain_name);

TEST(Sharing, BeamSearchesAreJudgedByRecordedForks) {
  const PaperFigure figure = reproduce_figure("sharing", inputs());
  int judged = 0;
  for (const PaperRow& row : figure.rows)
    judged += row.what.starts_with("beam search") && row.verdict() == Verdict::within ? 1 : 0;
  EXPECT_EQ(judged, 4);
}

TEST(PaperFigures, AreAllTested) { EXPECT_EQ(paper_figure_names().size(), 10u); }

TEST(PaperRow, JudgesByItsBand) {
  PaperRow row;
  row.ours = 5;
  EXPECT_EQ(row.verdict(), Verdict::none);
  row.low = 5;
  EXPECT_EQ(row.verdict(), Verdict::within);
  row.high = 4.9;
  EXPECT_EQ(row.verdict(), Verdict::outside);
}

}  // namespace
}  // namespace quire
