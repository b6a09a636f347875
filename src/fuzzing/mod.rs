//! Bodies of the fuzz targets, one function each, taking the fuzzer's bytes.
//!
//! A target is three things of one name: a module here, listed in the macro below; a program in
//! `fuzz/fuzz_targets/`, which calls it; a folder of inputs in `fuzz/corpus/`. Each listed name
//! gets a test that replays its folder, one that tries random inputs and one that changes bytes of
//! the inputs in its folder, so that `cargo test` needs no fuzzer; `PROPTEST_CASES` says how many. An
//! input that once failed is added to the folder and stays there.

mod supply;

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            mod $name;
            pub use $name::$name;
        )*

        #[cfg(test)]
        mod random {
            proptest::proptest! {$(
                /// Promise of the fuzz targets, for the inputs that chance finds without a fuzzer.
                #[test]
                fn $name(input in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
                    super::$name(&input);
                }
            )*}
        }

        #[cfg(test)]
        mod changed {
            proptest::proptest! {$(
                /// Promise of the fuzz targets, for inputs of the corpus with a few bytes changed.
                #[test]
                fn $name(
                    chosen in proptest::prelude::any::<proptest::sample::Index>(),
                    changes in proptest::collection::vec(
                        proptest::prelude::any::<(proptest::sample::Index, u8)>(),
                        1..6,
                    ),
                ) {
                    let inputs = super::corpus(stringify!($name));
                    let mut input = std::fs::read(chosen.get(&inputs)).unwrap();
                    for (at, byte) in changes {
                        if !input.is_empty() {
                            let at = at.index(input.len());
                            input[at] = byte;
                        }
                    }
                    super::$name(&input);
                }
            )*}
        }

        #[cfg(test)]
        mod replay {
            $(
                /// Promise of the fuzz targets: every input kept in the corpus passes.
                #[test]
                fn $name() {
                    super::replay_corpus(stringify!($name), super::$name);
                }
            )*
        }
    };
}

targets! {
    decode
    describe
    filter
    frames
    receiver
    request
    sender
    taking
    uri
}

/// The inputs kept for a target.
#[cfg(test)]
fn corpus(name: &str) -> Vec<std::path::PathBuf> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let mut inputs: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
}

#[cfg(test)]
fn replay_corpus(name: &str, body: fn(&[u8])) {
    for input in corpus(name) {
        // The name of the last line is the input that fails, where one does.
        println!("{}", input.display());
        body(&std::fs::read(&input).unwrap());
    }
}
