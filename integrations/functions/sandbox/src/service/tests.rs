use ed25519_dalek::{Signer as _, SigningKey};

use super::*;

fn hash(byte: u8) -> Hash {
    Hash([byte; 32])
}

/// Promise of `Ask`: what `header` writes, `parse` reads; anything else is refused by its text.
#[test]
fn headers_say_what_is_asked() {
    let call = Call {
        module: hash(0xa5),
        function: "keep these rows".into(),
        arguments: vec![0, 1, 255],
    };
    for ask in [
        Ask::Call(call.clone()),
        Ask::Alone(call.clone()),
        Ask::Module(call.module),
    ] {
        let parsed = Ask::parse(ask.header().as_bytes(), Some(&call.arguments)).unwrap();
        assert_eq!(parsed, ask);
    }
    let hex = call.module.to_string();
    for wrong in [
        String::new(),
        "call".into(),
        format!("call {hex}"),
        format!("module {hex} more"),
        format!("run {hex} f"),
        format!("call {} f", &hex[1..]),
        format!("call +{} f", &hex[1..]),
        format!("call {}g f", &hex[1..]),
        format!("call {}é f", &hex[2..]),
    ] {
        let refused = Ask::parse(wrong.as_bytes(), None);
        assert!(matches!(refused, Err(Refusal::Malformed(_))), "{wrong:?}");
    }
    assert!(Ask::parse(b"call \xff", None).is_err());
}

/// Promise of `Policy`: nothing is allowed by default; hashes, keys and principals allow what they
/// name, and no more.
#[test]
fn a_policy_allows_what_it_names() {
    let forbids = |result: Result<(), Refusal>| matches!(result, Err(Refusal::Forbidden(_)));
    assert!(forbids(Policy::new().ensure_module(&hash(1), None)));
    assert!(forbids(Policy::new().ensure_listed(&hash(1))));
    Policy::new().ensure_principal(None).unwrap();

    let listed = Policy::new().allow_module(hash(1));
    listed.ensure_module(&hash(1), None).unwrap();
    listed.ensure_listed(&hash(1)).unwrap();
    assert!(forbids(listed.ensure_module(&hash(2), None)));
    assert!(forbids(listed.ensure_listed(&hash(2))));

    let any = Policy::new().allow_any_module();
    any.ensure_module(&hash(2), None).unwrap();

    let (key, other) = (
        SigningKey::from_bytes(&[7; 32]),
        SigningKey::from_bytes(&[8; 32]),
    );
    let signed = Policy::new()
        .allow_key(key.verifying_key().as_bytes())
        .unwrap();
    let sign = |key: &SigningKey, hash| key.sign(&signed_bytes(&hash)).to_bytes();
    let ensure = |signature: &[u8]| signed.ensure_module(&hash(3), Some(signature));
    ensure(&sign(&key, hash(3))).unwrap();
    assert!(forbids(ensure(&sign(&key, hash(4)))));
    assert!(forbids(ensure(&sign(&other, hash(3)))));
    assert!(forbids(ensure(&key.sign(&hash(3).0).to_bytes())));
    assert!(forbids(ensure(b"short")));
    assert!(forbids(signed.ensure_module(&hash(3), None)));

    let named = any.allow_principal("ann").allow_principal("bob");
    named.ensure_principal(Some("bob")).unwrap();
    assert!(forbids(named.ensure_principal(Some("eve"))));
    assert!(forbids(named.ensure_principal(None)));
}

/// Promise of `Policy::allow_peer`: a URI stands for itself with any parameters, one that ends with `*`
/// for all that begin so, and nothing for any other.
#[test]
fn a_policy_lets_calls_go_on_at_its_peers() {
    let goes = |policy: &Policy, uri| match policy.ensure_peer(uri) {
        Ok(()) => true,
        Err(Refusal::Forbidden(text)) => {
            assert!(text.contains(uri), "{text}");
            false
        }
        Err(other) => panic!("{other}"),
    };
    let none = Policy::new();
    assert!(!none.has_peers());
    assert!(!goes(&none, "shm:@one") && !goes(&none, ""));

    let one = none.allow_peer("tcp://node-1:4000?want_data=7");
    assert!(one.has_peers());
    assert!(goes(&one, "tcp://node-1:4000"));
    assert!(goes(&one, "tcp://node-1:4000?want_data=8&free_data=9"));
    assert!(!goes(&one, "tcp://node-1:40001"));
    assert!(!goes(&one, "tcp://node-1"));
    assert!(!goes(&one, "tls://node-1:4000"));

    let more = one.allow_peer("shm:@lake-*").allow_peer("shm:@two");
    assert!(goes(&more, "tcp://node-1:4000") && goes(&more, "shm:@two"));
    assert!(goes(&more, "shm:@lake-1?want_data=7") && goes(&more, "shm:@lake-"));
    assert!(!goes(&more, "shm:@lake") && !goes(&more, "shm:@two-2"));
    assert!(goes(&Policy::new().allow_peer("*"), "ucx://anywhere"));
}

/// Promise of the header `function-hops`: a number, or none.
#[test]
fn hops_are_a_number() {
    assert_eq!(hops(None).unwrap(), None);
    assert_eq!(hops(Some(b"17")).unwrap(), Some(17));
    for wrong in ["", "-1", "many", "4294967296"] {
        let read = hops(Some(wrong.as_bytes()));
        assert!(matches!(read, Err(Refusal::Malformed(_))), "{wrong}");
    }
}

/// Promise of `arose_at`: a chain names the server where an error arose, and no other.
#[test]
fn an_error_of_a_chain_names_one_server() {
    let last = arose_at("tcp://last:1?want_data=7", "no memory");
    assert_eq!(
        last,
        "where the function went on, at tcp://last:1: no memory"
    );
    assert_eq!(
        arose_at("tcp://first:1", &format!("a stream: {last}")),
        last
    );
}

/// Promise of `Service::keep`: a module is kept under its own hash alone.
#[test]
fn a_module_has_its_own_hash() {
    let service = Service::new(Policy::new().allow_any_module()).unwrap();
    let refused = service.keep(&hash(1), b"no module");
    assert!(matches!(refused, Err(Refusal::Malformed(_))));
    let own = Hash::of(b"no module");
    let refused = service.keep(&own, b"no module");
    assert!(matches!(refused, Err(Refusal::Failed(Error::Module(_)))));
    assert!(!service.has(&own).unwrap());
}
