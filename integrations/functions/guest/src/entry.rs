//! The functions of a module, by name.

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use crate::{Function, Out, Output, Result};

/// A function of any type, in the middle of a call.
pub(crate) trait Running {
    fn process(&mut self, batch: &RecordBatch, out: &mut Out) -> Result<()>;
    fn finish(&mut self, out: &mut Out) -> Result<()>;
}

impl<F: Function> Running for F {
    fn process(&mut self, batch: &RecordBatch, out: &mut Out) -> Result<()> {
        Function::process(self, batch, out)
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        Function::finish(self, out)
    }
}

type Begin = fn(&[u8], Option<&Schema>) -> Result<(Box<dyn Running>, Output)>;

/// A function's name and its type. Made by [`functions!`](crate::functions).
#[derive(Clone, Copy)]
pub struct Entry {
    name: &'static str,
    pub(crate) begin: Begin,
}

impl Entry {
    #[doc(hidden)]
    pub const fn new<F: Function>(name: &'static str) -> Self {
        Entry {
            name,
            begin: |arguments, input| {
                let (function, output) = F::init(arguments, input)?;
                Ok((Box::new(function), output))
            },
        }
    }

    /// The function that a request names.
    pub(crate) fn find<'a>(entries: &'a [Entry], name: &[u8]) -> Result<&'a Entry> {
        if let Some(entry) = entries.iter().find(|entry| entry.name.as_bytes() == name) {
            return Ok(entry);
        }
        let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
        Err(format!(
            "the module has no function {:?}; it has {}",
            String::from_utf8_lossy(name),
            names.join(", ")
        )
        .into())
    }
}

/// Makes the module's exports: a name for each type that has the trait
/// [`Function`](crate::Function). It stands in a module once.
///
/// ```
/// # use dipc_guest::{arrow_schema::Schema, Function, Output, Result};
/// # struct Keep;
/// # impl Function for Keep {
/// #     fn init(_: &[u8], _: Option<&Schema>) -> Result<(Self, Output)> {
/// #         Ok((Keep, Output::Bytes))
/// #     }
/// # }
/// # struct Drop;
/// # impl Function for Drop {
/// #     fn init(_: &[u8], _: Option<&Schema>) -> Result<(Self, Output)> {
/// #         Ok((Drop, Output::Bytes))
/// #     }
/// # }
/// dipc_guest::functions! { "keep" => Keep, "drop" => Drop }
/// ```
#[macro_export]
macro_rules! functions {
    ($($name:literal => $function:ty),+ $(,)?) => {
        const _: () = {
            const FUNCTIONS: &[$crate::Entry] = &[$($crate::Entry::new::<$function>($name)),+];
            $crate::__exports!(FUNCTIONS);
        };
    };
}

/// Elsewhere than in a module there is nothing to export, but the types are in use.
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __exports {
    ($functions:ident) => {
        let _ = $functions;
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Function for Nothing {
        fn init(_: &[u8], _: Option<&Schema>) -> Result<(Self, Output)> {
            Ok((Nothing, Output::Bytes))
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let entries = [Entry::new::<Nothing>("keep"), Entry::new::<Nothing>("sum")];
        let failure = Entry::find(&entries, b"kee").err().unwrap().to_string();
        assert_eq!(
            failure,
            "the module has no function \"kee\"; it has keep, sum"
        );
        assert_eq!(Entry::find(&entries, b"sum").unwrap().name, "sum");
    }
}
