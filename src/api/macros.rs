//! Macros for code that the types of this API share.

/// Methods of a builder. Each sets one field and returns the builder.
macro_rules! setters {
    ($builder:ident $(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),+) => $($place:tt).+ = $value:expr;
    )+) => {
        impl $builder {$(
            $(#[$doc])*
            #[must_use = "the options come back"]
            pub fn $name(mut self, $($argument: $type),+) -> Self {
                self.$($place).+ = $value;
                self
            }
        )+}
    };
}

/// [`Debug`](std::fmt::Debug) for a type that shows little of itself, or nothing.
macro_rules! opaque_debug {
    ($type:ident $(<$lifetime:lifetime>)? $(, |$this:ident| $($field:ident = $value:expr),+)?) => {
        impl std::fmt::Debug for $type $(<$lifetime>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($type))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
