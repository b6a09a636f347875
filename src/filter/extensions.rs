//! Names of functions and types that the message declares, by the numbers that stand for them.

use std::collections::HashMap;

use super::message::extension::Kind;
use super::message::{Declaration, ExtendedExpression, ExtensionFile};

/// The name that `pyarrow` gives to the file of the functions that have no counterpart in
/// Substrait.
const ARROW_FUNCTIONS: &str = "urn:arrow:substrait_simple_extension_function";

/// The declarations of a message.
#[derive(Default)]
pub(super) struct Extensions {
    functions: HashMap<u32, Declared>,
    types: HashMap<u32, String>,
    variations: HashMap<u32, String>,
}

/// A function's name without its signature.
pub(super) struct Declared {
    pub(super) name: String,
    /// True if `name` is one of Arrow's compute functions, false if it is one of Substrait's.
    pub(super) of_arrow: bool,
}

impl Extensions {
    /// Takes the declarations out of `message`.
    pub(super) fn new(message: &mut ExtendedExpression) -> Self {
        let uris = std::mem::take(&mut message.extension_uris);
        let urns = std::mem::take(&mut message.extension_urns);
        let of_arrow = |declared: &Declaration| {
            let is = |files: &[ExtensionFile], anchor| {
                let mut files = files.iter();
                files.any(|file| file.anchor == anchor && file.name == ARROW_FUNCTIONS)
            };
            is(&uris, declared.uri) || is(&urns, declared.urn)
        };
        let mut all = Self::default();
        for extension in std::mem::take(&mut message.extensions) {
            match extension.kind {
                Some(Kind::Function(function)) => {
                    let of_arrow = of_arrow(&function);
                    let anchor = function.anchor;
                    let name = plain(function.name);
                    all.functions.insert(anchor, Declared { name, of_arrow });
                }
                Some(Kind::Type(declared)) => {
                    all.types.insert(declared.anchor, plain(declared.name));
                }
                Some(Kind::TypeVariation(declared)) => {
                    all.variations.insert(declared.anchor, declared.name);
                }
                None => {}
            }
        }
        all
    }

    /// The function with this number.
    pub(super) fn function(&self, anchor: u32) -> Option<&Declared> {
        self.functions.get(&anchor)
    }

    /// The name of the type with this number.
    pub(super) fn user_type(&self, anchor: u32) -> Option<&str> {
        self.types.get(&anchor).map(String::as_str)
    }

    /// The name of the variation of a type with this number.
    pub(super) fn variation(&self, anchor: u32) -> Option<&str> {
        self.variations.get(&anchor).map(String::as_str)
    }
}

/// `name` without the signature, as in `equal:any_any`.
fn plain(mut name: String) -> String {
    if let Some(end) = name.find(':') {
        name.truncate(end);
    }
    name
}
