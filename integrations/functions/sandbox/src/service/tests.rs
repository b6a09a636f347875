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
