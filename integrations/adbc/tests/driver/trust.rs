//! Who learns secrets, and who is believed.

use std::path::Path;

use adbc_core::error::{Error, Status};
use adbc_core::{Connection as _, Statement as _};
use arrow::array::AsArray as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::serving::Serving;
use crate::{all, connect, query, table};

fn first_text(results: impl arrow::array::RecordBatchReader) -> Vec<String> {
    let batches = all(results);
    let texts = batches[0].column(0).as_string::<i32>();
    texts.iter().flatten().map(str::to_owned).collect()
}

/// Promise of the crate's page: a server of which only a partition speaks does not get the token,
/// unless the program insists.
#[test]
fn strangers_do_not_get_the_token() {
    let other = Serving::start();
    let server = Serving::beside(&other);
    let token = ("dipc.token", "1234");
    let mut connection = connect(&server.uri, &[token]);
    let sent = "authorization=Bearer 1234";
    assert_eq!(
        first_text(query(&mut connection, "headers").execute().unwrap()),
        [sent]
    );
    let partitions = query(&mut connection, "headers")
        .execute_partitions()
        .unwrap()
        .partitions;
    let read = |connection: &adbc_driver_manager::ManagedConnection, part: usize| {
        first_text(connection.read_partition(&partitions[part]).unwrap())
    };
    assert_eq!(read(&connection, 0), [sent]);
    assert_eq!(read(&connection, 1), [""; 0]);
    let insisting = connect(&server.uri, &[token, ("dipc.send_secrets", "true")]);
    assert_eq!(read(&insisting, 1), [sent]);
    // For a connection of the other server, the first is the stranger.
    let reversed = connect(&other.uri, &[token]);
    assert_eq!(read(&reversed, 0), [""; 0]);
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Promise of the options of TLS and tokens: both ends are checked.
#[test]
fn certificates_and_tokens_admit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let ca = write(folder, "ca.pem", &authority.pem());
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let names = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = names.signed_by(&key, &authority).unwrap();
        write(folder, &format!("{name}.pem"), &certificate.pem());
        write(folder, &format!("{name}.key"), &key.serialize_pem());
    }
    let own = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (own("client.pem"), own("client.key"));

    let server = Serving::guarded(folder);
    let ask = |options: &[(&str, &str)]| -> Result<_, Error> {
        let mut connection = connect(&server.uri, options);
        let results = query(&mut connection, "numbers").execute()?;
        Ok(all(results))
    };
    let trusting = ("dipc.tls.ca", ca.as_str());
    let known = [
        ("dipc.tls.certificate", certificate.as_str()),
        ("dipc.tls.key", &key),
    ];
    let token = ("dipc.token", "1234");
    assert_eq!(
        ask(&[trusting, known[0], known[1], token]).unwrap(),
        table(3)
    );
    let name = ("dipc.tls.server_name", "elsewhere.example.org");
    for (options, why) in [
        (
            vec![known[0], known[1], token],
            "the server's authority is unknown",
        ),
        (vec![trusting, token], "the client has no certificate"),
        (
            vec![trusting, known[0], known[1], token, name],
            "the server has another name",
        ),
    ] {
        assert!(ask(&options).is_err(), "{why}");
    }
    for token in [vec![], vec![("dipc.token", "1235")]] {
        let options = [vec![trusting, known[0], known[1]], token].concat();
        let error = ask(&options).unwrap_err();
        assert_eq!(error.status, Status::Unauthorized, "{error}");
        assert!(
            error.message.contains("a token is missing or wrong"),
            "{error}"
        );
    }
}
