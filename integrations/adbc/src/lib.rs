//! An ADBC driver for tables of libdipc.
