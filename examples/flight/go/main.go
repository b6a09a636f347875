// Fetches a table that a Flight server knows: by libdipc where one of its locations allows it, else by
// DoGet. Prints the batches' lengths to standard output, and the ways taken to standard error.
//
//	go run . [-trusted-network] grpc://127.0.0.1:PORT NAME
//
// A peer on ucx can read and write this process's memory, and a Flight server is not believed when it
// names one, unless -trusted-network says so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/url"
	"slices"
	"strings"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const reuseConnection = "arrow-flight-reuse-connection"

var trustedNetwork = flag.Bool("trusted-network", false, "take ucx addresses, too")

func scheme(uri string) string {
	scheme, _, _ := strings.Cut(uri, ":")
	return scheme
}

func isDissociated(uri string) bool {
	return scheme(uri) == "shm" || scheme(uri) == "tcp" || scheme(uri) == "ucx"
}

// pair says whether two URIs serve one stream together, and puts that of the metadata first.
func pair(first, second string) (metadata, data string, ok bool) {
	query := func(uri string) url.Values {
		_, text, _ := strings.Cut(uri, "?")
		values, _ := url.ParseQuery(text)
		return values
	}
	one, other := query(first), query(second)
	switch one.Get("dipc_role") + "," + other.Get("dipc_role") {
	case "metadata,data":
		return first, second, true
	case "data,metadata":
		return second, first, true
	case ",":
		// A server that is not libdipc's names no roles: metadata comes first.
		theirs := scheme(first) == "ucx" && scheme(second) == "ucx" && !one.Has("dipc") && !other.Has("dipc")
		return first, second, theirs
	}
	return "", "", false
}

// ways gives the ways to fetch an endpoint, in the server's order: one URI each, or the two of a pair.
// No location at all means the server that was asked.
func ways(locations []*flight.Location) (all [][]string) {
	if len(locations) == 0 {
		return [][]string{{reuseConnection + "://?"}}
	}
	for i := 0; i < len(locations); i++ {
		uri := locations[i].Uri
		if i+1 < len(locations) && isDissociated(uri) && isDissociated(locations[i+1].Uri) {
			if metadata, data, ok := pair(uri, locations[i+1].Uri); ok {
				all = append(all, []string{metadata, data})
				i++
				continue
			}
		}
		all = append(all, []string{uri})
	}
	return all
}

func connect(uri string) (flight.Client, error) {
	parsed, err := url.Parse(uri)
	if err != nil {
		return nil, err
	}
	return flight.NewClientWithMiddleware(
		parsed.Host, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func doGet(ctx context.Context, client flight.Client, ticket *flight.Ticket) (array.RecordReader, error) {
	stream, err := client.DoGet(ctx, ticket)
	if err != nil {
		return nil, err
	}
	return flight.NewRecordReader(stream)
}

// fetchBy begins to fetch an endpoint in one way. done is called once the reader has been released.
func fetchBy(
	ctx context.Context, client flight.Client, uris []string, ticket *flight.Ticket,
) (reader array.RecordReader, done func(), err error) {
	done = func() {}
	if !*trustedNetwork && slices.ContainsFunc(uris, func(uri string) bool { return scheme(uri) == "ucx" }) {
		return nil, nil, errors.New("a ucx address that a Flight server names is taken with -trusted-network alone")
	}
	switch kind := scheme(uris[0]); {
	case isDissociated(uris[0]):
		var options []dipc.GetOption
		if len(uris) == 2 {
			options = append(options, dipc.WithDataURI(uris[1]))
		}
		reader, err = dipc.Get(ctx, uris[0], string(ticket.Ticket), options...)
	case kind == reuseConnection:
		reader, err = doGet(ctx, client, ticket)
	case kind == "grpc" || kind == "grpc+tcp":
		other, failure := connect(uris[0])
		if failure != nil {
			return nil, nil, failure
		}
		done = func() { other.Close() }
		if reader, err = doGet(ctx, other, ticket); err != nil {
			other.Close()
		}
	default:
		err = fmt.Errorf("nothing here can fetch from %s:", kind)
	}
	return reader, done, err
}

// fetchEndpoint takes the first location that works, and hands its batches' lengths out.
func fetchEndpoint(ctx context.Context, client flight.Client, endpoint *flight.FlightEndpoint) error {
	err := fmt.Errorf("the endpoint has no location")
	for _, uris := range ways(endpoint.Location) {
		var reader array.RecordReader
		var done func()
		if reader, done, err = fetchBy(ctx, client, uris, endpoint.Ticket); err != nil {
			log.Printf("skipped %s: %v", strings.Join(uris, " "), err)
			continue
		}
		defer done()
		defer reader.Release()
		log.Printf("fetching from %s", strings.Join(uris, " "))
		for reader.Next() {
			fmt.Println(reader.RecordBatch().NumRows(), "rows")
		}
		// Batches have been handed out by now: no other location is tried.
		return reader.Err()
	}
	return fmt.Errorf("no location of the table works; the last one: %w", err)
}

func run(uri, name string) error {
	ctx := context.Background()
	client, err := connect(uri)
	if err != nil {
		return err
	}
	defer client.Close()
	info, err := client.GetFlightInfo(ctx, &flight.FlightDescriptor{
		Type: flight.DescriptorPATH,
		Path: []string{name},
	})
	if err != nil {
		return err
	}
	// The parts of the table, one after the other.
	for _, endpoint := range info.Endpoint {
		if err := fetchEndpoint(ctx, client, endpoint); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: [-trusted-network] grpc://HOST:PORT NAME")
	}
	if err := run(flag.Arg(0), flag.Arg(1)); err != nil {
		log.Fatal(err)
	}
}
