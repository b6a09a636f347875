// libdipc for C++17: everything but <dipc/arrow.hpp>, which needs Arrow C++, and
// <dipc/coroutine.hpp>, which needs C++20.
//
//   Client, Server         fetch, send and serve tables
//   Put, Exchange          a table on its way to a server, and one on its way back at once
//   Pending                a request of an event loop
//   Stream, generate()     streams of batches; a stream from a function
//   Schema, DeviceArray    Arrow's C structs, owned
//   Columns                record batches of std::vector
//   Result<T>, Error       what calls return; value() throws Exception
//   Headers, Description   what goes with a request, and what a ticket stands for
//   Cancel, Arena, set_log, Sender, Receiver
//
// No exceptions are needed (-fno-exceptions, -fno-rtti). Handles are moved and never copied. One
// that was moved from is empty: calls on it fail with Status::null_argument.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef DIPC_DIPC_HPP
#define DIPC_DIPC_HPP

#include <dipc/arena.hpp>
#include <dipc/authorizer.hpp>
#include <dipc/cancel.hpp>
#include <dipc/client.hpp>
#include <dipc/columns.hpp>
#include <dipc/description.hpp>
#include <dipc/error.hpp>
#include <dipc/format.hpp>
#include <dipc/generate.hpp>
#include <dipc/headers.hpp>
#include <dipc/library.hpp>
#include <dipc/log.hpp>
#include <dipc/machines.hpp>
#include <dipc/options.hpp>
#include <dipc/pending.hpp>
#include <dipc/put.hpp>
#include <dipc/request.hpp>
#include <dipc/result.hpp>
#include <dipc/schema.hpp>
#include <dipc/server.hpp>
#include <dipc/stream.hpp>

#endif  // DIPC_DIPC_HPP
