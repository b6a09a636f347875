//! Rules U1 to U5.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Uri {
    Uri::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The text of an error, which must be `InvalidUri`.
fn refused(text: &str) -> String {
    let error = Uri::parse(text).expect_err(text);
    assert_eq!(error.status(), Status::InvalidUri, "{text}");
    error.text().to_owned()
}

/// Rule U1: the address of each scheme.
#[test]
fn addresses() {
    for (text, scheme, address) in [
        ("shm:/run/demo?want_data=4294967296", "shm", "/run/demo"),
        (
            "shm:/a%20b/%C3%A4%3F?want_data=4294967296",
            "shm",
            "/a b/ä?",
        ),
        ("shm:///run/demo", "shm", "/run/demo"),
        ("shm:@demo", "shm", "@demo"),
        ("shm:@a/b%23", "shm", "@a/b#"),
        ("tcp://localhost:5000", "tcp", "localhost:5000"),
        ("tcp://[::1]:5000/", "tcp", "[::1]:5000"),
        ("UCX://h:1?want_data=4294967296", "ucx", "h:1"),
        ("mem:demo", "mem", "demo"),
        ("fabric://node:7?want_data=4294967296", "fabric", "node:7"),
        ("other:x:y", "other", "x:y"),
    ] {
        let uri = parse(text);
        assert_eq!((&*uri.scheme, &*uri.address), (scheme, address), "{text}");
        let whole = Uri {
            is_bare: false,
            ..uri.clone()
        };
        assert_eq!(parse(&uri.to_string()), whole, "{uri}");
    }
}

/// Rule U1: addresses that no transport can use; the text shows the right form.
#[test]
fn bad_addresses_are_refused_with_a_remedy() {
    for (text, part) in [
        ("", "is not a URI"),
        ("demo", "is not a URI"),
        ("/run/demo", "is not a URI"),
        ("shm:relative", "shm:/run/demo"),
        ("shm:", "shm:@demo"),
        ("shm:@", "shm:@demo"),
        ("shm:/", "shm:/run/demo"),
        ("shm://host/path", "one slash"),
        ("shm:/a#b", "%23"),
        ("shm:/a%00b", "control"),
        ("shm:/a\nb", "U+000A"),
        ("shm:/%FF", "UTF-8"),
        ("tcp://localhost", "tcp://host:port"),
        ("tcp:localhost:1", "tcp://host:port"),
        ("tcp://:1", ""),
        ("tcp://h:99999", "is not a URI"),
        ("tcp://h:1/x", "path"),
        ("tcp://me@h:1", "user"),
        ("ucx:/x", "ucx://host:port"),
    ] {
        assert!(refused(text).contains(part), "{text}: {}", refused(text));
    }
}

/// Rule U5: an address alone means a libdipc server with its defaults, chosen by the role if the
/// URI names a role.
#[test]
fn bare_uris_have_the_defaults() {
    for text in [
        "shm:@demo",
        "tcp://h:1",
        "ucx://h:1",
        "shm:@demo?colour=blue",
    ] {
        let uri = parse(text);
        assert_eq!(
            (uri.tags, uri.extension, uri.role),
            (Tags::DEFAULT, true, None)
        );
    }
    let uri = parse("shm:@demo?dipc_role=data");
    assert_eq!(
        (uri.tags, uri.role),
        (Tags::default_for(Role::Data), Some(Role::Data))
    );
    assert!(uri.extension && uri.is_bare);
}

/// Rules U1, E1: want_data alone means a public peer; dipc means a libdipc server.
#[test]
fn public_and_extension_uris() {
    let uri = parse("ucx://h:1?want_data=18446744073709551615&free_data=4294967296");
    assert!(!uri.extension);
    assert_eq!(uri.tags.want_data, u64::MAX);
    assert_eq!(uri.tags.free_data, Some(1 << 32));
    // Rule U2: without free_data no address list may come.
    assert_eq!(parse("ucx://h:1?want_data=4294967296").tags.free_data, None);

    let uri = parse("ucx://h:1?want_data=4294967296&dipc=1&dipc_want=8589934592&dipc_ucx=1.13.1");
    assert!(uri.extension);
    assert_eq!(uri.tags.dipc_want, 1 << 33);
    assert_eq!(uri.ucx_version.as_deref(), Some("1.13.1"));
    // Defaults for the missing parts of an extension URI.
    assert_eq!(
        parse("shm:@x?dipc=1").tags,
        Tags {
            free_data: None,
            ..Tags::DEFAULT
        }
    );
}

/// Rule U1: `dipc_want` has no meaning for a server without our extension, and is ignored.
#[test]
fn a_baseline_server_has_no_tag_for_our_requests() {
    let uri = parse("ucx://h:1?want_data=4294967296&dipc_want=8589934592");
    assert!(!uri.extension);
    assert_eq!(uri.tags.dipc_want, Tags::default_for(Role::Both).dipc_want);
    assert_eq!(parse(&uri.to_string()), uri);
}

