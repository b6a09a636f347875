// Package dipc moves Apache Arrow tables between processes without serialising them. It is a thin
// layer over the C library libdipc and arrow-go: what one process serves, in any language, another
// gets as an [array.RecordReader] whose buffers are the first one's, shared.
//
// A server gives tables under tickets, and a client fetches them:
//
//	server, err := dipc.NewServer()
//	...
//	defer server.Close()
//	err = server.Publish("prices", schema, batches...)
//	uri, err := server.Listen("shm:@prices")
//
//	reader, err := dipc.Get(ctx, uri, "prices")
//	...
//	defer reader.Release()
//	for reader.Next() {
//		use(reader.RecordBatch())
//	}
//	err = reader.Err()
//
// A client sends a table by [Put], batch by batch, and a server takes it by [Handler.Put]:
//
//	table, err := dipc.Put(ctx, uri, "prices", schema)
//	...
//	defer table.Close()
//	err = table.Write(ctx, batch)
//	taken, err := table.Finish(ctx)
//
// # Errors
//
// Every failure is an [*Error], which has a [Status] and a text that names the cause and, if
// there is one, the remedy. [errors.Is] finds the status ([ErrNotFound] and the others), the errno
// of a system call, and, if a context ended the call, the error of the context.
//
// # Contexts
//
// The context given to [Get] governs the whole stream, not only the call: when it ends, a waiting
// [Reader.Next] returns and the server is told. The context that a [Provider] gets ends when its
// client has gone or has cancelled, and has the deadline of the client's context.
//
// A [Reader.Next] that waits occupies no thread of the system: Go's runtime watches a descriptor of the
// stream.
//
// # Requests
//
// In addition to its ticket, a request carries headers ([WithHeaders]) and the deadline of its context. At the server
// the context of a [Provider] has both, and [AddHeaders] uses it to add headers to the answer. A [Handler] serves
// tickets that the server was not given, such as queries. [Describe] and [List] ask about tables without fetching them.
//
// A provider occupies a thread of the library. In the pull form ([Server.ServePull]) the program takes each [Request]
// by [Server.NextRequest] and answers it in a goroutine, which occupies no thread while it waits.
//
// # Memory
//
// Buffers of the batches that a [Reader] gives lie in memory that the server lent. They go back when the batch is
// released, so release every batch that was retained, on any goroutine; nothing else releases it. The garbage collector
// closes clients, servers, readers and arenas that the program did not close, but it may do so late.
//
// Batches that are served may lie in the memory of the Go heap, which is pinned until the client has
// given them back, and copied once into shared memory. Batches built with an [Arena] as their
// allocator are lent where they lie.
//
// # Linking
//
// The package is built with what pkg-config knows as dipc, and loads libdipc.so when the program
// starts.
package dipc
