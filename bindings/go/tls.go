package dipc

// #include "shim.h"
import "C"

import "unsafe"

// WithServerTLS sets the server's certificate and its private key, for addresses that begin with tls://:
// paths of PEM files. The first has the certificate, then those that lead to its authority.
func WithServerTLS(certificateFile, keyFile string) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		return withPaths(certificateFile, keyFile, func(certificate, key *C.char, failure **C.dipc_error) C.dipc_status {
			return C.dipc_server_options_set_tls(o, certificate, key, failure)
		})
	})
}

// WithClientCA makes a server ask its tls clients for a certificate that an authority in this PEM file has signed.
func WithClientCA(caFile string) ServerOption {
	return serverOption(func(o *C.dipc_server_options) error {
		return withPaths(caFile, "", func(ca, _ *C.char, failure **C.dipc_error) C.dipc_status {
			return C.dipc_server_options_set_tls_client_ca(o, ca, failure)
		})
	})
}

// ReloadTLS reads the server's certificates again: new connections use them. If a file cannot be used the server goes
// on with what it had.
func (s *Server) ReloadTLS() error {
	return s.call(func(object *C.dipc_server, failure **C.dipc_error) C.dipc_status {
		return C.dipc_server_reload_tls(object, failure)
	})
}

// WithClientTLS sets the client's certificate and its private key, for servers that ask for one: paths of
// PEM files.
func WithClientTLS(certificateFile, keyFile string) ClientOption {
	return ClientOption{func(o *C.dipc_client_options) error {
		return withPaths(certificateFile, keyFile, func(certificate, key *C.char, failure **C.dipc_error) C.dipc_status {
			return C.dipc_client_options_set_tls(o, certificate, key, failure)
		})
	}}
}

// WithCA sets the authorities whose certificates servers may have: the path of a PEM file. Default: those
// of the system.
func WithCA(caFile string) ClientOption {
	return ClientOption{func(o *C.dipc_client_options) error {
		return withPaths(caFile, "", func(ca, _ *C.char, failure **C.dipc_error) C.dipc_status {
			return C.dipc_client_options_set_tls_ca(o, ca, failure)
		})
	}}
}

// WithServerName sets the name that a server's certificate must have. Default: the host of the URI.
func WithServerName(name string) ClientOption {
	return ClientOption{func(o *C.dipc_client_options) error {
		return withPaths(name, "", func(name, _ *C.char, failure **C.dipc_error) C.dipc_status {
			return C.dipc_client_options_set_tls_server_name(o, name, failure)
		})
	}}
}

// withPaths gives one or two texts to the library.
func withPaths(first, second string, set func(first, second *C.char, failure **C.dipc_error) C.dipc_status) error {
	one, err := cString("file or name of TLS", first)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(one))
	two, err := cString("file of a key", second)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(two))
	var failure *C.dipc_error
	status := set(one, two, &failure)
	return check(status, failure)
}
