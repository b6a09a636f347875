package dipc_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// certificates makes an authority, and certificates of a server and of a client; it gives the paths.
func certificates(t *testing.T) func(name string) string {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not there")
	}
	folder := t.TempDir()
	if output, err := exec.Command("../../tests/certificates.sh", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return func(name string) string { return filepath.Join(folder, name) }
}

// Both ends show certificates, and each says why it does not trust the other.
func TestCertificates(t *testing.T) {
	file := certificates(t)
	server, err := dipc.NewServer(dipc.WithServerTLS(file("server.pem"), file("server.key")),
		dipc.WithClientCA(file("ca.pem")))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	uri, err := server.Listen("tls://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peers := make(chan dipc.Peer, 2)
	err = server.Serve("table", func(ctx context.Context, _ string) (array.RecordReader, error) {
		peers <- dipc.RequestPeer(ctx)
		return array.NewRecordReader(numbersSchema, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(options ...dipc.ClientOption) error {
		client, err := dipc.NewClient(options...)
		if err != nil {
			return err
		}
		defer client.Close()
		reader, err := client.Get(testContext(t), uri, "table")
		if err != nil {
			return err
		}
		defer reader.Release()
		for reader.Next() {
		}
		return reader.Err()
	}
	ca, own := dipc.WithCA(file("ca.pem")), dipc.WithClientTLS(file("alice.pem"), file("alice.key"))
	for range 2 {
		if err := fetch(ca, own); err != nil {
			t.Fatal(err)
		}
		if err := server.ReloadTLS(); err != nil {
			t.Fatal(err)
		}
	}
	fails(t, fetch(ca), dipc.ErrPermission, "asks for this side's certificate")
	fails(t, fetch(own), dipc.ErrPermission, "not trusted here")
	fails(t, fetch(ca, own, dipc.WithServerName("elsewhere")), dipc.ErrPermission, "not for elsewhere")
	peer := <-peers
	if peer.Transport != "tls" || peer.Certificate == nil || peer.Certificate.Subject != "CN=alice" {
		t.Fatalf("%+v", peer)
	}
	if !slices.Equal(peer.Certificate.Names, []string{"IP:127.0.0.1", "DNS:alice.example"}) ||
		len(peer.Certificate.Fingerprint) != 64 {
		t.Fatalf("%+v", peer.Certificate)
	}
}
