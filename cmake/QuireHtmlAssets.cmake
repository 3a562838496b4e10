# What quire_html puts into its pages: page/*.{css,js} and Debian's Chart.js (package libjs-chart.js), as byte arrays
# in a generated source. Nothing of it is committed, and a page needs no file beside it.
find_file(QUIRE_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js)
if(NOT QUIRE_CHART_JS)
  message(FATAL_ERROR "Chart.js was not found: install Debian's libjs-chart.js, or give -DQUIRE_CHART_JS=.../chart.min.js (version 3)")
endif()

set(dir ${PROJECT_SOURCE_DIR}/src/quire/html/assets)
# In the order in which they use each other.
set(scripts ${dir}/colours.js ${dir}/numbers.js ${dir}/elements.js ${dir}/data_table.js ${dir}/figure.js ${dir}/lines.js
  ${dir}/bars.js ${dir}/timeline.js ${dir}/gantt.js ${dir}/film.js ${dir}/main.js)
set(generated ${PROJECT_BINARY_DIR}/page_assets.cpp)
string(REPLACE ";" "|" scripts_argument "${scripts}")
add_custom_command(OUTPUT ${generated}
  COMMAND ${CMAKE_COMMAND} -D OUT=${generated} -D LIBRARY=${QUIRE_CHART_JS} -D STYLE=${dir}/page.css
    -D "SCRIPTS=${scripts_argument}" -P ${PROJECT_SOURCE_DIR}/cmake/embed_html_assets.cmake
  DEPENDS ${QUIRE_CHART_JS} ${dir}/page.css ${scripts} ${PROJECT_SOURCE_DIR}/cmake/embed_html_assets.cmake
  COMMENT "Embedding the parts of HTML pages" VERBATIM)
target_sources(quire_html PRIVATE ${generated})