/// Rule U1: the error names repeated or malformed parameters; unknown parameters are ignored.
#[test]
fn bad_parameters_are_named() {
    for (name, good, bad) in [
        (
            "want_data",
            "4294967296",
            &["", "x", "-1", "+1", "1.0", "18446744073709551616"][..],
        ),
        ("free_data", "8589934592", &["", "0x10", "%20"]),
        ("dipc_want", "12884901888", &["", "1e3"]),
        ("dipc", "1", &["", "0", "yes"]),
        ("remote_handle", "AAAA", &["!", "A", "AAAAA", "A=A", "%FF"]),
        ("dipc_role", "both", &["", "Both", "meta"]),
        ("dipc_ucx", "1.13.1", &["", "%01"]),
        ("dipc_host", "a1.2", &["", "%01"]),
    ] {
        let others = if name == "want_data" {
            "dipc=1"
        } else {
            "want_data=17179869184"
        };
        parse(&format!("shm:@x?{others}&{name}={good}"));
        for bad in bad {
            let text = refused(&format!("shm:@x?{others}&{name}={bad}"));
            assert!(text.contains(&format!("{name} is malformed")), "{text}");
        }
        let text = refused(&format!("shm:@x?{others}&{name}={good}&{name}={good}"));
        assert!(text.contains(&format!("{name} is given twice")), "{text}");
    }
    parse("shm:@x?want_data=4294967296&colour=1&colour=%FF&&=&x");
}

/// Rule U1: parameters of the public protocol without want_data mean a damaged URI.
#[test]
fn a_missing_want_data_is_named() {
    for rest in [
        "free_data=4294967296",
        "remote_handle=AAAA",
        "dipc_want=4294967296",
        "dipc_ucx=1",
        "dipc_host=a",
    ] {
        let text = refused(&format!("shm:@x?{rest}"));
        assert!(text.contains("want_data is missing"), "{text}");
    }
}

/// Rule U4: tags that are equal or look like bodies' tags.
#[test]
fn misleading_tags_are_refused() {
    assert!(refused("shm:@x?want_data=5").contains("mistaken for the tag of a body"));
    let body = "shm:@x?want_data=72057594037927937";
    assert!(refused(body).contains("mistaken for the tag of a body"));
    let same = "shm:@x?want_data=4294967296&free_data=4294967296";
    assert!(refused(same).contains("both 4294967296"));
    // A public peer's tags may equal our own defaults.
    parse(&format!("shm:@x?want_data={}", Tags::DEFAULT.dipc_want));
}

/// Rule U2: both alphabets, with or without padding, escaped or not; written URL-safe, unpadded.
#[test]
fn remote_handles() {
    for (text, bytes) in [
        ("-_8", &[0xFB, 0xFF][..]),
        ("-_8=", &[0xFB, 0xFF]),
        ("+/8", &[0xFB, 0xFF]),
        ("+/8=", &[0xFB, 0xFF]),
        ("%2B%2F8%3D", &[0xFB, 0xFF]),
        ("", &[]),
        ("AAAA", &[0, 0, 0]),
    ] {
        let uri = parse(&format!(
            "ucx://h:1?want_data=4294967296&remote_handle={text}"
        ));
        assert_eq!(uri.remote_handle.as_deref(), Some(bytes), "{text}");
        assert_eq!(parse(&uri.to_string()), uri);
    }
    let uri = parse("ucx://h:1?want_data=4294967296&remote_handle=%2B%2F8%3D");
    assert!(uri.to_string().ends_with("&remote_handle=-_8"));
}

/// Rule U3: one URI for both streams, or two URIs, told apart by dipc_role or by order.
#[test]
fn uris_of_one_stream() {
    let roles = |texts: &[&str]| {
        Uri::parse_all(texts)
            .map(|uris| {
                uris.into_iter()
                    .map(|uri| (uri.address, uri.role))
                    .collect::<Vec<_>>()
            })
            .map_err(|error| error.text().to_owned())
    };
    let (metadata, data) = (Some(Role::Metadata), Some(Role::Data));
    let pair = vec![("@m".to_owned(), metadata), ("@d".to_owned(), data)];
    assert_eq!(roles(&["shm:@x"]), Ok(vec![("@x".to_owned(), None)]));
    assert_eq!(roles(&["shm:@m", "shm:@d"]), Ok(pair.clone()));
    assert_eq!(
        roles(&["shm:@d?dipc_role=data", "shm:@m"]),
        Ok(pair.clone())
    );
    assert_eq!(roles(&["shm:@m", "shm:@d?dipc_role=data"]), Ok(pair));
    assert!(
        roles(&["shm:@x?dipc_role=data"])
            .unwrap_err()
            .contains("other stream")
    );
    for bad in [
        ["shm:@m?dipc_role=metadata", "shm:@d?dipc_role=metadata"],
        ["shm:@m?dipc_role=both", "shm:@d"],
        ["shm:@m", "shm:@d?dipc_role=metadata"],
    ] {
        assert!(roles(&bad).unwrap_err().contains("one each"));
    }
    assert!(roles(&[]).is_err() && roles(&["shm:@a", "shm:@b", "shm:@c"]).is_err());
    // Rules U3, U5: bare URIs of two connections have the default tags of their roles.
    let uris = Uri::parse_all(&["shm:@m", "shm:@d"]).unwrap();
    assert_eq!(uris[0].tags, Tags::default_for(Role::Metadata));
    assert_eq!(uris[1].tags, Tags::default_for(Role::Data));
}

