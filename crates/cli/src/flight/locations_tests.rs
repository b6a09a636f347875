//! Tests of [`super`].

use super::*;

fn read(locations: &[&str]) -> Vec<Result<Route, Unusable>> {
    let locations: Vec<String> = locations.iter().map(|&text| text.to_owned()).collect();
    routes(&locations, true)
}

fn dissociated(uris: &[&str]) -> Route {
    Route::Dissociated(uris.iter().map(|&uri| uri.to_owned()).collect())
}

fn reason(route: &Result<Route, Unusable>) -> &str {
    route
        .as_ref()
        .map_or_else(|unusable| unusable.reason.as_str(), |_| "")
}

/// Flight: no location, and the reuse-connection location, mean the asked server; grpc schemes mean
/// `DoGet` at their address.
#[test]
fn flight_locations_mean_do_get() {
    assert_eq!(read(&[]), [Ok(Route::Here)]);
    assert_eq!(
        read(&["arrow-flight-reuse-connection://?", "grpc+tcp://host:1"]),
        [
            Ok(Route::Here),
            Ok(Route::DoGet("grpc+tcp://host:1".to_owned()))
        ]
    );
    assert!(is_flight("grpc://a:1") && is_flight("grpc+unix:///a"));
    assert!(!is_flight("tcp://a:1") && !is_flight("grpcs") && !is_flight("shm:@grpc"));
}

/// Rule U3: one URI is one route; two URIs with complementary roles are one route, in either order.
#[test]
fn roles_make_pairs() {
    let (metadata, data) = ("shm:@a?dipc_role=metadata", "shm:@a?dipc_role=data");
    assert_eq!(read(&["shm:@a"]), [Ok(dissociated(&["shm:@a"]))]);
    for pair in [[metadata, data], [data, metadata]] {
        assert_eq!(
            read(&[pair[0], pair[1], "shm:@b"]),
            [Ok(dissociated(&pair)), Ok(dissociated(&["shm:@b"]))]
        );
    }
    // Two libdipc servers are two routes.
    assert_eq!(read(&["shm:@a", "shm:@b"]).len(), 2);
}

/// One URI of a pair without its partner is skipped with a reason; the others stay.
#[test]
fn a_lone_role_is_unusable() {
    let routes = read(&["shm:@a?dipc_role=metadata", "shm:@b"]);
    assert!(
        reason(&routes[0]).contains("metadata stream only"),
        "{routes:?}"
    );
    assert_eq!(routes[1], Ok(dissociated(&["shm:@b"])));
    assert!(read(&["shm:@a?dipc_role=data"])[0].is_err());
}

/// Rule R4: two `ucx:` URIs of a server without the extension are metadata and data.
#[test]
fn the_reference_peers_pair_is_known() {
    let parse = |uri: &str| Uri::parse(uri).unwrap();
    let (metadata, data) = (
        parse("ucx://127.0.0.1:1?want_data=18446744009703243440"),
        parse("ucx://127.0.0.1:2?want_data=244837814090416"),
    );
    assert!(are_pair(&metadata, &data));
    let ours = parse("ucx://127.0.0.1:1");
    assert!(!are_pair(&ours, &ours));
    assert!(!are_pair(&metadata, &ours));
    let tcp = parse("tcp://127.0.0.1:1?want_data=18446744009703243440");
    assert!(!are_pair(&tcp, &tcp));
}

/// A Flight server cannot make a client open its memory to a peer on ucx: without the user's
/// consent the location is skipped.
#[test]
fn ucx_is_taken_only_on_a_trusted_network() {
    let reasons = |trusted| {
        let routes = routes(&["ucx://127.0.0.1:1".to_owned()], trusted);
        reason(&routes[0]).to_owned()
    };
    // The result does not depend on an installed UCX.
    assert!(!reasons(true).contains("--trusted-network"));
    let refused = reasons(false);
    assert!(refused.contains("--trusted-network"), "{refused}");
}

/// Unusable locations have a reason; the others stay, in order.
#[test]
fn unusable_locations_have_reasons() {
    let routes = read(&["https://host/file", "shm:relative", "", "shm:@a"]);
    assert!(reason(&routes[0]).contains("https"), "{routes:?}");
    assert!(reason(&routes[1]).contains("absolute path"), "{routes:?}");
    assert!(routes[2].is_err());
    assert_eq!(routes[3], Ok(dissociated(&["shm:@a"])));
}

/// A client on another machine gets no address of this machine only; a client on this machine does.
/// An address for "every address" becomes the address that the client used.
#[test]
fn clients_get_locations_that_they_can_reach() {
    let uris = [
        "shm:@a",
        "tcp://127.0.0.1:5",
        "tcp://0.0.0.0:6",
        "tcp://host:7",
    ];
    let given = |local: &str, remote: &str| {
        let uris: Vec<String> = uris.iter().map(|&uri| uri.to_owned()).collect();
        for_peer(&uris, local.parse().ok(), remote.parse().ok())
    };
    let at =
        |uri: &str, address: &str| -> String { Uri::parse(uri).unwrap().at(address).to_string() };
    let everywhere = at("tcp://0.0.0.0:6", "10.0.0.1:6");
    assert_eq!(
        given("10.0.0.1:9", "10.0.0.2:40000"),
        [everywhere.as_str(), "tcp://host:7"]
    );
    assert_eq!(
        given("10.0.0.1:9", "10.0.0.1:40000"),
        ["shm:@a", "tcp://127.0.0.1:5", &everywhere, "tcp://host:7"]
    );
    // A listener for both families sees IPv4 addresses as IPv6 ones.
    assert_eq!(
        given("[::ffff:127.0.0.1]:9", "[::ffff:127.0.0.1]:40000")[..2],
        ["shm:@a", "tcp://127.0.0.1:5"]
    );
}
