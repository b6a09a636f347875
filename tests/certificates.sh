#!/bin/sh
# Makes certificates for tests: an authority (ca.pem), and certificates of a server at 127.0.0.1 and of
# a client called alice (server.pem, server.key, alice.pem, alice.key).
#
#   tests/certificates.sh FOLDER
set -eu
cd "$1"
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }
key ca
openssl req -x509 -new -key ca.key -subj "/CN=Authority of a test" -days 9 -out ca.pem
for name in server alice; do
  key "$name"
  openssl req -new -key "$name.key" -subj "/CN=$name" -out "$name.csr"
  echo "subjectAltName=IP:127.0.0.1,DNS:$name.example" >"$name.names"
  openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 \
    -extfile "$name.names" -out "$name.pem" 2>/dev/null
done
