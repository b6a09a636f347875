//! What operators do not allow.

use dipc::{Client, Error, GetOptions, Headers, PutOptions, Status};
use dipc_functions::{Message, Module, signed_bytes};
use ed25519_dalek::Signer as _;

use crate::serving::{Serving, key};
use crate::{above, client, filter, module, numbers, read, schema, table};

fn refused(message: &Message, client: &Client, server: &Serving) -> Error {
    let error = message.get(client, &server.uri, "published").map(drop);
    error.unwrap_err()
}

fn named(name: &str) -> Headers {
    let mut headers = Headers::new();
    headers.add("name", name).unwrap();
    headers
}

/// Promise of `enable`: a server without it runs nothing, and says so: it gives no table and takes
/// none as if the function had run.
#[test]
fn functions_are_off_by_default() {
    let server = Serving::start("shm", "off");
    let (client, uri) = (client(), &server.uri);
    let words = Message::new(&module("words"), "reverse", b"abc");
    let filter = filter(2_900);
    let put = filter.put(&client, uri, "stored", table(1), &schema());
    let options = (&PutOptions::new(), &GetOptions::new());
    let exchange = filter.exchange(&client, uri, &schema(), options);
    let refused = [
        filter.get(&client, uri, "published").map(drop),
        filter.get(&client, uri, "provided").map(drop),
        put.map(drop),
        exchange
            .and_then(|(mut put, _answers)| put.finish())
            .map(drop),
        words.call(&client, uri).map(drop),
        module("words").send(&client, uri, &PutOptions::new(), &Headers::new()),
    ];
    for answer in refused {
        let error = answer.unwrap_err();
        assert_eq!(error.status(), Status::Unsupported, "{error}");
        assert!(error.text().contains("enable functions"), "{error}");
    }
    assert_eq!(read(client.get(uri, "stored").unwrap()), []);
}

/// Promise of `Policy`: a new policy allows nothing, one with hashes allows those alone.
#[test]
fn a_module_that_is_not_listed_is_refused() {
    for policy in ["nothing", "filter"] {
        for server in Serving::all(policy) {
            let (client, words) = (client(), Message::new(&module("words"), "reverse", b"a"));
            let error = words.call(&client, &server.uri).unwrap_err();
            assert_eq!(error.status(), Status::Permission, "{error}");
            assert!(error.text().contains(&module("words").hash().to_string()));
            let sent =
                module("words").send(&client, &server.uri, &PutOptions::new(), &Headers::new());
            assert_eq!(sent.unwrap_err().status(), Status::Permission);
        }
    }
}

/// Promise of `Policy::allow_key`: modules with a signature of the key are taken, others are not.
#[test]
fn a_signature_allows_a_module() {
    for server in Serving::all("signed") {
        let client = client();
        let plain = filter(2_900);
        let error = refused(&plain, &client, &server);
        assert_eq!(error.status(), Status::Permission, "{error}");
        assert!(error.text().contains("signature"), "{error}");

        let hash = module("filter").hash();
        let forged = module("filter").signed(&key().sign(b"other bytes").to_bytes());
        let forged = Message::new(&forged, "keep", b"n>2900");
        assert_eq!(
            refused(&forged, &client, &server).status(),
            Status::Permission
        );

        let signature = key().sign(&signed_bytes(&hash)).to_bytes();
        let signed = Message::new(&module("filter").signed(&signature), "keep", b"n>2900");
        let got = read(signed.get(&client, &server.uri, "published").unwrap());
        assert_eq!(numbers(&got), above(2_900, 3));
    }
}

/// Promise of `Policy::allow_principal`: the names that the authorizer gives, and no others.
#[test]
fn a_principal_is_allowed_by_name() {
    let server = Serving::start("shm", "named");
    let client = client();
    for (headers, is_allowed) in [
        (named("eve"), false),
        (Headers::new(), false),
        (named("ann"), true),
    ] {
        let message = filter(2_900).headers(headers);
        let got = message.get(&client, &server.uri, "published").map(read);
        match is_allowed {
            true => assert_eq!(numbers(&got.unwrap()), above(2_900, 3)),
            false => assert_eq!(got.unwrap_err().status(), Status::Permission),
        }
    }
}

/// Promise of a server with functions: malformed requests are refused with a text, and nothing else
/// suffers.
#[test]
fn malformed_requests_are_refused() {
    for server in Serving::all("any") {
        let client = client();
        let hash = module("filter").hash();
        for value in [
            "",
            "call",
            "call abc keep",
            &format!("fly {hash}"),
            &format!("module {hash}"),
        ] {
            let mut headers = Headers::new();
            headers.add("function", value).unwrap();
            let options = GetOptions::new().headers(headers.clone());
            let error = client
                .get_with(&server.uri, "published", &options)
                .map(drop);
            assert_eq!(
                error.unwrap_err().status(),
                Status::InvalidArgument,
                "{value}"
            );
            let options = PutOptions::new().headers(headers);
            let sent = client
                .start_put(&server.uri, "stored", &schema(), &options)
                .map(drop);
            if !value.starts_with("module") {
                assert_eq!(
                    sent.unwrap_err().status(),
                    Status::InvalidArgument,
                    "{value}"
                );
            }
        }
        // Bytes of another hash, no module at all, and a table that has none.
        let mut headers = Headers::new();
        headers.add("function", format!("module {hash}")).unwrap();
        let options = PutOptions::new().headers(headers);
        let other = dipc::Batches::of(schema(), table(1));
        let error = client
            .put_with(&server.uri, "", other, &options)
            .unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        let nonsense = Module::new(b"no wasm".to_vec());
        let error = refused(&Message::new(&nonsense, "f", b""), &client, &server);
        assert_eq!(error.status(), Status::InvalidData, "{error}");
        let got = read(
            filter(2_900)
                .get(&client, &server.uri, "published")
                .unwrap(),
        );
        assert_eq!(numbers(&got), above(2_900, 3));
    }
}
