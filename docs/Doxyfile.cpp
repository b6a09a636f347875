# The C++ reference, made from the headers alone. Run by tools/docs.sh.
PROJECT_NAME           = libdipc
PROJECT_BRIEF          = "The C++ API"
INPUT                  = include/dipc tools/reference/cpp.dox
OUTPUT_DIRECTORY       = build/docs/cpp
HTML_OUTPUT            = .
GENERATE_LATEX         = NO
JAVADOC_AUTOBRIEF      = YES
EXTRACT_ALL            = NO
QUIET                  = YES
WARN_AS_ERROR          = FAIL_ON_WARNINGS
WARN_IF_UNDOCUMENTED   = NO
WARN_IF_INCOMPLETE_DOC = NO
# What the headers share is no API.
EXCLUDE_SYMBOLS        = dipc::detail dipc::detail::*
MACRO_EXPANSION        = YES
HAVE_DOT               = NO