proptest! {
    /// Promise of [`Uri`]: a written URI is read back the same, with any name.
    #[test]
    fn written_uris_are_read_back(
        name in "[^\\p{Cc}]{1,20}",
        abstract_name: bool,
        tags in prop::array::uniform3(any::<u64>()),
        with_free: bool,
        extension: bool,
        role in prop::sample::select(vec![None, Some(Role::Metadata), Some(Role::Data)]),
        remote_handle in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
        ucx_version in prop::option::of("[^\\p{Cc}]{1,8}"),
        host in prop::option::of("[^\\p{Cc}]{1,8}"),
    ) {
        // The URL parser resolves `.` and `..`, as in every path.
        let mut parts = name.split(['/', '\\']);
        prop_assume!(abstract_name || parts.all(|part| part != "." && part != ".."));
        let address = format!("{}{name}", if abstract_name { '@' } else { '/' });
        let defaults = Tags::default_for(role.unwrap_or(Role::Both));
        let tags = Tags {
            want_data: tags[0],
            free_data: with_free.then_some(tags[1]),
            dipc_want: if extension { tags[2] } else { defaults.dipc_want },
        };
        prop_assume!(tags.validate().is_ok());
        let uri = Uri {
            scheme: "shm".into(), address, tags, extension, role, remote_handle, ucx_version,
            host, is_bare: false,
        };
        prop_assert_eq!(Uri::parse(&uri.to_string()).unwrap(), uri);
    }

    /// Rule U1: no text makes the parser panic, and an accepted text is read back the same.
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,40}", query in "[a-z_=&0-9%]{0,40}") {
        for text in [text.clone(), format!("shm:{text}?{query}"), format!("tcp://{text}?{query}")] {
            if let Ok(mut uri) = Uri::parse(&text) {
                uri.is_bare = false;
                prop_assert_eq!(Uri::parse(&uri.to_string()).unwrap(), uri);
            }
        }
    }
}

/// Rule U1: an IPv6 address with a zone is read with `%` or `%25`, and written with `%25`.
#[test]
fn zones_are_read_and_written() {
    for (text, address, written) in [
        (
            "tcp://[fe80::1%eth0]:4000",
            "[fe80::1%eth0]:4000",
            "tcp://[fe80::1%25eth0]:4000",
        ),
        (
            "ucx://[fe80::1%25eth0]:1/",
            "[fe80::1%eth0]:1",
            "ucx://[fe80::1%25eth0]:1",
        ),
        (
            "tcp://[FE80::0:1%2]:4000?dipc=1",
            "[fe80::1%2]:4000",
            "tcp://[fe80::1%252]:4000",
        ),
        (
            "tcp://[fe80::1%25]:4000",
            "[fe80::1%25]:4000",
            "tcp://[fe80::1%2525]:4000",
        ),
        (
            "tcp://[fe80::1%252]:4000",
            "[fe80::1%2]:4000",
            "tcp://[fe80::1%252]:4000",
        ),
        (
            "tcp://[fe80::1%25a%C3%A9]:1",
            "[fe80::1%aé]:1",
            "tcp://[fe80::1%25a%C3%A9]:1",
        ),
        ("shm:/a://[x%y]:1", "/a://[x%y]:1", "shm:/a://[x%25y]:1"),
    ] {
        let uri = Uri::parse(text).unwrap();
        assert_eq!(uri.address, address, "{text}");
        assert_eq!(uri.bare(), written, "{text}");
        assert_eq!(Uri::parse(&uri.bare()).unwrap().address, address, "{text}");
    }
    for text in [
        "tcp://[fe80::1%]:4000",
        "tcp://[fe80::1%a/b]:4000",
        "tcp://[fe80::1%25a%2Fb]:4000",
        "tcp://[fe80::1%a%0Ab]:4000",
        "tcp://[fe80::1%ff%ff]:4000",
        "tcp://[10.0.0.1%eth0]:4000",
        "tcp://[fe80::1%eth0]",
    ] {
        let error = Uri::parse(text).unwrap_err();
        assert_eq!(error.status(), Status::InvalidUri, "{text}: {error}");
    }
}
