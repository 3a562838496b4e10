# The installed package: find_package(quire) gives quire::engine and the other modules as static libraries.
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY QUIRE_MODULES)
install(TARGETS ${modules} quire_options EXPORT quireTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/quire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*_test.h" EXCLUDE PATTERN "*.inl.h" EXCLUDE)
install(EXPORT quireTargets NAMESPACE quire:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/quireConfig.cmake.in ${PROJECT_BINARY_DIR}/quireConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/quireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/quireConfig.cmake ${PROJECT_BINARY_DIR}/quireConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
